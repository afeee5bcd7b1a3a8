"""The call tree of a trajectory: nested calls are children of their `exec` call."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Final, Literal

from nacre.lazy_dataclasses import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterable

    from nacre.json_types import JsonObject, JsonValue
    from nacre.trajectory.events import TrajectoryEvent

CallOutcome = Literal["completed", "failed", "running"]

# Real nesting is far below this. Deeper calls become roots, so that recursion stays bounded.
_MAX_DEPTH: Final = 64


def _no_approvals() -> list[JsonObject]:
    return []


def _no_children() -> list[CallNode]:
    return []


@dataclass(kw_only=True, slots=True)
class CallNode:
    """One tool call with its nested calls."""

    call_id: str
    parent_id: str = ""
    """Set even if the trajectory does not contain the parent; the node is then a root."""
    tool_id: str = ""
    tool_name: str = ""
    source: str = ""
    input: JsonValue = None
    outcome: CallOutcome = "running"
    result: JsonValue = None
    error: str = ""
    error_code: str = ""
    abort_reason: str = ""
    """Why the call was aborted; its result is what it had produced until then."""
    started: float | None = None
    """Seconds since the epoch; None if the trajectory does not contain the start."""
    ended: float | None = None
    duration_ms: float | None = None
    approvals: list[JsonObject] = field(default_factory=_no_approvals)
    """Approval requests and decisions in order, each with `event`, `time` and the event's data."""
    updates: int = 0
    """How often the tool reported progress."""
    children: list[CallNode] = field(default_factory=_no_children)

    def to_json(self) -> JsonObject:
        """The node with the keys of trajectory events, without unknown and empty values."""
        members: JsonObject = {
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
        node: JsonObject = {
            key: value for key, value in members.items() if value not in ("", None, [])
        }
        if self.outcome == "completed":
            node["result"] = self.result
        return node


def project(events: Iterable[TrajectoryEvent]) -> list[CallNode]:
    """The direct calls in the order in which they started, with their nested calls.

    Calls whose start or end the trajectory does not contain are included.
    """
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
                # A new node even for a known id, because some providers reuse ids.
                _start(self._new_node(event), event)
            case "call.ended":
                _end(self._node(event), event)
            case "call.changed":
                self._node(event).input = event.data.get("input")
            case "call.updated":
                self._node(event).updates += 1
            case "approval.requested" | "approval.answered":
                kind = event.kind.removeprefix("approval.")
                self._node(event).approvals.append(
                    {**event.data, "event": kind, "time": event.time}
                )
            case _:
                # An event of the run or of a cell.
                pass

    def _node(self, event: TrajectoryEvent) -> CallNode:
        # The start may have been dropped from a full log.
        return self._nodes.get(event.call_id) or self._new_node(event)

    def _new_node(self, event: TrajectoryEvent) -> CallNode:
        node = CallNode(call_id=event.call_id, parent_id=event.parent_id)
        # Only an earlier call can be a parent, so there are no cycles.
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
