"""Events of a run, live or from the store, as server-sent events or JSON Lines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

import anyio

from nacre.gateway.events import encode_event
from nacre.gateway.routing import TextPattern
from nacre.json_types import encode_json
from nacre.trajectory import TrajectoryFormatError, parse_event

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator

    from nacre.agent import AgentRun
    from nacre.gateway.routing import GatewayState
    from nacre.json_types import JsonObject
    from nacre.storage import Store, StoredEvent, TurnRecord
    from nacre.trajectory import TrajectoryEvent


_EXPORT_PAGE_EVENTS: Final = 1_000


async def stored_pages(
    store: Store, *, run_id: str | None = None, session_id: str | None = None, after: int = -1
) -> AsyncIterator[list[StoredEvent]]:
    """Read all events after a number, in pages."""
    while True:
        page = await store.events(
            run_id=run_id, session_id=session_id, after=after, limit=_EXPORT_PAGE_EVENTS
        )
        if page:
            yield page
        if len(page) < _EXPORT_PAGE_EVENTS:
            return
        after = page[-1].number


async def events_of_run(
    store: Store, run_id: str, *, max_events: int
) -> tuple[list[TrajectoryEvent], bool]:
    """The first `max_events` events of a run, and whether there are more."""
    events: list[TrajectoryEvent] = []
    async for page in stored_pages(store, run_id=run_id):
        for stored in page:
            if len(events) >= max_events:
                return events, True
            event = _parse_event(stored)
            if event is not None:
                events.append(event)
    return events, False


async def json_lines(
    store: Store, *, run_id: str | None = None, session_id: str | None = None
) -> AsyncIterator[bytes]:
    """One event per line, in the format of `nacre.trajectory`."""
    async for page in stored_pages(store, run_id=run_id, session_id=session_id):
        yield b"".join(encode_json(stored.event) + b"\n" for stored in page)


def _parse_event(stored: StoredEvent) -> TrajectoryEvent | None:
    """The event; None for a kind that only a later version of Nacre knows."""
    try:
        return parse_event(stored.event)
    except TrajectoryFormatError:
        return None


CURSOR_PATTERN: Final = TextPattern(
    pattern="(t?(-1|[0-9]{1,18}))?",
    words="the `id` of an event, such as 12 or t12, or -1 for the start",
)
EVENT_SCHEMA: Final = {
    "type": "object",
    "required": ["event", "data"],
    "properties": {
        "id": {"type": "string"},
        "event": {"type": "string"},
        "data": {"type": "string", "contentMediaType": "application/json"},
    },
}
"""The JSON Schema of one event, for the OpenAPI document."""

_POLL_SECONDS: Final = 1.0
_PAGE_EVENTS: Final = 500


@dataclass(frozen=True, kw_only=True, slots=True)
class Cursor:
    """The event after which to continue. Live and stored events have separate numbers."""

    source: Literal["feed", "trajectory"] = "feed"
    number: int = -1

    def __str__(self) -> str:
        return f"{'t' if self.source == 'trajectory' else ''}{self.number}"


def parse_cursor(last_event_id: str, after: str) -> Cursor:
    """Parse the cursor. `Last-Event-ID`, which a browser sends when it reconnects, takes
    precedence. Both are valid or empty."""
    text = last_event_id or after
    if not text:
        return Cursor()
    source = "trajectory" if text.startswith("t") else "feed"
    return Cursor(source=source, number=int(text.removeprefix("t")))


async def live_events(run: AgentRun, cursor: Cursor) -> AsyncGenerator[bytes]:
    """The events after the cursor, until the run ends."""
    after = cursor.number if cursor.source == "feed" else -1
    async for event in run.events.follow(after):
        if missing := run.events.count_missing(after, event.sequence):
            # The log was full and dropped its first events.
            yield encode_event({"count": missing}, kind="events.dropped")
        after = event.sequence
        yield encode_event(event.to_json(), kind=event.kind, event_id=str(event.sequence))


async def stored_events(
    state: GatewayState, turn: TurnRecord, cursor: Cursor
) -> AsyncGenerator[bytes]:
    """The stored events of a turn that is not in memory, or runs in another gateway."""
    store = state.system.store
    after = cursor.number
    if cursor.source == "feed":
        after = -1
        yield encode_event({"runId": turn.run_id, "source": "trajectory"}, kind="replay.started")
    while True:
        events = await store.events(run_id=turn.run_id, after=after, limit=_PAGE_EVENTS)
        for stored in events:
            after = stored.number
            shown = Cursor(source="trajectory", number=after)
            yield encode_event(
                _to_run_event(stored), kind=str(stored.event.get("kind")), event_id=str(shown)
            )
        if events:
            continue
        if turn.status != "running":
            yield encode_event(_end_event(turn), kind=f"run.{turn.status}")
            return
        if state.is_closing:
            yield encode_event({"reason": "the gateway is shutting down"}, kind="stream.closed")
            return
        await anyio.sleep(_POLL_SECONDS)
        turn = await store.turn(turn.run_id) or turn


def _to_run_event(stored: StoredEvent) -> JsonObject:
    """Convert to the format of live events."""
    event = stored.event
    data = event.get("data")
    shown: JsonObject = dict(data) if isinstance(data, dict) else {}
    for key in ("toolCallId", "parentToolCallId"):
        if event.get(key):
            shown[key] = event[key]
    return {
        "sequence": event.get("sequence"),
        "time": event.get("time"),
        "kind": event.get("kind"),
        "data": shown,
    }


def _end_event(turn: TurnRecord) -> JsonObject:
    data: JsonObject = {"usage": turn.usage.to_json(), "model": turn.model}
    if turn.error:
        data["error"] = turn.error
    if "errorCode" in turn.data:
        data["errorCode"] = turn.data["errorCode"]
    return {"time": turn.ended, "kind": f"run.{turn.status}", "data": data}
