"""What `exec` and `wait` return: completed, waiting or failed, in the shape of the contract."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, cast

from nacre.json_types import NotJsonError, encode_json
from nacre.sandbox.results import (
    CODE_OF_REASON,
    ErrorCode,
    Output,
    Position,
    Reason,
    Usage,
    output_to_wire,
    usage_to_wire,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from nacre.ids import CellId
    from nacre.json_types import JsonObject, JsonValue

_MAX_SHOWN_TOOLS: Final = 10


@dataclass(frozen=True, kw_only=True, slots=True)
class PendingToolCall:
    """A nested call without an answer; its input stays out of what a model sees."""

    id: str
    tool_id: str
    is_awaiting_approval: bool = False
    is_awaiting_client: bool = False

    @property
    def is_awaiting_somebody(self) -> bool:
        """Whether it goes on only when a person or a client has answered."""
        return self.is_awaiting_approval or self.is_awaiting_client

    def to_json(self) -> JsonObject:
        wire: JsonObject = {"id": self.id, "toolId": self.tool_id}
        if self.is_awaiting_approval:
            wire["awaitingApproval"] = True
        if self.is_awaiting_client:
            wire["awaitingClient"] = True
        return wire


@dataclass(frozen=True, kw_only=True, slots=True)
class Telemetry:
    """What a run's catalog holds and how it was used so far, and what this cell has cost."""

    catalog_size: int = 0
    sources: Mapping[str, int] = field(default_factory=dict[str, int])
    visible_tools: tuple[str, ...] = ()
    exec_count: int = 0
    wait_count: int = 0
    search_count: int = 0
    describe_count: int = 0
    call_count: int = 0
    called_tools: Mapping[str, int] = field(default_factory=dict[str, int])
    """How often each tool of the catalog was called, by id."""
    snapshots: Mapping[str, int] = field(default_factory=dict[str, int])
    """How many snapshots were taken, restored, dropped and expired."""
    limit_failures: Mapping[str, int] = field(default_factory=dict[str, int])
    """How many cells ended at a limit, by reason."""
    cell: Usage = field(default_factory=Usage)

    def to_json(self) -> JsonObject:
        wire: JsonObject = {
            "catalogSize": self.catalog_size,
            "sources": dict(self.sources),
            "visibleTools": list(self.visible_tools),
            "execCount": self.exec_count,
            "waitCount": self.wait_count,
            "searchCount": self.search_count,
            "describeCount": self.describe_count,
            "callCount": self.call_count,
        }
        # Left out while there is nothing to say: a model pays for every word of a result.
        for key, counts in (
            ("calledTools", _most_called(self.called_tools)),
            ("snapshots", self.snapshots),
            ("limitFailures", self.limit_failures),
        ):
            if counts:
                wire[key] = dict(counts)
        return {**wire, **usage_to_wire(self.cell)}


@dataclass(frozen=True, kw_only=True, slots=True)
class Completed:
    """The program returned; nothing of it is left to run."""

    value: JsonValue
    output: tuple[Output, ...] = ()
    telemetry: Telemetry = field(default_factory=Telemetry)

    def to_json(self) -> JsonObject:
        return _with_rest({"status": "completed", "value": self.value}, self)


@dataclass(frozen=True, kw_only=True, slots=True)
class Waiting:
    """The program is suspended; `wait` with its `run_id` continues it."""

    run_id: CellId
    reason: Literal["pending_tools", "yield"]
    yield_reason: str = ""
    pending: tuple[PendingToolCall, ...] = ()
    has_timer: bool = False
    """Whether it would go on by itself after a while, were it resumed; not told to the model."""
    output: tuple[Output, ...] = ()
    telemetry: Telemetry = field(default_factory=Telemetry)

    def to_json(self) -> JsonObject:
        wire: JsonObject = {"status": "waiting", "runId": self.run_id, "reason": self.reason}
        if self.yield_reason:
            wire["yieldReason"] = self.yield_reason
        if self.pending:
            wire["pendingToolCalls"] = [call.to_json() for call in self.pending]
        return _with_rest(wire, self)


@dataclass(frozen=True, kw_only=True, slots=True)
class Failed:
    """There is no value; `error` says what happened and what to do."""

    error: str
    reason: Reason
    position: Position | None = None
    output: tuple[Output, ...] = ()
    telemetry: Telemetry = field(default_factory=Telemetry)

    @property
    def code(self) -> ErrorCode:
        return CODE_OF_REASON[self.reason]

    def to_json(self) -> JsonObject:
        wire: JsonObject = {
            "status": "failed",
            "error": self.error,
            "code": self.code,
            "reason": self.reason,
        }
        if self.position is not None:
            wire["line"] = self.position.line
            wire["column"] = self.position.column
        return _with_rest(wire, self)


CodeModeResult: TypeAlias = Completed | Waiting | Failed


@dataclass(frozen=True, kw_only=True, slots=True)
class DirectResult:
    """What a tool returned that the model called by its own name, beside or without `exec`."""

    value: object = None
    """As the tool returned it where the tool is direct-only, else JSON."""
    error: str = ""
    code: str = ""

    @property
    def is_error(self) -> bool:
        return bool(self.code)

    def to_json(self) -> JsonObject:
        """What JSON cannot hold is named by its type; `value` has it."""
        if self.is_error:
            return {"status": "failed", "error": self.error, "code": self.code}
        try:
            encode_json(self.value)
        except NotJsonError:
            return {"status": "completed", "value": {"type": type(self.value).__name__}}
        return {"status": "completed", "value": cast("JsonValue", self.value)}


def _most_called(counts: Mapping[str, int]) -> dict[str, int]:
    """A run may call hundreds of tools; a model need not read all their ids in every result."""
    ordered = sorted(counts.items(), key=lambda item: -item[1])
    shown = dict(ordered[:_MAX_SHOWN_TOOLS])
    others = sum(count for _, count in ordered[_MAX_SHOWN_TOOLS:])
    return {**shown, "other": shown.get("other", 0) + others} if others else shown


def _with_rest(wire: JsonObject, result: CodeModeResult) -> JsonObject:
    """What all results have; an empty output is left out."""
    if result.output:
        wire["output"] = [output_to_wire(item) for item in result.output]
    wire["telemetry"] = result.telemetry.to_json()
    return wire
