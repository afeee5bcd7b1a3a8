"""Events for clients: server-sent events, and one numbered log of all events for `/api/events`."""

from __future__ import annotations

import logging
import secrets
import time
from contextlib import aclosing, contextmanager, nullcontext
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING, Final

import anyio
from starlette.responses import StreamingResponse

from nacre.gateway.errors import ApiError, error_response
from nacre.json_types import encode_json

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Generator, Iterable, Mapping

    from starlette.types import Receive, Scope, Send

    from nacre.agent import AgentRun, AgentService
    from nacre.json_types import JsonObject
    from nacre.storage import SessionChange, Store
    from nacre.trajectory import RunEvent

logger = logging.getLogger(__name__)

_HEARTBEAT_SECONDS: Final = 10.0
_HEARTBEAT: Final = b": still working\n\n"
# A client that reads nothing for so long is considered gone.
_SEND_SECONDS: Final = 60.0

_MAX_EVENTS: Final = 50_000
_MAX_BYTES: Final = 32 * 1024 * 1024
# The events that a reader takes at once.
_MAX_BATCH_BYTES: Final = 512 * 1024
# The approximate memory of an event without its text.
_BYTES_PER_EVENT: Final = 500
# After its last reader has left, the log continues for this time, so that the reader can resume.
_RESUME_SECONDS: Final = 300.0
_LIGHT_PREFIXES: Final = (
    "run.",
    "approval.",
    "input.",
    "client_call.",
    "config.",
    "server.",
    "session.",
)
_STATE_CHANGES: Final = frozenset(
    (
        "run.queued",
        "run.started",
        "run.waiting",
        "run.resumed",
        "run.completed",
        "run.failed",
        "run.aborted",
        "run.interrupted",
    )
)


def encode_event(data: JsonObject, *, kind: str = "", event_id: str = "") -> bytes:
    """Encode one event. JSON has no line ends, so the data is one line."""
    head = f"id: {event_id}\n" if event_id else ""
    head += f"event: {kind}\n" if kind else ""
    return b"%bdata: %b\n\n" % (head.encode(), encode_json(data))


class _ClientStalledError(Exception):
    """The client reads nothing."""


class EventStreamResponse(StreamingResponse):
    """Sends events, and heartbeats between them, until the last event or until the client leaves.

    With `error_event`, the response starts with the first event or heartbeat. An ApiError before
    that becomes an error response with its own status, and a later one becomes an event.
    """

    def __init__(
        self,
        events: AsyncGenerator[bytes],
        *,
        headers: Mapping[str, str] | None = None,
        error_event: Callable[[ApiError], bytes] | None = None,
        on_close: Callable[[], None] | None = None,
        heartbeat_seconds: float = _HEARTBEAT_SECONDS,
    ) -> None:
        fixed = {"cache-control": "no-store", "x-accel-buffering": "no"}
        super().__init__(
            events, media_type="text/event-stream", headers={**(headers or {}), **fixed}
        )
        self._events = events
        self._error_event = error_event
        self._on_close = on_close
        self._heartbeat_seconds = heartbeat_seconds
        self._lock = anyio.Lock()
        self._has_started = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        failure: ApiError | None = None
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(cancel_on_disconnect, receive, tasks.cancel_scope)
                tasks.start_soon(self._send_heartbeats, send)
                failure = await self._send_events(send)
                tasks.cancel_scope.cancel()
        except* _ClientStalledError:
            logger.info("a client of %s reads nothing; the stream was closed", scope["path"])
        finally:
            if self._on_close is not None:
                self._on_close()
        if failure is not None:
            await error_response(scope, failure)(scope, receive, send)

    async def _send_events(self, send: Send) -> ApiError | None:
        """Send all events, or return the error that came before the first."""
        if self._error_event is None:
            await self._write(send, b"")
        try:
            async with aclosing(self._events) as events:
                async for event in events:
                    await self._write(send, event)
        except ApiError as error:
            if self._error_event is None:
                raise
            async with self._lock:
                if not self._has_started:
                    self._has_started = True
                    return error
            await self._write(send, self._error_event(error))
        await self._write(send, b"", is_last=True)
        return None

    async def _send_heartbeats(self, send: Send) -> None:
        while True:
            await anyio.sleep(self._heartbeat_seconds)
            await self._write(send, _HEARTBEAT)

    async def _write(self, send: Send, data: bytes, *, is_last: bool = False) -> None:
        async with self._lock:
            with anyio.move_on_after(_SEND_SECONDS):
                if not self._has_started:
                    self._has_started = True
                    start = {"type": "http.response.start", "status": 200}
                    await send({**start, "headers": self.raw_headers})
                body = {"type": "http.response.body", "body": data}
                await send({**body, "more_body": not is_last})
                return
            raise _ClientStalledError


