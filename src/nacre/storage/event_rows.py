"""Events of trajectories in the database, in the order in which they came."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import insert, select

from nacre.storage.columns import is_storable, json_object, json_text, storable_id, storable_key
from nacre.storage.records import StoredEvent
from nacre.storage.schema import events

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy.engine import Connection

    from nacre.json_types import JsonObject
    from nacre.storage.database import Database


class EventRows:
    """Append-only."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, run_id: str, session_id: str, added: Sequence[JsonObject]) -> None:
        storable_id(run_id, "the run id")
        storable_key(session_id, "the session id")
        texts = event_texts(run_id, added)
        if texts:
            await self._database.write(lambda it: write_events(it, run_id, session_id, texts))

    async def find(
        self, *, run_id: str | None, session_id: str | None, after: int, limit: int
    ) -> list[StoredEvent]:
        if not is_storable(run_id or "") or not is_storable(session_id or ""):
            return []
        query = select(events).where(events.c.number > after)
        if run_id is not None:
            query = query.where(events.c.run_id == run_id)
        if session_id is not None:
            query = query.where(events.c.session_id == session_id)
        query = query.order_by(events.c.number).limit(limit)

        def work(connection: Connection) -> list[StoredEvent]:
            return [
                StoredEvent(
                    number=row.number,
                    run_id=row.run_id,
                    session_id=row.session_id,
                    event=json_object(row.event, f"the event {row.number}"),
                )
                for row in connection.execute(query)
            ]

        return await self._database.read(work)


def event_texts(run_id: str, added: Sequence[JsonObject]) -> list[str]:
    return [json_text(event, f"an event of {run_id}") for event in added]


def write_events(
    connection: Connection, run_id: str, session_id: str, texts: Sequence[str]
) -> None:
    """Within a transaction, as `event_texts` gives them."""
    rows = [{"run_id": run_id, "session_id": session_id, "event": text} for text in texts]
    if rows:
        connection.execute(insert(events), rows)
