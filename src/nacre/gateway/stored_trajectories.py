"""Trajectories as the database has them: read in pages, whole or as lines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from nacre.json_types import encode_json
from nacre.trajectory import TrajectoryFormatError, import_json_lines

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from nacre.storage import Store, StoredEvent
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
