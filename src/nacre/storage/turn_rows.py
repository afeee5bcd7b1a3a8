"""Turns in the database: begun once, ended once, whole or not at all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import select, update

from nacre.errors import SessionError
from nacre.messages import Usage
from nacre.storage.approval_rows import withdraw_orphans
from nacre.storage.columns import (
    is_storable,
    json_object,
    json_text,
    message_in,
    message_text,
    storable_id,
    storable_text,
)
from nacre.storage.database import now
from nacre.storage.event_rows import event_texts, write_events
from nacre.storage.message_rows import write_compaction, write_messages
from nacre.storage.records import TurnRecord
from nacre.storage.schema import sessions, turns

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sqlalchemy import Select
    from sqlalchemy.engine import Connection, RowMapping

    from nacre.json_types import JsonObject
    from nacre.messages import Message
    from nacre.storage.database import Database
    from nacre.storage.records import Compaction, TurnStatus

# Nobody was there to write down why it ended.
_CUT_OFF: Final = "the process ended in the middle of the turn"


class TurnRows:
    """Each turn is marked with the process that runs it; `ended` is empty until it has ended."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def begin(
        self,
        *,
        run_id: str,
        session_id: str,
        prompt: Message | None,
        model: str,
        surface: str,
        is_exclusive: bool,
    ) -> None:
        row = {
            "run_id": storable_id(run_id, "the run id"),
            "session_id": session_id,
            "status": "running",
            "owner": self._database.ownership.owner,
            "prompt": "" if prompt is None else message_text(prompt, "the prompt"),
            "model": storable_text(model),
            "surface": storable_text(surface),
            "input_tokens": 0,
            "output_tokens": 0,
            "cached_tokens": 0,
            "error": "",
            "data": "{}",
            "started": now(),
        }

        def work(connection: Connection) -> None:
            # This locks the session's row until the end: what follows cannot be overtaken.
            number = _count_turn(connection, session_id)
            if is_exclusive:
                _refuse_if_busy(connection, session_id)
            statement = self._database.insert(turns).values({**row, "number": number})
            added = connection.execute(statement.on_conflict_do_nothing())
            if not added.rowcount:
                raise SessionError(f"there is a run {run_id!r} already", code="invalid")

        if not is_storable(session_id):
            raise _no_session(session_id)
        await self._database.ensure_ownership()
        await self._database.write(work)

    async def end(
        self,
        run_id: str,
        *,
        status: TurnStatus,
        messages: Sequence[Message],
        usage: Usage,
        error: str,
        compaction: Compaction | None,
        data: JsonObject | None,
        events: Sequence[JsonObject],
    ) -> None:
        if status == "running":
            raise SessionError("a turn cannot end as `running`", code="invalid")
        contents = [message_text(it, f"message {i} of {run_id}") for i, it in enumerate(messages)]
        told = event_texts(run_id, events)
        ending = {
            "status": status,
            "input_tokens": usage.input_tokens,
            "output_tokens": usage.output_tokens,
            "cached_tokens": usage.cached_tokens,
            "error": storable_text(error),
            "data": json_text(data or {}, f"the data of {run_id}"),
            "ended": now(),
        }

        def work(connection: Connection) -> None:
            session_id = _end_once(connection, run_id, ending)
            if session_id is None:
                return
            message_count = _count_messages(connection, session_id, len(contents))
            first = message_count - len(contents)
            write_messages(connection, session_id, run_id, first, contents)
            write_events(connection, run_id, session_id, told)
            if compaction is not None:
                write_compaction(
                    self._database, connection, session_id, compaction, message_count=message_count
                )

        if not is_storable(run_id):
            raise _no_run(run_id)
        await self._database.write_through(work)

    async def by_id(self, run_id: str) -> TurnRecord | None:
        if not is_storable(run_id):
            return None
        query = select(turns).where(turns.c.run_id == run_id)
        return next(iter(await self._read(query)), None)

    async def of_session(self, session_id: str, *, limit: int) -> list[TurnRecord]:
        if not is_storable(session_id):
            return []
        query = (
            select(turns)
            .where(turns.c.session_id == session_id)
            .order_by(turns.c.number.desc())
            .limit(limit)
        )
        return (await self._read(query))[::-1]

    async def interrupt_orphans(self) -> int:
        def work(connection: Connection) -> int:
            alive = self._database.ownership.alive(connection)
            statement = (
                update(turns)
                .where(turns.c.status == "running", turns.c.owner.not_in(alive))
                .values(status="interrupted")
            )
            count = connection.execute(statement).rowcount
            withdraw_orphans(connection)
            return count

        return await self._database.write(work)

    async def _read(self, query: Select[Any]) -> list[TurnRecord]:
        def work(connection: Connection) -> list[TurnRecord]:
            return [_record_from(row) for row in connection.execute(query).mappings()]

        return await self._database.read(work)


