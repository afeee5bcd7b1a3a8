"""Stores sessions, turns, messages, trajectories and approvals in a database."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import anyio.to_thread
from sqlalchemy import delete, func, select, tuple_

from nacre.errors import SessionError
from nacre.storage import rows
from nacre.storage.database import now
from nacre.storage.records import (
    ApprovalRecord,
    Compaction,
    SessionRecord,
    StoredEvent,
    StoredMessage,
    TurnRecord,
)
from nacre.storage.rows import (
    check_id,
    check_key,
    clean_text,
    dump_json,
    dump_message,
    is_storable,
    load_json_object,
    load_message,
)
from nacre.storage.schema import approvals, events, sessions, turns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Select
    from sqlalchemy.engine import Connection

    from nacre.json_types import JsonObject
    from nacre.messages import Message, Usage
    from nacre.storage.database import Database
    from nacre.storage.records import TurnStatus

# Decoding this much JSON takes milliseconds, so it happens in a thread.
_LARGE_CHARACTERS: Final = 200_000
# Room for the messages and events of a few turns.
_MIN_FREE_BYTES: Final = 16 * 1024 * 1024


class Store:
    """An open database; see `nacre.storage.open_store`.

    Every method raises StorageError when the database fails. A method that returns has committed.
    A method that raises has changed nothing, or the error says `is_uncertain`.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    @property
    def address(self) -> str:
        """The path or the URL of the database, without the password."""
        return self._database.address

    async def check(self, *, min_free_bytes: int = _MIN_FREE_BYTES) -> None:
        """Check that turns can be read and stored now. Raises StorageError with the reason."""
        await self._database.check_writable(min_free_bytes=min_free_bytes)
        await self.sessions(limit=1)

    # Sessions.

    async def session(self, session_id: str) -> SessionRecord | None:
        if not is_storable(session_id):
            return None
        is_it = sessions.c.id == session_id
        return await self._database.read(lambda it: rows.find_session(it, is_it))

    async def session_by_key(self, agent_id: str, key: str) -> SessionRecord | None:
        if not key or not is_storable(agent_id) or not is_storable(key):
            return None
        is_it = rows.has_key(agent_id, key)
        return await self._database.read(lambda it: rows.find_session(it, is_it))

    async def add_session(
        self,
        *,
        id: str,
        agent_id: str,
        key: str = "",
        channel: str = "",
        sender: str = "",
        title: str = "",
    ) -> SessionRecord:
        """Add a session, or return the existing one with this id or this agent and key.

        Raises SessionError (`invalid`) for an id that belongs to another agent or key.
        """
        created = now()
        row = {
            "id": check_id(id, "the session id"),
            "agent_id": check_id(agent_id, "the agent id"),
            "key": check_key(key, "the session key"),
            "channel": clean_text(channel),
            "sender": clean_text(sender),
            "title": clean_text(title),
            "created": created,
            "updated": created,
            "turn_count": 0,
            "message_count": 0,
        }
        insert = self._database.insert(sessions).values(row).on_conflict_do_nothing()

        def work(connection: Connection) -> SessionRecord:
            connection.execute(insert)
            found = rows.find_session(connection, rows.has_key(agent_id, key)) if key else None
            found = found or rows.find_session(connection, sessions.c.id == id)
            if found is None or found.agent_id != agent_id or found.key != key:
                raise SessionError(
                    f"the session {id!r} belongs to another agent or key", code="invalid"
                )
            return found

        return await self._database.write_through(work)

    async def delete_session(self, session_id: str) -> bool:
        """Delete a session and all that belongs to it; False if there is none.

        Raises SessionError while one of its turns runs.
        """
        its_runs = select(turns.c.run_id).where(turns.c.session_id == session_id)
        is_running = its_runs.where(turns.c.status == "running").limit(1)

        def work(connection: Connection) -> bool:
            if connection.execute(is_running).first() is not None:
                raise SessionError(
                    f"a turn of the session {session_id} is running; abort it, or wait for its end",
                    code="busy",
                )
            # Messages and turns are deleted with the session.
            for table in (events, approvals):
                connection.execute(delete(table).where(table.c.run_id.in_(its_runs)))
            deleted = connection.execute(delete(sessions).where(sessions.c.id == session_id))
            return deleted.rowcount > 0

        return await self._database.write(work)

    async def sessions(
        self,
        *,
        agent_id: str | None = None,
        key: str | None = None,
        limit: int = 50,
        before: str | None = None,
        unused_since: float | None = None,
    ) -> list[SessionRecord]:
        """List sessions, last used first; `before` is the `cursor` of the last one listed."""
        if not is_storable(agent_id or "") or not is_storable(key or ""):
            return []
        query = select(sessions).order_by(sessions.c.updated.desc(), sessions.c.id.desc())
        if agent_id is not None:
            query = query.where(sessions.c.agent_id == agent_id)
        if key is not None:
            query = query.where(sessions.c.key == key)
        if before is not None:
            cursor = rows.parse_cursor(before)
            query = query.where(tuple_(sessions.c.updated, sessions.c.id) < cursor)
        if unused_since is not None:
            query = query.where(sessions.c.updated < unused_since)

        def work(connection: Connection) -> list[SessionRecord]:
            found = connection.execute(query.limit(limit)).mappings()
            return [SessionRecord(**row) for row in found]

        return await self._database.read(work)

    # Turns.

    async def begin_turn(
        self,
        *,
        run_id: str,
        session_id: str,
        prompt: Message | None,
        model: str,
        surface: str,
        is_exclusive: bool = False,
    ) -> None:
        """Record that a turn is running, and its prompt.

        Raises SessionError: `not_found` for an unknown session, `invalid` for a run id that was
        used before, `busy` if the turn is exclusive and another turn of the session is running.
        """
        row = {
            "run_id": check_id(run_id, "the run id"),
            "session_id": session_id,
            "status": "running",
            "owner": self._database.ownership.owner,
            "prompt": "" if prompt is None else dump_message(prompt, "the prompt"),
            "model": clean_text(model),
            "surface": clean_text(surface),
            "input_tokens": 0,
            "output_tokens": 0,
            "cached_tokens": 0,
            "error": "",
            "data": "{}",
            "started": now(),
        }

        def work(connection: Connection) -> None:
            if rows.has_begun(connection, run_id, row):
                return
            # Locks the session's row, so that no other turn can begin in between.
            number = rows.count_turn(connection, session_id)
            if is_exclusive:
                rows.refuse_if_busy(connection, session_id)
            statement = self._database.insert(turns).values({**row, "number": number})
            added = connection.execute(statement.on_conflict_do_nothing())
            if not added.rowcount:
                raise SessionError(f"there is a run {run_id!r} already", code="invalid")

        if not is_storable(session_id):
            raise rows.session_not_found(session_id)
        await self._database.ensure_ownership()
        await self._database.write_through(work)

    async def end_turn(
        self,
        run_id: str,
        *,
        status: TurnStatus,
        messages: Sequence[Message],
        usage: Usage,
        error: str = "",
        compaction: Compaction | None = None,
        data: JsonObject | None = None,
        events: Sequence[JsonObject] = (),
    ) -> None:
        """Write the whole turn in one transaction: its messages, usage and status.

        `messages` are all messages of the turn, the prompt first. `events` are those events of its
        trajectory that `add_events` was not given. Temporary failures, such as a full disk or a
        restarting server, are retried for some seconds. Raises SessionError: `not_found`, `ended`
        if the turn has ended before, `invalid` for a bad status or compaction.
        """
        if status == "running":
            raise SessionError("a turn cannot end as `running`", code="invalid")
        contents = [dump_message(it, f"message {i} of {run_id}") for i, it in enumerate(messages)]
        event_texts = _dump_events(run_id, events)
        ending = {
            "status": status,
            "input_tokens": usage.input_tokens,
            "output_tokens": usage.output_tokens,
            "cached_tokens": usage.cached_tokens,
            "error": clean_text(error),
            "data": dump_json(data or {}, f"the data of {run_id}"),
            "ended": now(),
        }

        def work(connection: Connection) -> None:
            session_id = rows.mark_turn_ended(connection, run_id, ending)
            if session_id is None:
                return
            count = rows.add_messages(connection, session_id, run_id, contents)
            rows.add_events(connection, run_id, session_id, event_texts)
            if compaction is not None:
                rows.put_compaction(
                    self._database, connection, session_id, compaction, message_count=count
                )

        if not is_storable(run_id):
            raise rows.run_not_found(run_id)
        await self._database.write_through(work)

    async def turn(self, run_id: str) -> TurnRecord | None:
        if not is_storable(run_id):
            return None
        found = await self._read_turns(select(turns).where(turns.c.run_id == run_id))
        return found[0] if found else None

    async def turns(
        self, session_id: str, limit: int = 100, *, before: str | None = None
    ) -> list[TurnRecord]:
        """Return the last `limit` turns, oldest first; those before the run `before`, if given."""
        if not is_storable(session_id) or not is_storable(before or ""):
            return []
        query = select(turns).where(turns.c.session_id == session_id)
        if before is not None:
            number = select(turns.c.number).where(turns.c.run_id == before)
            query = query.where(turns.c.number < number.scalar_subquery())
        found = await self._read_turns(query.order_by(turns.c.number.desc()).limit(limit))
        return found[::-1]

    async def interrupt_open_turns(self) -> int:
        """Mark turns whose process is gone as `interrupted`; return how many. Call it at startup.

        Their open approvals are withdrawn. Turns of processes that still have the database open
        are left alone.
        """

        def work(connection: Connection) -> int:
            alive = self._database.ownership.alive(connection)
            return rows.interrupt_turns(connection, alive_owners=alive)

        return await self._database.write(work)

    async def _read_turns(self, query: Select[Any]) -> list[TurnRecord]:
        def work(connection: Connection) -> list[TurnRecord]:
            return [rows.turn_from_row(row) for row in connection.execute(query).mappings()]

        return await self._database.read(work)

    # Messages.

    async def messages(self, session_id: str, *, whole: bool = False) -> list[StoredMessage]:
        """Return the messages for a model: the last summary, if any, and all messages since.

        The summary is a SystemMessage with `is_summary`. With `whole`: every message, no summary.
        """
        if not is_storable(session_id):
            return []

        def work(connection: Connection) -> tuple[StoredMessage | None, rows.MessageRows]:
            summary = None if whole else rows.find_summary(connection, session_id)
            after = -1 if summary is None else summary.sequence
            return summary, rows.find_messages(connection, session_id, after=after)

        summary, found = await self._database.read(work)
        return [*filter(None, [summary]), *await _load_messages(session_id, found)]

    async def messages_of_turns(
        self, session_id: str, run_ids: Sequence[str]
    ) -> list[StoredMessage]:
        """Return the messages of some turns of a session, in order, also if there is a summary."""
        ids = [run_id for run_id in run_ids if is_storable(run_id)]
        if not is_storable(session_id) or not ids:
            return []
        found = await self._database.read(
            lambda connection: rows.find_messages(connection, session_id, run_ids=ids)
        )
        return await _load_messages(session_id, found)

    async def add_compaction(self, session_id: str, *, up_to_sequence: int, summary: str) -> None:
        """Replace all messages up to that one by `summary` for models; they stay readable.

        Raises SessionError: `not_found`, or `invalid` for a sequence that does not exist.
        """
        compaction = Compaction(up_to_sequence=up_to_sequence, summary=summary)

        def work(connection: Connection) -> None:
            count = rows.count_messages(connection, session_id)
            rows.put_compaction(
                self._database, connection, session_id, compaction, message_count=count
            )

        if not is_storable(session_id):
            raise rows.session_not_found(session_id)
        await self._database.write_through(work)

    # Events of trajectories.

    async def add_events(self, run_id: str, session_id: str, events: Sequence[JsonObject]) -> None:
        """Append events of a trajectory; the session need not be stored."""
        check_id(run_id, "the run id")
        check_key(session_id, "the session id")
        texts = _dump_events(run_id, events)
        if texts:
            await self._database.write(lambda it: rows.add_events(it, run_id, session_id, texts))

    async def events(
        self,
        *,
        run_id: str | None = None,
        session_id: str | None = None,
        after: int = -1,
        limit: int = 1000,
    ) -> list[StoredEvent]:
        """List events in the order of storing; `after` is the `number` of the last one seen."""
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
                    event=load_json_object(row.event, f"the event {row.number}"),
                )
                for row in connection.execute(query)
            ]

        return await self._database.read(work)

    # Approvals.

    async def put_approval(self, record: ApprovalRecord) -> None:
        """Store a request for approval; later, with the same id, its answer."""
        row = {**rows.approval_to_row(record), "id": check_id(record.id, "the approval id")}
        statement = self._database.insert(approvals).values(row)
        statement = statement.on_conflict_do_update(index_elements=["id"], set_=row)
        # Writing it twice is harmless, and a short outage must not lose who allowed what.
        await self._database.write_through(lambda it: it.execute(statement))

    async def approvals(
        self, *, session_id: str | None = None, limit: int = 100, is_closed: bool = False
    ) -> list[ApprovalRecord]:
        """List approvals, newest first; with `is_closed`, only those that are not open."""
        if not is_storable(session_id or ""):
            return []
        query = (
            select(approvals, func.coalesce(sessions.c.agent_id, "").label("agent_id"))
            .outerjoin(sessions, sessions.c.id == approvals.c.session_id)
            .order_by(approvals.c.created.desc(), approvals.c.id.desc())
        )
        if is_closed:
            query = query.where(approvals.c.state != "open")
        if session_id is not None:
            query = query.where(approvals.c.session_id == session_id)

        def work(connection: Connection) -> list[ApprovalRecord]:
            found = connection.execute(query.limit(limit)).mappings()
            return [rows.approval_from_row(row) for row in found]

        return await self._database.read(work)


def _dump_events(run_id: str, events: Sequence[JsonObject]) -> list[str]:
    return [dump_json(event, f"an event of {run_id}") for event in events]


async def _load_messages(session_id: str, found: rows.MessageRows) -> list[StoredMessage]:
    def load() -> list[StoredMessage]:
        return [
            StoredMessage(
                sequence=sequence,
                run_id=run_id,
                message=load_message(content, f"the message {sequence} of session {session_id!r}"),
            )
            for sequence, run_id, content in found
        ]

    if sum(len(content) for _, _, content in found) < _LARGE_CHARACTERS:
        return load()
    return await anyio.to_thread.run_sync(load)
