"""Keeps what a run did, in order and redacted, within a bound on memory."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Final

from nacre.telemetry import Redaction
from nacre.trajectory.events import TrajectoryEvent

if TYPE_CHECKING:
    from collections.abc import Callable

    from nacre.json_types import JsonObject, JsonValue
    from nacre.run_context import RunContext
    from nacre.trajectory.events import EventKind

logger = logging.getLogger(__name__)

# What an event and its first few members take, measured.
_BYTES_PER_EVENT: Final = 600
_MAX_BYTES: Final = 128 * 1024 * 1024


class TrajectoryRecorder:
    """The record of one run, append-only. When it is full, the oldest events go and are counted.

    May be written to from any thread; listeners are called in the thread that writes.
    """

    def __init__(
        self,
        context: RunContext,
        *,
        redaction: Redaction | None = None,
        max_events: int = 100_000,
        max_bytes: int = _MAX_BYTES,
    ) -> None:
        self.context = context
        self.dropped = 0
        """How many of the oldest events are gone."""
        self._redaction = Redaction() if redaction is None else redaction
        self._max_events = max(1, max_events)
        self._max_bytes = max_bytes
        self._bytes = 0
        self._next_sequence = 0
        self._events: deque[tuple[TrajectoryEvent, int]] = deque()
        self._listeners: tuple[Callable[[TrajectoryEvent], None], ...] = ()
        self._lock = threading.Lock()
        self.record("run.started", data=_run_data(context))

    @property
    def events(self) -> tuple[TrajectoryEvent, ...]:
        with self._lock:
            return tuple(event for event, _ in self._events)

    def record(
        self,
        kind: EventKind,
        *,
        call_id: str = "",
        parent_id: str = "",
        data: JsonObject | None = None,
    ) -> None:
        """Add an event with a redacted copy of `data`. Never raises for what the data is."""
        kept, size = self._redact_data(data) if data else ({}, 0)
        with self._lock:
            event = TrajectoryEvent(
                sequence=self._next_sequence,
                time=time.time(),
                kind=kind,
                call_id=call_id,
                parent_id=parent_id,
                data=kept,
            )
            self._next_sequence += 1
            self._append(event, size + _BYTES_PER_EVENT)
        for listener in self._listeners:
            self._notify(listener, event)

    def subscribe(self, listener: Callable[[TrajectoryEvent], None]) -> Callable[[], None]:
        """Have every event from now on told as it is recorded; call what is returned to stop."""
        # Wrapped, so that one listener may subscribe twice and stop once.
        subscription = _Subscription(listener)
        with self._lock:
            self._listeners = (*self._listeners, subscription)

        def unsubscribe() -> None:
            with self._lock:
                self._listeners = tuple(
                    other for other in self._listeners if other is not subscription
                )

        return unsubscribe

    def _append(self, event: TrajectoryEvent, size: int) -> None:
        self._events.append((event, size))
        self._bytes += size
        # The newest stays, however large.
        while len(self._events) > self._max_events or (
            self._bytes > self._max_bytes and len(self._events) > 1
        ):
            self._bytes -= self._events.popleft()[1]
            self.dropped += 1

    def _redact_data(self, data: JsonObject) -> tuple[JsonObject, int]:
        kept: JsonObject = {}
        total = 0
        for key, value in data.items():
            try:
                # Each member on its own: a large result must not push out the outcome beside it.
                kept[key], size = self._redact_member(key, value)
            except Exception:
                logger.exception("a %s cannot be recorded under %r", type(value).__name__, key)
                kept[key], size = f"[{type(value).__name__}, cannot be recorded]", 0
            total += size
        return kept, total

    def _redact_member(self, key: str, value: JsonValue) -> tuple[JsonValue, int]:
        if key == "input" and not self._redaction.keep_inputs:
            return self._redaction.input(value), 0
        if isinstance(value, str):
            text = self._redaction.text(value)
            return text, len(text)
        return self._redaction.sized_value(value)

    def _notify(self, listener: Callable[[TrajectoryEvent], None], event: TrajectoryEvent) -> None:
        try:
            listener(event)
        except Exception:
            logger.exception("a listener of the trajectory failed on %s", event.kind)


class _Subscription:
    """A listener with an identity of its own."""

    __slots__ = ("_listener",)

    def __init__(self, listener: Callable[[TrajectoryEvent], None]) -> None:
        self._listener = listener

    def __call__(self, event: TrajectoryEvent) -> None:
        self._listener(event)


def _run_data(context: RunContext) -> JsonObject:
    identity: JsonObject = {
        "agentId": context.agent_id,
        "sessionId": context.session_id,
        "sessionKey": context.session_key,
        "runId": context.run_id,
        "sender": context.sender,
        "channel": context.channel,
    }
    return {key: value for key, value in identity.items() if value}
