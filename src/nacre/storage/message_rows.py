"""Messages of finished turns, and the summaries that stand for old ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import anyio.to_thread
from sqlalchemy import insert, select

from nacre.errors import SessionError
from nacre.messages import SystemMessage
from nacre.storage.columns import is_storable, message_in, storable_text
from nacre.storage.database import now
from nacre.storage.records import Compaction, StoredMessage
from nacre.storage.schema import compactions, messages, sessions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy.engine import Connection

    from nacre.storage.database import Database

# Reading so much JSON takes some milliseconds, which others need not wait for.
_LARGE_CHARACTERS: Final = 200_000


class MessageRows:
    """Numbered without gaps in each session; written by `TurnRows` when a turn ends."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def of_session(self, session_id: str, *, whole: bool) -> list[StoredMessage]:
        if not is_storable(session_id):
            return []

        def work(connection: Connection) -> tuple[StoredMessage | None, _Rows]:
            summary = None if whole else _last_summary(connection, session_id)
            after = -1 if summary is None else summary.sequence
            return summary, _rows_after(connection, session_id, after)

        summary, rows = await self._database.read(work)
        return [*filter(None, [summary]), *await _read_all(session_id, rows)]

    async def add_compaction(self, session_id: str, *, up_to_sequence: int, summary: str) -> None:
        def work(connection: Connection) -> None:
            query = select(sessions.c.message_count).where(sessions.c.id == session_id)
            message_count = (connection.execute(query)).scalar()
            if message_count is None:
                raise SessionError(f"there is no session {session_id!r}", code="not_found")
            write_compaction(
                self._database,
                connection,
                session_id,
                Compaction(up_to_sequence=up_to_sequence, summary=summary),
                message_count=message_count,
            )

        if not is_storable(session_id):
            raise SessionError(f"there is no session {session_id!r}", code="not_found")
        await self._database.write(work)


_Rows = list[tuple[int, str, str]]


def write_messages(
    connection: Connection, session_id: str, run_id: str, first: int, contents: Sequence[str]
) -> None:
    """Within the transaction that ends the turn; `first` is the sequence of the first one."""
    if contents:
        connection.execute(
            insert(messages),
            [
                {"session_id": session_id, "sequence": first + i, "run_id": run_id, "content": it}
                for i, it in enumerate(contents)
            ],
        )


def write_compaction(
    database: Database,
    connection: Connection,
    session_id: str,
    compaction: Compaction,
    *,
    message_count: int,
) -> None:
    """Within a transaction that has seen how many messages the session has."""
    if not 0 <= compaction.up_to_sequence < message_count:
        raise SessionError(
            f"the session {session_id!r} has no message {compaction.up_to_sequence} to summarise "
            f"up to; it has {message_count}, counted from 0",
            code="invalid",
        )
    row = {
        "session_id": session_id,
        "up_to_sequence": compaction.up_to_sequence,
        "summary": storable_text(compaction.summary),
        "created": now(),
    }
    statement = database.insert(compactions).values(row)
    connection.execute(
        statement.on_conflict_do_update(
            index_elements=["session_id", "up_to_sequence"],
            set_={"summary": row["summary"], "created": row["created"]},
        )
    )


def _last_summary(connection: Connection, session_id: str) -> StoredMessage | None:
    query = (
        select(compactions.c.up_to_sequence, compactions.c.summary)
        .where(compactions.c.session_id == session_id)
        .order_by(compactions.c.up_to_sequence.desc())
        .limit(1)
    )
    row = (connection.execute(query)).first()
    if row is None:
        return None
    message = SystemMessage(text=row.summary)
    return StoredMessage(sequence=row.up_to_sequence, run_id="", message=message, is_summary=True)


def _rows_after(connection: Connection, session_id: str, sequence: int) -> _Rows:
    query = (
        select(messages.c.sequence, messages.c.run_id, messages.c.content)
        .where(messages.c.session_id == session_id, messages.c.sequence > sequence)
        .order_by(messages.c.sequence)
    )
    return [(row.sequence, row.run_id, row.content) for row in connection.execute(query)]


async def _read_all(session_id: str, rows: _Rows) -> list[StoredMessage]:
    def read() -> list[StoredMessage]:
        return [
            StoredMessage(
                sequence=sequence,
                run_id=run_id,
                message=message_in(content, f"the message {sequence} of session {session_id!r}"),
            )
            for sequence, run_id, content in rows
        ]

    if sum(len(content) for _, _, content in rows) < _LARGE_CHARACTERS:
        return read()
    return await anyio.to_thread.run_sync(read)
