"""Calls as a tree: what a program called stands as real calls under its call of `exec`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable

    from nacre.json_types import JsonObject, JsonValue
    from nacre.trajectory.events import TrajectoryEvent

CallOutcome = Literal["completed", "failed", "running"]

# Far above real nesting; deeper calls stand at the top, so that no reader runs out of stack.
_MAX_DEPTH: Final = 64


def _no_approvals() -> list[JsonObject]:
    return []


def _no_children() -> list[CallNode]:
    return []


@dataclass(kw_only=True, slots=True)
class CallNode:
    """One tool call, and the calls that were made inside it."""

    call_id: str
    parent_id: str = ""
    """Stays when the parent is not part of the record; the node is then at the top."""
    tool_id: str = ""
    tool_name: str = ""
    source: str = ""
    input: JsonValue = None
    outcome: CallOutcome = "running"
    result: JsonValue = None
    error: str = ""
    error_code: str = ""
    abort_reason: str = ""
    """Why the call was to end before it did; its result is what it had come to by then."""
    started: float | None = None
    """Seconds since the epoch; None when the record begins after it."""
    ended: float | None = None
    duration_ms: float | None = None
    approvals: list[JsonObject] = field(default_factory=_no_approvals)
    """What was asked and answered, in order: `event`, `time`, and the data of the event."""
    updates: int = 0
    """How often the tool reported progress."""
    children: list[CallNode] = field(default_factory=_no_children)

    def to_json(self) -> JsonObject:
        """With the keys that events have; what is not known or empty is left out."""
        known: JsonObject = {
            "toolCallId": self.call_id,
            "parentToolCallId": self.parent_id,
            "toolId": self.tool_id,
            "toolName": self.tool_name,
            "source": self.source,
            "input": self.input,
            "outcome": self.outcome,
            "error": self.error,
            "errorCode": self.error_code,
            "abortReason": self.abort_reason,
            "startedAt": self.started,
            "endedAt": self.ended,
            "durationMs": self.duration_ms,
            "approvals": [*self.approvals],
            "updates": self.updates or None,
            "children": [child.to_json() for child in self.children],
        }
        shown: JsonObject = {
            key: value for key, value in known.items() if value not in ("", None, [])
        }
        if self.outcome == "completed":
            shown["result"] = self.result
        return shown


def project(events: Iterable[TrajectoryEvent]) -> list[CallNode]:
    """The calls that nobody made inside another, in the order they started, each with the calls
    inside it. A call without a beginning or an end in the record is there all the same."""
    projection = _Projection()
    for event in events:
        projection.add(event)
    return projection.roots


class _Projection:
    def __init__(self) -> None:
        self.roots: list[CallNode] = []
        self._nodes: dict[str, CallNode] = {}
        self._depths: dict[str, int] = {}

    def add(self, event: TrajectoryEvent) -> None:
        match event.kind:
            case "call.started":
                # A new node even for an id that was there: some providers count from one again.
                _start(self._new_node(event), event)
            case "call.ended":
                _end(self._node(event), event)
            case "call.changed":
                self._node(event).input = event.data.get("input")
            case "call.updated":
                self._node(event).updates += 1
            case "approval.requested" | "approval.answered":
                asked_or_answered = event.kind.removeprefix("approval.")
                self._node(event).approvals.append(
                    {**event.data, "event": asked_or_answered, "time": event.time}
                )
            case _:
                # Of the run or of a cell: nothing about a call.
                pass

    def _node(self, event: TrajectoryEvent) -> CallNode:
        # Its beginning may have been dropped from a full record.
        return self._nodes.get(event.call_id) or self._new_node(event)

    def _new_node(self, event: TrajectoryEvent) -> CallNode:
        node = CallNode(call_id=event.call_id, parent_id=event.parent_id)
        # Only a call that is there already can be a parent, so that no circle can come about.
        parent = self._nodes.get(event.parent_id) if event.parent_id else None
        depth = self._depths[event.parent_id] + 1 if parent else 0
        if parent is None or depth > _MAX_DEPTH:
            self.roots.append(node)
            depth = 0
        else:
            parent.children.append(node)
        self._nodes[event.call_id] = node
        self._depths[event.call_id] = depth
        return node


def _start(node: CallNode, event: TrajectoryEvent) -> None:
    node.tool_id = _get_text(event.data, "toolId")
    node.tool_name = _get_text(event.data, "toolName")
    node.source = _get_text(event.data, "source")
    node.input = event.data.get("input")
    node.started = event.time


def _end(node: CallNode, event: TrajectoryEvent) -> None:
    node.outcome = "completed" if event.data.get("outcome") == "completed" else "failed"
    node.result = event.data.get("result")
    node.error = _get_text(event.data, "error")
    node.error_code = _get_text(event.data, "errorCode")
    node.abort_reason = _get_text(event.data, "abortReason")
    node.ended = event.time
    duration_ms = event.data.get("durationMs")
    if isinstance(duration_ms, int | float):
        node.duration_ms = float(duration_ms)
    elif node.started is not None:
        node.duration_ms = (event.time - node.started) * 1000


def _get_text(data: JsonObject, key: str) -> str:
    value = data.get(key)
    return value if isinstance(value, str) else ""