async def cancel_on_disconnect(receive: Receive, scope: anyio.CancelScope) -> None:
    """Cancel the scope when the client closes the connection."""
    while (await receive())["type"] != "http.disconnect":
        pass
    scope.cancel()


@dataclass(kw_only=True, slots=True)
class HubEvent:
    """An event of any run or session, or of the gateway itself."""

    number: int
    kind: str
    time: float
    session_id: str = ""
    run_id: str = ""
    sequence: int = -1
    """The number of the event in its run; -1 if it is not an event of a run."""
    data: JsonObject
    encoded: bytes = b""
    """Empty for a change of a session until its data is read, when the event is sent."""
    size: int = 0
    """The approximate memory in bytes."""

    @property
    def is_light(self) -> bool:
        """Whether all readers get the event, not only those of its session."""
        return self.kind.startswith(_LIGHT_PREFIXES)

    def to_json(self) -> JsonObject:
        return {
            "kind": self.kind,
            "time": self.time,
            "sessionId": self.session_id,
            "runId": self.run_id,
            "sequence": self.sequence,
            "data": self.data,
        }


class EventHub:
    """Collects the events of all runs and the changes of sessions. It never waits for a reader:
    when the log is full, the oldest events are dropped."""

    def __init__(
        self,
        agents: AgentService,
        store: Store,
        *,
        max_events: int = _MAX_EVENTS,
        max_bytes: int = _MAX_BYTES,
    ) -> None:
        self.epoch = secrets.token_hex(6)
        """Part of all ids. Numbers of another epoch mean nothing here."""
        self.last_number = 0
        self.is_closed = False
        self.bytes_held = 0
        self.session_lock = anyio.Lock()
        """For readers that read the data of a changed session."""
        self._max_events = max_events
        self._max_bytes = max_bytes
        self._events: dict[int, HubEvent] = {}
        self._first = 1
        self._readers = 0
        self._last_read = -_RESUME_SECONDS
        self._change = anyio.Event()
        agents.watch_runs(self._watch_run)
        self._remote = None if agents.shared is None else agents.shared.remote
        if self._remote is not None:
            self._remote.watch(self._watch_run)
        store.watch_sessions(self._add_session_change)

    # For readers.

    @contextmanager
    def log_events(self) -> Generator[None]:
        """Log events during the block, also those of other gateways. Without readers, nothing is
        logged."""
        self._readers += 1
        follow = nullcontext() if self._remote is None else self._remote.follow_all()
        try:
            with follow:
                yield
        finally:
            self._readers -= 1
            self._last_read = time.monotonic()

    @property
    def change(self) -> anyio.Event:
        """Set when there are new events."""
        return self._change

    def events_after(self, number: int) -> list[HubEvent] | None:
        """The next events, up to a size; None if some of them were dropped."""
        if number + 1 < self._first:
            return None
        found: list[HubEvent] = []
        size = 0
        while number < self.last_number and size < _MAX_BATCH_BYTES:
            number += 1
            found.append(self._events[number])
            size += found[-1].size
        return found

    def event_id(self, number: int) -> str:
        return f"{self.epoch}.{number}"

    def parse_id(self, event_id: str) -> int | None:
        """The number of an id; None if the reader cannot continue after that event."""
        epoch, _, digits = event_id.partition(".")
        if epoch != self.epoch or len(digits) > 18 or not digits.isascii() or not digits.isdigit():
            return None
        number = int(digits)
        return number if self._first - 1 <= number <= self.last_number else None

    def encode(self, event: HubEvent) -> bytes:
        event_id = self.event_id(event.number)
        return encode_event(event.to_json(), kind=event.kind, event_id=event_id)

    # For sources of events.

    def publish(self, kind: str, data: JsonObject) -> None:
        """Add an event of the gateway itself."""
        self._add(HubEvent(number=0, kind=kind, time=time.time(), data=data))

    def close(self) -> None:
        """End the streams of all readers."""
        self.is_closed = True
        self._notify_readers()

    def _watch_run(self, run: AgentRun) -> None:
        def add(event: RunEvent) -> None:
            self._add(run_event(run, event))
            if event.kind in _STATE_CHANGES and run.is_stored and run.session_id:
                self._add_session_change(run.session_id, "updated")

        run.events.subscribe(add)

    def _add_session_change(self, session_id: str, change: SessionChange) -> None:
        self._add(
            HubEvent(
                number=0,
                kind=f"session.{change}",
                time=time.time(),
                session_id=session_id,
                data={"id": session_id},
            ),
            is_complete=change == "deleted",
        )

    def _add(self, event: HubEvent, *, is_complete: bool = True) -> None:
        self.last_number += 1
        if not self._readers and time.monotonic() - self._last_read >= _RESUME_SECONDS:
            self._events.clear()
            self.bytes_held = 0
            self._first = self.last_number + 1
            return
        event.number = self.last_number
        if is_complete:
            event.encoded = self.encode(event)
        event.size = _BYTES_PER_EVENT + len(event.encoded)
        self._events[event.number] = event
        self.bytes_held += event.size
        while len(self._events) > self._max_events or self.bytes_held > self._max_bytes:
            self.bytes_held -= self._events.pop(self._first).size
            self._first += 1
        self._notify_readers()

    def _notify_readers(self) -> None:
        change, self._change = self._change, anyio.Event()
        change.set()


