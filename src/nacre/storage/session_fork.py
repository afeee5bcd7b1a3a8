"""Copies a session with its turns, messages, events and media. Runs in the caller's transaction."""

from __future__ import annotations

import os
from dataclasses import asdict
from typing import TYPE_CHECKING, Final

from sqlalchemy import insert, literal, select

from nacre.errors import SessionError
from nacre.storage import rows
from nacre.storage.database import now
from nacre.storage.records import SessionRecord
from nacre.storage.schema import compactions, events, media, messages, sessions, turns

if TYPE_CHECKING:
    from sqlalchemy.engine import Connection, RowMapping

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


def fork_session(
    connection: Connection, session_id: str, new_id: str, last_run_id: str | None
) -> SessionRecord:
    """Copy a session without its key, and its ended turns up to this one. Locks its row."""
    old = rows.change_session(connection, session_id, {})
    if rows.find_session(connection, new_id) is not None:
        raise SessionError(f"there is a session {new_id!r} already", code="invalid")
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
    for record in rows.find_media(connection, media.c.run_id == run_id):
        # The bytes stay in the database.
        new_media_id = f"media_{os.urandom(_MEDIA_ID_BYTES).hex()}"
        ids = (literal(new_media_id), literal(new_session_id), literal(new_run_id))
        copy = select(*ids, *(media.c[name] for name in kept)).where(media.c.id == record.id)
        connection.execute(insert(media).from_select(["id", "session_id", "run_id", *kept], copy))


# Turns.
