"""Sessions in the database."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import and_, select, tuple_

from nacre.errors import SessionError
from nacre.storage.columns import is_storable, storable_id, storable_key, storable_text
from nacre.storage.database import now
from nacre.storage.records import SessionRecord
from nacre.storage.schema import sessions

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement
    from sqlalchemy.engine import Connection, RowMapping

    from nacre.storage.database import Database


class SessionRows:
    """Made once, never removed; turns count them up."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def by_id(self, session_id: str) -> SessionRecord | None:
        if not is_storable(session_id):
            return None
        return await self._database.read(lambda it: _one(it, sessions.c.id == session_id))

    async def by_key(self, agent_id: str, key: str) -> SessionRecord | None:
        if not key or not is_storable(agent_id) or not is_storable(key):
            return None
        return await self._database.read(lambda it: _one(it, _has_key(agent_id, key)))

    async def add(
        self, *, id: str, agent_id: str, key: str, channel: str, sender: str, title: str
    ) -> SessionRecord:
        created = now()
        row = {
            "id": storable_id(id, "the session id"),
            "agent_id": storable_id(agent_id, "the agent id"),
            "key": storable_key(key, "the session key"),
            "channel": storable_text(channel),
            "sender": storable_text(sender),
            "title": storable_text(title),
            "created": created,
            "updated": created,
            "turn_count": 0,
            "message_count": 0,
        }
        insert = self._database.insert(sessions).values(row).on_conflict_do_nothing()

        def work(connection: Connection) -> SessionRecord:
            connection.execute(insert)
            found = _one(connection, _has_key(agent_id, key)) if key else None
            found = found or _one(connection, sessions.c.id == id)
            if found is None or found.agent_id != agent_id or found.key != key:
                raise SessionError(
                    f"the session {id!r} belongs to another agent or key", code="invalid"
                )
            return found

        return await self._database.write(work)

    async def newest(
        self, *, agent_id: str | None, key: str | None, limit: int, before: str | None
    ) -> list[SessionRecord]:
        if not is_storable(agent_id or "") or not is_storable(key or ""):
            return []
        query = select(sessions).order_by(sessions.c.updated.desc(), sessions.c.id.desc())
        if agent_id is not None:
            query = query.where(sessions.c.agent_id == agent_id)
        if key is not None:
            query = query.where(sessions.c.key == key)
        if before is not None:
            query = query.where(tuple_(sessions.c.updated, sessions.c.id) < _cursor_from(before))

        def work(connection: Connection) -> list[SessionRecord]:
            return [_record_from(row) for row in connection.execute(query.limit(limit)).mappings()]

        return await self._database.read(work)


def _has_key(agent_id: str, key: str) -> ColumnElement[bool]:
    return and_(sessions.c.agent_id == agent_id, sessions.c.key == key)


def _one(connection: Connection, condition: ColumnElement[bool]) -> SessionRecord | None:
    row = (connection.execute(select(sessions).where(condition))).mappings().first()
    return None if row is None else _record_from(row)


def _record_from(row: RowMapping) -> SessionRecord:
    return SessionRecord(**row)


def _cursor_from(text: str) -> tuple[float, str]:
    """Reads what `SessionRecord.cursor` gives."""
    updated, _, session_id = text.partition("~")
    try:
        if not is_storable(session_id):
            raise ValueError
        return float(updated), session_id
    except ValueError:
        problem = f"{text[:80]!r} is not a cursor; give the `cursor` of a listed session"
        raise SessionError(problem, code="invalid") from None
