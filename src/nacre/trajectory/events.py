"""The events of runs and trajectories, and the JSON Lines format of trajectories."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, get_args

from nacre.json_types import NotJsonError, decode_json, encode_json

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from nacre.json_types import JsonObject, JsonValue


CallEventKind = Literal[
    "call.started",
    "call.updated",
    "call.changed",
    "call.ended",
    "cell.started",
    "cell.output",
    "cell.suspended",
    "cell.resumed",
    "cell.ended",
]
"""Recorded in the trajectory and sent to the readers of the run."""
CALL_EVENT_KINDS: Final[frozenset[str]] = frozenset(get_args(CallEventKind))

EventKind = Literal[
    "run.started",
    CallEventKind,
    "approval.requested",
    "approval.answered",
    "model.requested",
    "model.answered",
    "turn.ended",
]
EVENT_KINDS: Final[tuple[EventKind, ...]] = get_args(EventKind)

RunEventKind = Literal[
    "run.queued",
    "run.started",
    "run.waiting",
    "run.resumed",
    "steered",
    "model.started",
    "retry",
    "text.delta",
    "thinking.delta",
    "message.completed",
    "message.sent",
    CallEventKind,
    "approval.requested",
    "approval.answered",
    "client_call.requested",
    "client_call.answered",
    "compaction.started",
    "compaction.ended",
    "server.unavailable",
    "run.completed",
    "run.failed",
    "run.aborted",
]
RUN_EVENT_KINDS: Final[tuple[RunEventKind, ...]] = get_args(RunEventKind)
_KEYS: Final = ("sequence", "time", "kind", "toolCallId", "parentToolCallId", "data")
_MAX_SHOWN_CHARACTERS: Final = 60


@dataclass(frozen=True, kw_only=True, slots=True)
class RunEvent:
    """An event for the readers of a run. A gap in the sequence means dropped events."""

    sequence: int
    time: float
    """Seconds since the epoch."""
    kind: RunEventKind
    data: JsonObject

    def to_json(self) -> JsonObject:
        return {
            "sequence": self.sequence,
            "time": self.time,
            "kind": self.kind,
            "data": self.data,
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class TrajectoryEvent:
    """A redacted entry of a trajectory. A gap in the sequence means dropped events."""

    sequence: int
    time: float
    """Seconds since the epoch."""
    kind: EventKind
    call_id: str
    """The id of the call; for a cell, of its `exec` call. Empty for events of the run."""
    parent_id: str
    """The id of the call that contains this nested call; empty for a direct call."""
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


class TrajectoryFormatError(ValueError):
    """A line is not a valid event."""

    def __init__(self, line_number: int, problem: str) -> None:
        super().__init__(line_number, problem)
        self.line_number = line_number
        self.problem = problem

    def __str__(self) -> str:
        return f"line {self.line_number} of the trajectory {self.problem}"


def export_json_lines(events: Iterable[TrajectoryEvent]) -> Iterator[str]:
    """One line of JSON per event, without line ends."""
    for event in events:
        yield encode_json(event.to_json()).decode()


def import_json_lines(text: str) -> tuple[TrajectoryEvent, ...]:
    """Parse exported lines; raises TrajectoryFormatError for the first invalid line."""
    events: list[TrajectoryEvent] = []
    # `splitlines` would also split at some characters that JSON strings may contain.
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        event = _parse_event(line, number)
        if events and event.sequence <= events[-1].sequence:
            raise TrajectoryFormatError(
                number, f"has the sequence number {event.sequence} after {events[-1].sequence}"
            )
        events.append(event)
    return tuple(events)


def _parse_event(line: str, number: int) -> TrajectoryEvent:
    members = _parse_members(line, number)
    sequence, time, data = members["sequence"], members["time"], members["data"]
    if not isinstance(sequence, int) or isinstance(sequence, bool) or sequence < 0:
        raise _format_error(number, "sequence", sequence, "an integer, zero or more")
    if not isinstance(time, int | float) or isinstance(time, bool):
        raise _format_error(number, "time", time, "seconds since the epoch")
    if not isinstance(data, dict):
        raise _format_error(number, "data", data, "an object")
    return TrajectoryEvent(
        sequence=sequence,
        time=float(time),
        kind=_parse_kind(members, number),
        call_id=_parse_text(members, "toolCallId", number),
        parent_id=_parse_text(members, "parentToolCallId", number),
        data=data,
    )


def _parse_members(line: str, number: int) -> JsonObject:
    try:
        members = decode_json(line.encode("utf-8", "surrogatepass"))
    except NotJsonError as error:
        raise TrajectoryFormatError(number, f"cannot be read: {error}") from error
    if not isinstance(members, dict):
        raise TrajectoryFormatError(number, "is not an object")
    missing = [key for key in _KEYS if key not in members]
    if missing:
        raise TrajectoryFormatError(number, f"has no {', '.join(missing)}")
    unknown = [key for key in members if key not in _KEYS]
    if unknown:
        raise TrajectoryFormatError(number, f"has the unknown key {_format_value(unknown[0])}")
    return members


def _parse_kind(members: JsonObject, number: int) -> EventKind:
    kind = members["kind"]
    if kind not in EVENT_KINDS:
        raise _format_error(number, "kind", kind, f"one of {', '.join(EVENT_KINDS)}")
    return kind


def _parse_text(members: JsonObject, key: str, number: int) -> str:
    value = members[key]
    if not isinstance(value, str):
        raise _format_error(number, key, value, "text")
    return value


def _format_error(number: int, key: str, value: JsonValue, allowed: str) -> TrajectoryFormatError:
    return TrajectoryFormatError(number, f"has {key} {_format_value(value)}; allowed: {allowed}")


def _format_value(value: JsonValue) -> str:
    text = encode_json(value).decode()
    return text if len(text) <= _MAX_SHOWN_CHARACTERS else f"{text[:_MAX_SHOWN_CHARACTERS]}…"