def _count_turn(connection: Connection, session_id: str) -> int:
    """The number of the session's next turn, from 1."""
    statement = (
        update(sessions)
        .where(sessions.c.id == session_id)
        .values(turn_count=sessions.c.turn_count + 1, updated=now())
        .returning(sessions.c.turn_count)
    )
    number = (connection.execute(statement)).scalar()
    if number is None:
        raise _no_session(session_id)
    return number


def _refuse_if_busy(connection: Connection, session_id: str) -> None:
    query = select(turns.c.run_id).where(
        turns.c.session_id == session_id, turns.c.status == "running"
    )
    if (other := (connection.execute(query.limit(1))).scalar()) is not None:
        raise SessionError(
            f"the session {session_id!r} is busy: its run {other!r} has not ended", code="busy"
        )


def _end_once(connection: Connection, run_id: str, ending: Mapping[str, object]) -> str | None:
    """The id of the session; None if an earlier attempt with this very ending was committed.

    An interrupted turn may end after all: its process was only cut off from the database for a
    while."""
    statement = (
        update(turns)
        .where(turns.c.run_id == run_id, turns.c.ended.is_(None))
        .values(ending)
        .returning(turns.c.session_id)
    )
    if (session_id := (connection.execute(statement)).scalar()) is not None:
        return session_id
    query = select(turns.c.status, turns.c.ended).where(turns.c.run_id == run_id)
    if (row := connection.execute(query).first()) is None:
        raise _no_run(run_id)
    if (row.status, row.ended) == (ending["status"], ending["ended"]):
        return None
    raise SessionError(f"the run {run_id!r} has ended already, as `{row.status}`", code="ended")


def _count_messages(connection: Connection, session_id: str, added: int) -> int:
    """How many the session has with those; locks its row, so that nobody else counts meanwhile."""
    statement = (
        update(sessions)
        .where(sessions.c.id == session_id)
        .values(message_count=sessions.c.message_count + added, updated=now())
        .returning(sessions.c.message_count)
    )
    return (connection.execute(statement)).scalar_one()


def _record_from(row: RowMapping) -> TurnRecord:
    name = f"the turn {row['run_id']!r}"
    return TurnRecord(
        run_id=row["run_id"],
        session_id=row["session_id"],
        status=row["status"],
        prompt=message_in(row["prompt"], name) if row["prompt"] else None,
        model=row["model"],
        surface=row["surface"],
        usage=Usage(
            input_tokens=row["input_tokens"],
            output_tokens=row["output_tokens"],
            cached_tokens=row["cached_tokens"],
        ),
        error=row["error"] or (_CUT_OFF if row["status"] == "interrupted" else ""),
        data=json_object(row["data"], name),
        started=row["started"],
        ended=row["ended"],
    )


def _no_session(session_id: str) -> SessionError:
    return SessionError(f"there is no session {session_id!r}", code="not_found")


def _no_run(run_id: str) -> SessionError:
    return SessionError(f"there is no run {run_id!r}", code="not_found")
