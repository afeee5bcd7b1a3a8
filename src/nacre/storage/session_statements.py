"""SQL statements of whole sessions; each function runs in the caller's transaction."""

from __future__ import annotations

import os
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import delete, func, insert, literal, select, tuple_

from nacre.errors import SessionError
from nacre.messages import Usage
from nacre.storage import rows
from nacre.storage.database import now
from nacre.storage.media_store import find_media
from nacre.storage.records import SessionRecord
from nacre.storage.schema import (
    approvals,
    cells,
    compactions,
    events,
    media,
    messages,
    sessions,
    turns,
)

if TYPE_CHECKING:
    from sqlalchemy import Select
    from sqlalchemy.engine import Connection, RowMapping

    from nacre.storage.database import Database

_RUN_ID_BYTES: Final = 12
_MEDIA_ID_BYTES: Final = 16
_FORKED_SETTINGS: Final = (
    "agent_id",
    "channel",
    "sender",
    "model",
    "queue_mode",
    "service_tier",
    "permission_mode",
)


def select_sessions(
    *, agent_id: str | None, key: str | None, before: str | None, unused_since: float | None
) -> Select[Any]:
    """The query for sessions, last used first. Raises SessionError for an invalid cursor."""
    query = select(sessions).order_by(sessions.c.updated.desc(), sessions.c.id.desc())
    if agent_id is not None:
        query = query.where(sessions.c.agent_id == agent_id)
    if key is not None:
        query = query.where(sessions.c.key == key)
    if before is not None:
        cursor = _parse_cursor(before)
        query = query.where(tuple_(sessions.c.updated, sessions.c.id) < cursor)
    if unused_since is not None:
        query = query.where(sessions.c.updated < unused_since)
    return query


def _parse_cursor(text: str) -> tuple[float, str]:
    """Parse a `SessionRecord.cursor`; raises SessionError (`invalid`)."""
    updated, _, session_id = text.partition("~")
    try:
        if not rows.is_storable(session_id):
            raise ValueError
        return float(updated), session_id
    except ValueError:
        problem = f"{text[:80]!r} is not a cursor; give the `cursor` of a listed session"
        raise SessionError(problem, code="invalid") from None


def add_session(
    database: Database, connection: Connection, new: SessionRecord
) -> tuple[SessionRecord, bool]:
    """Add a session if there is none with its id or key; returns the stored one, and whether it is
    the new one. Raises SessionError for an id that belongs to another agent or key."""
    statement = database.insert_or_ignore(sessions)
    is_new = connection.execute(statement, asdict(new)).rowcount > 0
    found = rows.find_session_by_key(connection, new.agent_id, new.key) if new.key else None
    found = found or rows.find_session(connection, new.id)
    if found is None or (found.agent_id, found.key) != (new.agent_id, new.key):
        raise SessionError(
            f"the session {new.id!r} belongs to another agent or key", code="invalid"
        )
    return found, is_new


def sum_usage(connection: Connection, session_id: str) -> Usage:
    """The tokens of all turns of a session."""
    counts = (turns.c.input_tokens, turns.c.output_tokens, turns.c.cached_tokens)
    query = select(*(func.coalesce(func.sum(it), 0) for it in counts))
    found = connection.execute(query.where(turns.c.session_id == session_id)).one()
    # PostgreSQL adds up to decimals.
    given, answered, cached = map(int, found)
    return Usage(input_tokens=given, output_tokens=answered, cached_tokens=cached)


def renew_session(
    connection: Connection, session_id: str, new_id: str, *, keeps_settings: bool
) -> SessionRecord:
    """Add an empty session with the key of this one, which stays without a key."""
    old = rows.change_session(connection, session_id, {})
    _refuse_if_used(connection, new_id)
    rows.change_session(connection, session_id, {"key": ""})
    created = now()
    new = SessionRecord(
        id=new_id,
        agent_id=old.agent_id,
        key=old.key,
        channel=old.channel,
        sender=old.sender,
        created=created,
        updated=created,
        model=old.model if keeps_settings else "",
        queue_mode=old.queue_mode if keeps_settings else "",
        service_tier=old.service_tier if keeps_settings else "",
        permission_mode=old.permission_mode if keeps_settings else "",
    )
    connection.execute(insert(sessions), asdict(new))
    return new


