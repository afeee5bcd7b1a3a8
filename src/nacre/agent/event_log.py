"""The event log of a run: numbered events that any number of readers can follow and resume."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, get_args

import anyio

from nacre.json_types import encode_json

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from nacre.json_types import JsonObject


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
    "call.started",
    "call.updated",
    "call.changed",
    "call.ended",
    "cell.started",
    "cell.output",
    "cell.suspended",
    "cell.resumed",
    "cell.ended",
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

_MAX_EVENTS: Final = 20_000
_MAX_BYTES: Final = 16 * 1024 * 1024
# What an event takes besides its text, roughly.
_BYTES_PER_EVENT: Final = 400


@dataclass(frozen=True, kw_only=True, slots=True)
class RunEvent:
    """One thing that happened. Numbers have no gaps, except before what a full feed let go."""

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


class RunEventLog:
    """Append-only. Adding never waits for a reader; when it is full, the oldest events go."""

    def __init__(self, *, most_events: int = _MAX_EVENTS, most_bytes: int = _MAX_BYTES) -> None:
        self.dropped = 0
        """How many of the oldest events are gone."""
        self.bytes_held = 0
        self._most_events = most_events
        self._most_bytes = most_bytes
        self._events: deque[tuple[RunEvent, int]] = deque()
        self._next_sequence = 0
        self._change = anyio.Event()
        self._listeners: dict[Callable[[RunEvent], None], None] = {}
        self.is_closed = False

    @property
    def events(self) -> tuple[RunEvent, ...]:
        """Those that are still held, oldest first."""
        return tuple(event for event, _ in self._events)

    @property
    def last_sequence(self) -> int:
        """The number of the newest event; -1 before the first."""
        return self._next_sequence - 1

    def add(self, kind: RunEventKind, data: JsonObject | None = None) -> None:
        """Tell all readers; what comes after the end is not told."""
        if self.is_closed:
            return
        data = data or {}
        event = RunEvent(sequence=self._next_sequence, time=time.time(), kind=kind, data=data)
        self._next_sequence += 1
        size = _BYTES_PER_EVENT + len(encode_json(data))
        self._events.append((event, size))
        self.bytes_held += size
        while len(self._events) > self._most_events or (
            self.bytes_held > self._most_bytes and len(self._events) > 1
        ):
            self.bytes_held -= self._events.popleft()[1]
            self.dropped += 1
        for listener in list(self._listeners):
            listener(event)
        self._notify_readers()

    def listen(self, listener: Callable[[RunEvent], None]) -> None:
        """Have every event from now on told at once; for what counts them and may not raise."""
        self._listeners[listener] = None

    def close(self) -> None:
        """No more events: readers end when they have read what is there."""
        self.is_closed = True
        self._notify_readers()

    async def follow(self, after: int = -1) -> AsyncIterator[RunEvent]:
        """Every event with a higher number, those to come included; ends when the feed is closed.

        A reader that was away for long finds the first events gone: the numbers show it.
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
        # Counted from the newest: a reader that keeps up must not walk the whole feed each time.
        wanted = min(self.last_sequence - sequence, len(self._events))
        return [self._events[index][0] for index in range(-wanted, 0)]

    def _notify_readers(self) -> None:
        change, self._change = self._change, anyio.Event()
        change.set()
