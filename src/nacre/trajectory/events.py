"""One thing that happened in a run, and when; already redacted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, get_args

if TYPE_CHECKING:
    from nacre.json_types import JsonObject

EventKind = Literal[
    "run.started",
    "call.started",
    "call.changed",
    "call.updated",
    "call.ended",
    "approval.requested",
    "approval.answered",
    "cell.started",
    "cell.output",
    "cell.suspended",
    "cell.resumed",
    "cell.ended",
    "model.requested",
    "model.answered",
    "turn.ended",
]
EVENT_KINDS: Final[tuple[EventKind, ...]] = get_args(EventKind)


@dataclass(frozen=True, kw_only=True, slots=True)
class TrajectoryEvent:
    """An entry of the record. Sequence numbers have no gaps, except before what was dropped."""

    sequence: int
    time: float
    """Seconds since the epoch."""
    kind: EventKind
    call_id: str
    """The call that this is about; for a cell, the call of `exec`. Empty for the whole run."""
    parent_id: str
    """The call that this one is nested in; empty for a direct call."""
    data: JsonObject

    def to_json(self) -> JsonObject:
        return {
            "sequence": self.sequence,
            "time": self.time,
            "kind": self.kind,
            "toolCallId": self.call_id,
            "parentToolCallId": self.parent_id,
            "data": self.data,
        }