def delete_session(connection: Connection, session_id: str) -> bool:
    """Delete a session; False if there is none. Raises SessionError while one of its turns runs."""
    its_runs = select(turns.c.run_id).where(turns.c.session_id == session_id)
    is_running = its_runs.where(turns.c.status == "running").limit(1)
    if connection.execute(is_running).first() is not None:
        raise SessionError(
            f"a turn of the session {session_id} is running; abort it, or wait for its end",
            code="busy",
        )
    # Messages, turns and media are deleted with the session, and calls with their cells.
    connection.execute(delete(cells).where(cells.c.session_id == session_id))
    for table in (events, approvals):
        connection.execute(delete(table).where(table.c.run_id.in_(its_runs)))
    deleted = connection.execute(delete(sessions).where(sessions.c.id == session_id))
    return deleted.rowcount > 0


def fork_session(
    connection: Connection, session_id: str, new_id: str, last_run_id: str | None
) -> SessionRecord:
    """Copy a session without its key, and its ended turns up to this one. Locks its row."""
    old = rows.change_session(connection, session_id, {})
    _refuse_if_used(connection, new_id)
    copied = _turns_to_fork(connection, session_id, last_run_id)
    new_ids = {turn["run_id"]: f"run_{os.urandom(_RUN_ID_BYTES).hex()}" for turn in copied}
    content = select(messages).where(
        messages.c.session_id == session_id, messages.c.run_id.in_(new_ids)
    )
    found = connection.execute(content.order_by(messages.c.sequence)).mappings().all()
    created = now()
    new = SessionRecord(
        id=new_id,
        title=f"{old.title} (fork)" if old.title else "",
        created=created,
        updated=created,
        turn_count=len(copied),
        message_count=len(found),
        **{name: getattr(old, name) for name in _FORKED_SETTINGS},
    )
    connection.execute(insert(sessions).values(asdict(new)))
    for number, turn in enumerate(copied, start=1):
        changes = {"run_id": new_ids[turn["run_id"]], "session_id": new_id, "number": number}
        connection.execute(insert(turns).values({**turn, **changes}))
    # The messages of turns that are left out may lie between these.
    for sequence, row in enumerate(found):
        changes = {"run_id": new_ids[row["run_id"]], "session_id": new_id, "sequence": sequence}
        connection.execute(insert(messages).values({**row, **changes}))
    if [row["sequence"] for row in found] == list(range(len(found))):
        _fork_compactions(connection, session_id, new)
    for run_id, new_run_id in new_ids.items():
        _fork_events_and_media(connection, run_id, new_run_id, new_id)
    return new


def _turns_to_fork(
    connection: Connection, session_id: str, last_run_id: str | None
) -> list[RowMapping]:
    query = select(turns).where(turns.c.session_id == session_id)
    if last_run_id is not None:
        is_last = turns.c.run_id == last_run_id
        last = connection.execute(query.where(is_last)).first()
        if last is None:
            raise SessionError(
                f"the session {session_id!r} has no run {last_run_id!r}", code="not_found"
            )
        if last.status == "running":
            raise SessionError(f"the run {last_run_id!r} has not ended", code="busy")
        query = query.where(turns.c.number <= last.number)
    query = query.where(turns.c.status != "running").order_by(turns.c.number)
    return list(connection.execute(query).mappings())


def _fork_compactions(connection: Connection, session_id: str, new: SessionRecord) -> None:
    query = select(compactions).where(
        compactions.c.session_id == session_id,
        compactions.c.up_to_sequence < new.message_count,
    )
    for row in connection.execute(query).mappings().all():
        connection.execute(insert(compactions).values({**row, "session_id": new.id}))


def _fork_events_and_media(
    connection: Connection, run_id: str, new_run_id: str, new_session_id: str
) -> None:
    copied = select(literal(new_run_id), literal(new_session_id), events.c.event)
    copied = copied.where(events.c.run_id == run_id).order_by(events.c.number)
    columns = ["run_id", "session_id", "event"]
    connection.execute(insert(events).from_select(columns, copied))
    kept = ("name", "type", "size", "created", "data")
    for record in find_media(connection, media.c.run_id == run_id):
        # The bytes stay in the database.
        new_media_id = f"media_{os.urandom(_MEDIA_ID_BYTES).hex()}"
        ids = (literal(new_media_id), literal(new_session_id), literal(new_run_id))
        copy = select(*ids, *(media.c[name] for name in kept)).where(media.c.id == record.id)
        connection.execute(insert(media).from_select(["id", "session_id", "run_id", *kept], copy))


# Turns.


def _refuse_if_used(connection: Connection, session_id: str) -> None:
    if rows.find_session(connection, session_id) is not None:
        raise SessionError(f"there is a session {session_id!r} already", code="invalid")
