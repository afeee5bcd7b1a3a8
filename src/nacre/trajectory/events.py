"""The events of runs and trajectories, their logs of limited size, and the JSON Lines format."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import deque
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Final, Generic, Literal, TypeVar, get_args

import anyio

from nacre.json_types import NotJsonError, decode_json, encode_json
from nacre.lazy_dataclasses import dataclass
from nacre.telemetry import Redaction

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence

    from nacre.json_types import JsonObject, JsonValue
    from nacre.run_context import RunContext

logger = logging.getLogger(__name__)

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
    "codex_app_server.request",
    "codex_app_server.notification",
    "codex_app_server.hook",
    "codex_app_server.lifecycle",
    "replay.catalog",
    "replay.bursts",
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
    "private.delta",
    "thinking.delta",
    "message.completed",
    "message.sent",
    "media.added",
    CallEventKind,
    "approval.requested",
    "approval.answered",
    "client_call.requested",
    "client_call.answered",
    "input.requested",
    "input.answered",
    "compaction.started",
    "compaction.ended",
    "server.unavailable",
    "codex_app_server.lifecycle",
    "codex_app_server.hook",
    "tool.unavailable",
    "context.failed",
    "run.completed",
    "run.failed",
    "run.aborted",
    "run.interrupted",
]
RUN_EVENT_KINDS: Final[tuple[RunEventKind, ...]] = get_args(RunEventKind)
_KEYS: Final = ("sequence", "time", "kind", "toolCallId", "parentToolCallId", "data")
_MAX_SHOWN_CHARACTERS: Final = 60
MAX_RUN_EVENTS: Final = 20_000
_MAX_BYTES: Final = 16 * 1024 * 1024
# The approximate memory of an event without its text.
_BYTES_PER_EVENT: Final = 400
# The measured memory of a trajectory event with a few members.
_BYTES_PER_TRAJECTORY_EVENT: Final = 600
_MAX_PAUSED_EVENTS: Final = 1_000
# More than one process adds to the log of a run.
_MAX_PROCESS_EVENTS: Final = 1_000_000
_MAX_TRAJECTORY_BYTES: Final = 128 * 1024 * 1024
# Members of the data of calls that contain ids, names and constants.
_NAMES: Final = frozenset({"toolId", "toolName", "source", "owner", "toolKind", "outcome"})
_MAX_CACHED_NAMES: Final = 256
# Calls that no cell made are not removed.
_MAX_EXACT_RESULTS: Final = 4096


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
        event = parse_event(_decode_line(line, number), line_number=number)
        if events and event.sequence <= events[-1].sequence:
            raise TrajectoryFormatError(
                number, f"has the sequence number {event.sequence} after {events[-1].sequence}"
            )
        events.append(event)
    return tuple(events)


def parse_event(value: JsonValue, *, line_number: int = 1) -> TrajectoryEvent:
    """Parse the JSON value of an event; raises TrajectoryFormatError if it is invalid."""
    number = line_number
    members = _check_members(value, number)
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


def _decode_line(line: str, number: int) -> JsonValue:
    try:
        return decode_json(line.encode("utf-8", "surrogatepass"))
    except NotJsonError as error:
        raise TrajectoryFormatError(number, f"cannot be read: {error}") from error


def _check_members(value: JsonValue, number: int) -> JsonObject:
    if not isinstance(value, dict):
        raise TrajectoryFormatError(number, "is not an object")
    missing = [key for key in _KEYS if key not in value]
    if missing:
        raise TrajectoryFormatError(number, f"has no {', '.join(missing)}")
    unknown = [key for key in value if key not in _KEYS]
    if unknown:
        raise TrajectoryFormatError(number, f"has the unknown key {_format_value(unknown[0])}")
    return value


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


_Event = TypeVar("_Event", RunEvent, TrajectoryEvent)


class EventLog(Generic[_Event]):
    """An append-only log; when it is full, the oldest events are dropped.

    Any thread may append events. Listeners are called in the thread that appends.
    """

    def __init__(self, *, max_events: int, max_bytes: int) -> None:
        self.dropped = 0
        """The number of dropped events."""
        self.bytes_held: int = 0
        self._max_events = max(1, max_events)
        self._max_bytes = max_bytes
        self._events: deque[tuple[_Event, int]] = deque()
        self._next_sequence = 0
        self._listeners: tuple[Callable[[_Event], None], ...] = ()
        self._lock = threading.Lock()

    @property
    def events(self) -> tuple[_Event, ...]:
        """The events in memory, oldest first."""
        with self._lock:
            return tuple(event for event, _ in self._events)

    @property
    def last_sequence(self) -> int:
        """The sequence number of the newest event; -1 if there is none."""
        return self._next_sequence - 1

    def subscribe(self, listener: Callable[[_Event], None]) -> Callable[[], None]:
        """Call `listener` with each new event; call the returned function to unsubscribe."""

        # A wrapper, so that a listener that subscribed twice can unsubscribe once.
        def subscription(event: _Event) -> None:
            listener(event)

        with self._lock:
            self._listeners = (*self._listeners, subscription)

        def unsubscribe() -> None:
            with self._lock:
                self._listeners = tuple(
                    other for other in self._listeners if other is not subscription
                )

        return unsubscribe

    def _append(self, make_event: Callable[[int, float], _Event], size: int) -> None:
        """Append the event that `make_event` returns for a sequence number and a time."""
        with self._lock:
            event = make_event(self._next_sequence, time.time())
            self._next_sequence += 1
            self._events.append((event, size))
            self.bytes_held += size
            self._evict()
        for listener in self._listeners:
            try:
                listener(event)
            except Exception:
                logger.exception("a listener of an event log failed on %s", event.kind)

    def _evict(self) -> None:
        # The newest event stays, whatever its size.
        while len(self._events) > self._max_events or (
            self.bytes_held > self._max_bytes and len(self._events) > 1
        ):
            self.bytes_held -= self._events.popleft()[1]
            self.dropped += 1


def continue_sequence(last: int) -> int:
    """The first number of a log that another process continues after `last`, the last number that
    it knows, or -1.

    That process does not know which numbers were used after it was last stored, so it leaves out
    more than one process uses.
    """
    return (max(0, last) // _MAX_PROCESS_EVENTS + 1) * _MAX_PROCESS_EVENTS


def _get_event(event: RunEvent, _sequence: int, _now: float) -> RunEvent:
    return event


class RunEventLog(EventLog[RunEvent]):
    """The events of one run, which any number of readers can follow and resume.

    Adding an event never waits for a reader. Use it on the event loop only.
    """

    def __init__(self, *, max_events: int = MAX_RUN_EVENTS, max_bytes: int = _MAX_BYTES) -> None:
        super().__init__(max_events=max_events, max_bytes=max_bytes)
        self.is_closed = False
        self._pauses: set[str] = set()
        self._paused_events: deque[tuple[RunEvent, int]] = deque()
        self._change = anyio.Event()
        self._left_out: list[range] = []

    def restore(self, events: Sequence[RunEvent], *, last: int) -> None:
        """Continue the log of another process, whose last known event has the number `last`."""
        for event in events:
            size = _BYTES_PER_EVENT + len(encode_json(event.data))
            self._note_numbers_left_out(event.sequence)
            self._next_sequence = event.sequence + 1
            self._events.append((event, size))
            self.bytes_held += size
        self._next_sequence = continue_sequence(last)
        self._left_out.append(range(last + 1, self._next_sequence))

    def count_missing(self, after: int, sequence: int) -> int:
        """How many events between two numbers were dropped."""
        missing = sequence - after - 1
        for numbers in self._left_out:
            missing -= max(0, min(sequence, numbers.stop) - max(after + 1, numbers.start))
        return missing

    def mirror(self, event: RunEvent) -> None:
        """Append an event of the same run in another process, with its number. An event that the
        log has already is ignored."""
        if self.is_closed or event.sequence < self._next_sequence:
            return
        self._note_numbers_left_out(event.sequence)
        self._next_sequence = event.sequence
        size = _BYTES_PER_EVENT + len(encode_json(event.data))
        self._append(partial(_get_event, event), size)
        self._notify_readers()

    def _note_numbers_left_out(self, sequence: int) -> None:
        """The next event has this number; it may be the first one of another process."""
        if sequence > self._next_sequence and sequence % _MAX_PROCESS_EVENTS == 0:
            self._left_out.append(range(self._next_sequence, sequence))

    def add(self, kind: RunEventKind, data: JsonObject | None = None) -> None:
        """Append an event; does nothing after `close`."""
        if self.is_closed:
            return
        data = data or {}
        size = _BYTES_PER_EVENT + len(encode_json(data))
        if self._pauses or self._paused_events:
            number = self._next_sequence + len(self._paused_events)
            event = RunEvent(sequence=number, time=time.time(), kind=kind, data=data)
            self._paused_events.append((event, size))
            if len(self._paused_events) > _MAX_PAUSED_EVENTS:
                self._pauses.clear()
                self._show_paused()
            return
        self._append(
            lambda sequence, now: RunEvent(sequence=sequence, time=now, kind=kind, data=data), size
        )
        self._notify_readers()

    @property
    def is_paused(self) -> bool:
        """Whether new events do not reach readers and listeners yet."""
        return bool(self._pauses)

    def is_paused_for(self, reason: str) -> bool:
        return reason in self._pauses

    @property
    def paused_events(self) -> tuple[RunEvent, ...]:
        """The events that were added during a pause, with their numbers."""
        return tuple(event for event, _ in self._paused_events)

    def pause(self, reason: str) -> None:
        """Show no new events until `resume` has been called for each reason, or they are many."""
        self._pauses.add(reason)

    def resume(self, reason: str) -> None:
        """End a pause, if there is one for this reason."""
        self._pauses.discard(reason)
        if not self._pauses:
            self._show_paused()

    def drop_paused(self) -> None:
        """End all pauses, and forget their events: another process shows them."""
        self._pauses.clear()
        self._paused_events.clear()

    def _show_paused(self) -> None:
        while self._paused_events:
            # A listener may add an event, which is the last one then.
            event, size = self._paused_events.popleft()
            self._append(partial(_get_event, event), size)
        self._notify_readers()

    def close(self) -> None:
        """Accept no more events. Readers end when they have read the existing ones."""
        self.is_closed = True
        self._pauses.clear()
        self._show_paused()

    async def follow(self, after: int = -1) -> AsyncIterator[RunEvent]:
        """All events with a higher sequence number, until the log is closed.

        If events were dropped before they were read, the sequence numbers have a gap.
        """
        while True:
            change = self._change
            for event in self._events_after(after):
                after = event.sequence
                yield event
            if self.is_closed and after >= self.last_sequence:
                return
            if change is self._change:
                await change.wait()

    def _events_after(self, sequence: int) -> list[RunEvent]:
        # Indexed from the end, so that a reader without backlog does not scan the whole log.
        wanted = min(self.last_sequence - sequence, len(self._events))
        found = [self._events[index][0] for index in range(-wanted, 0)]
        # The numbers of a continued log have a gap.
        return [event for event in found if event.sequence > sequence]

    def _notify_readers(self) -> None:
        change, self._change = self._change, anyio.Event()
        change.set()


class TrajectoryRecorder(EventLog[TrajectoryEvent]):
    """The trajectory of one run; its first event is `run.started`."""

    def __init__(
        self,
        context: RunContext,
        *,
        redaction: Redaction | None = None,
        max_events: int = 100_000,
        max_bytes: int = _MAX_TRAJECTORY_BYTES,
        after: int | None = None,
    ) -> None:
        """`after` is the last known number of a trajectory that another process has begun."""
        super().__init__(max_events=max_events, max_bytes=max_bytes)
        self.context = context
        self.wait_until_stored: Callable[[], Awaitable[None]] = _return_at_once
        """Returns when all events so far are stored, and raises StorageError; set by their
        writer. A recorder without a store returns at once."""
        self.redaction = Redaction() if redaction is None else redaction
        self._redact_name = lru_cache(maxsize=_MAX_CACHED_NAMES)(self.redaction.text)
        self.exact_results: dict[str, None] = {}
        """The ids of the last nested calls whose recorded result is exact: not redacted, and not
        cut. Their cell removes them."""
        self.recorded_catalogs: set[str] = set()
        """The digests of the catalogs in this trajectory."""
        if after is None:
            self.record("run.started", data=_run_data(context))
        else:
            self._next_sequence = continue_sequence(after)

    def record(
        self,
        kind: EventKind,
        *,
        call_id: str = "",
        parent_id: str = "",
        data: JsonObject | None = None,
        redacted_before: tuple[JsonObject, int] | None = None,
    ) -> None:
        """Append an event with a redacted copy of `data`. Never raises because of the data.

        `redacted_before` are members that many events share, with their size: see `redact`.
        """
        redacted, size, is_result_exact = self._redact_data(data) if data else ({}, 0, False)
        if redacted_before is not None:
            redacted = {**redacted_before[0], **redacted}
            size += redacted_before[1]
        if is_result_exact and kind == "call.ended" and parent_id:
            if len(self.exact_results) >= _MAX_EXACT_RESULTS:
                self.exact_results.clear()
            self.exact_results[call_id] = None
        self.record_redacted(kind, redacted, size=size, call_id=call_id, parent_id=parent_id)

    def redact(self, data: JsonObject) -> tuple[JsonObject, int]:
        """The redacted data, and about how many bytes it takes."""
        redacted, size, _ = self._redact_data(data)
        return redacted, size

    def record_redacted(
        self,
        kind: EventKind,
        data: JsonObject,
        *,
        size: int,
        call_id: str = "",
        parent_id: str = "",
    ) -> None:
        """Append an event whose data was redacted with `redaction`, and has about this size."""
        self._append(
            lambda sequence, now: TrajectoryEvent(
                sequence=sequence,
                time=now,
                kind=kind,
                call_id=call_id,
                parent_id=parent_id,
                data=data,
            ),
            size + _BYTES_PER_TRAJECTORY_EVENT,
        )

    def _redact_data(self, data: JsonObject) -> tuple[JsonObject, int, bool]:
        """The redacted data, its size, and whether its result is exact."""
        redacted: JsonObject = {}
        total = 0
        is_result_exact = False
        for key, value in data.items():
            if type(value) is str and key in _NAMES:
                # The same few ids and names occur in every call.
                redacted[key] = text = self._redact_name(value)
                total += len(text)
                continue
            try:
                # Each member has its own limits, so that a large result does not displace others.
                redacted[key], size, is_exact = self._redact_member(key, value)
                is_result_exact = is_result_exact or (is_exact and key == "result")
            except Exception:
                logger.exception("a %s cannot be recorded under %r", type(value).__name__, key)
                redacted[key], size = f"[{type(value).__name__}, cannot be recorded]", 0
            total += size
        return redacted, total, is_result_exact

    def _redact_member(self, key: str, value: JsonValue) -> tuple[JsonValue, int, bool]:
        if key == "input" and not self.redaction.keep_inputs:
            return self.redaction.input(value), 0, False
        if isinstance(value, str):
            text = self.redaction.text(value)
            return text, len(text), text == value
        if type(value) is float and math.isfinite(value):
            return value, 0, True
        return self.redaction.sized_value(value)


async def _return_at_once() -> None:
    pass


def _run_data(context: RunContext) -> JsonObject:
    identity: JsonObject = {
        "agentId": context.agent_id,
        "sessionId": context.session_id,
        "sessionKey": context.session_key,
        "runId": context.run_id,
        "sender": context.sender,
        "channel": context.channel,
        "trigger": context.trigger,
    }
    return {key: value for key, value in identity.items() if value}
