"""Events of a run as server-sent events or JSON Lines: live, or from the store."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

import anyio

from nacre.gateway.routing import TextPattern
from nacre.gateway.sse import encode_event
from nacre.json_types import encode_json
from nacre.trajectory import TrajectoryFormatError, import_json_lines

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
    """All events from there on, as they were stored."""
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
    store: Store, run_id: str, *, most: int
) -> tuple[list[TrajectoryEvent], bool]:
    """The first `most` events of a run, and whether there are more."""
    events: list[TrajectoryEvent] = []
    async for page in stored_pages(store, run_id=run_id):
        for stored in page:
            if len(events) >= most:
                return events, True
            event = _event_from(stored)
            if event is not None:
                events.append(event)
    return events, False


async def json_lines(
    store: Store, *, run_id: str | None = None, session_id: str | None = None
) -> AsyncIterator[bytes]:
    """One event per line, as `nacre.trajectory` exports and reads them."""
    async for page in stored_pages(store, run_id=run_id, session_id=session_id):
        yield b"".join(encode_json(stored.event) + b"\n" for stored in page)


def _event_from(stored: StoredEvent) -> TrajectoryEvent | None:
    """None for what a later version of Nacre wrote: what is known is shown all the same."""
    try:
        return import_json_lines(encode_json(stored.event).decode())[0]
    except TrajectoryFormatError:
        return None


CURSOR_PATTERN: Final = TextPattern(
    pattern="(t?(-1|[0-9]{1,18}))?",
    words="the `id` of an event, such as 12 or t12, or -1 to begin with the first one",
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
"""One event, for the document of the API."""

_LOOK_AGAIN_SECONDS: Final = 1.0
_PAGE_EVENTS: Final = 500


@dataclass(frozen=True, kw_only=True, slots=True)
class Cursor:
    """After which event a reader goes on. The two numberings have nothing to do with each other."""

    place: Literal["feed", "trajectory"] = "feed"
    number: int = -1

    def __str__(self) -> str:
        return f"{'t' if self.place == 'trajectory' else ''}{self.number}"


def cursor_from(last_event_id: str, after: str) -> Cursor:
    """What a browser sends when it connects again counts before what is in the address. Both fit
    the shape, or are empty."""
    text = last_event_id or after
    if not text:
        return Cursor()
    place = "trajectory" if text.startswith("t") else "feed"
    return Cursor(place=place, number=int(text.removeprefix("t")))


async def live_events(run: AgentRun, cursor: Cursor) -> AsyncGenerator[bytes]:
    """What comes after the cursor, to the end of the run."""
    after = cursor.number if cursor.place == "feed" else -1
    async for event in run.events.follow(after):
        if event.sequence > after + 1:
            # The feed was full, and let go of its first events.
            yield encode_event({"count": event.sequence - after - 1}, kind="events.dropped")
        after = event.sequence
        yield encode_event(event.to_json(), kind=event.kind, event_id=str(event.sequence))


async def stored_events(
    state: GatewayState, turn: TurnRecord, cursor: Cursor
) -> AsyncGenerator[bytes]:
    """The trajectory of a turn that is not in memory any more, or runs in another gateway."""
    store = state.system.store
    after = cursor.number
    if cursor.place == "feed":
        after = -1
        yield encode_event({"runId": turn.run_id, "source": "trajectory"}, kind="replay.started")
    while True:
        events = await store.events(run_id=turn.run_id, after=after, limit=_PAGE_EVENTS)
        for stored in events:
            after = stored.number
            shown = Cursor(place="trajectory", number=after)
            yield encode_event(
                _as_run_event(stored), kind=str(stored.event.get("kind")), event_id=str(shown)
            )
        if events:
            continue
        if turn.status != "running":
            yield encode_event(_ending(turn), kind=f"run.{turn.status}")
            return
        if state.is_closing:
            yield encode_event({"reason": "the gateway is shutting down"}, kind="stream.closed")
            return
        await anyio.sleep(_LOOK_AGAIN_SECONDS)
        turn = await store.turn(turn.run_id) or turn


def _as_run_event(stored: StoredEvent) -> JsonObject:
    """With the members that live events have."""
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


def _ending(turn: TurnRecord) -> JsonObject:
    data: JsonObject = {"usage": turn.usage.to_json(), "model": turn.model}
    if turn.error:
        data["error"] = turn.error
    if "errorCode" in turn.data:
        data["errorCode"] = turn.data["errorCode"]
    return {"time": turn.ended, "kind": f"run.{turn.status}", "data": data}