def run_event(run: AgentRun, event: RunEvent) -> HubEvent:
    """Convert an event of a run. It has no number yet."""
    return HubEvent(
        number=0,
        kind=event.kind,
        time=event.time,
        session_id=run.session_id,
        run_id=run.id,
        sequence=event.sequence,
        data=event.data,
    )


_DELTAS: Final = frozenset(("text.delta", "private.delta", "thinking.delta"))


def merge_deltas(events: Iterable[HubEvent]) -> list[HubEvent]:
    """Join the texts of deltas of a run that follow one another. The joined event has the numbers
    of the last one."""
    merged: list[HubEvent] = []
    for (kind, _), group in groupby(events, lambda it: (it.kind, it.run_id)):
        found = list(group)
        if kind in _DELTAS and len(found) > 1:
            text = "".join(str(it.data.get("text", "")) for it in found)
            found = [replace(found[-1], data={**found[-1].data, "text": text}, encoded=b"")]
        merged += found
    return merged


def merge_session_changes(events: list[HubEvent]) -> list[HubEvent]:
    """Join the changes of a session to one event, in the place of the first."""
    kinds: dict[str, list[str]] = {}
    for event in events:
        if event.kind.startswith("session."):
            kinds.setdefault(event.session_id, []).append(event.kind)
    merged: list[HubEvent] = []
    for event in events:
        if not event.kind.startswith("session."):
            merged.append(event)
        elif found := kinds.pop(event.session_id, None):
            # Its data is read again: what another reader has read may be older.
            kind = found[-1] if found[-1] == "session.deleted" else found[0]
            merged.append(event if len(found) == 1 else replace(event, kind=kind, encoded=b""))
    return merged
