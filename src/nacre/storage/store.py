"""Stores sessions, turns, messages, trajectories, approvals and media in a database."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from sqlalchemy import delete, select

from nacre.errors import SessionError
from nacre.messages import Usage
from nacre.storage import rows, session_statements, text_search
from nacre.storage.approval_store import ApprovalStore
from nacre.storage.cell_store import CellStore
from nacre.storage.database import now
from nacre.storage.media_store import MediaStore
from nacre.storage.records import (
    BegunTurn,
    Compaction,
    MessageRows,
    SessionRecord,
    StoredEvent,
    StoredMessage,
    ThreadRecord,
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
)
from nacre.storage.schema import (
    events,
    threads,
    turns,
    values,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sqlalchemy import Select
    from sqlalchemy.engine import Connection

    from nacre.json_types import JsonObject
    from nacre.messages import Message
    from nacre.storage.cluster import Cluster
    from nacre.storage.database import Database
    from nacre.storage.records import TurnStatus
    from nacre.storage.text_search import SearchHit

SessionChange = Literal["created", "updated", "deleted"]
SessionWatcher: TypeAlias = "Callable[[str, SessionChange], None]"

# Room for the messages and events of a few turns.
_MIN_FREE_BYTES: Final = 16 * 1024 * 1024


_NEW_TURN: Final = {
    "status": "running",
    "input_tokens": 0,
    "output_tokens": 0,
    "cached_tokens": 0,
    "error": "",
    "data": "{}",
}


class Store:
    """An open database; see `nacre.storage.open_store`.

    Every method raises StorageError when the database fails. A method that returns has committed.
    A method that raises has changed nothing, or the error says `is_uncertain`.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._watchers: dict[SessionWatcher, bool] = {}
        self.cluster = _open_cluster(database)
        """Shared by the processes on a database server; None for SQLite."""
        self._leases = None if self.cluster is None else self.cluster.leases
        self.cells = CellStore(database, self._leases)
        """The suspended cells of runs in code mode, if they are durable."""
        self.media = MediaStore(database, self._leases)
        """The files of replies, and uploads."""
        self.approvals = ApprovalStore(database, self._leases)
        """The requests for approval, and their answers."""

    def watch_sessions(
        self, watcher: SessionWatcher, *, is_local: bool = False
    ) -> Callable[[], None]:
        """Call `watcher` with the id of each session that was created, updated or deleted, with
        `is_local` only by this process; call the returned function to stop."""
        self._watchers[watcher] = is_local

        def stop() -> None:
            self._watchers.pop(watcher, None)

        return stop

    def note_remote_change(self, session_id: str, change: SessionChange) -> None:
        """Another process has changed a session."""
        for watcher, is_local in list(self._watchers.items()):
            if not is_local:
                watcher(session_id, change)

    def _notify(self, session_id: str, change: SessionChange) -> None:
        for watcher in list(self._watchers):
            watcher(session_id, change)

    @property
    def _machine(self) -> str:
        return "" if self.cluster is None else self.cluster.machine

    def _check_lease(self, connection: Connection, session_id: str) -> None:
        """Raise LeaseLostError if another process serves the session instead of this one."""
        if self._leases is not None:
            self._leases.check(connection, session_id)

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
        return await self._database.read(lambda it: rows.find_session(it, session_id))

    async def session_by_key(self, agent_id: str, key: str) -> SessionRecord | None:
        if not key or not is_storable(agent_id) or not is_storable(key):
            return None
        return await self._database.read(lambda it: rows.find_session_by_key(it, agent_id, key))

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
        new = SessionRecord(
            id=check_id(id, "the session id"),
            agent_id=check_id(agent_id, "the agent id"),
            key=check_key(key, "the session key"),
            channel=clean_text(channel),
            sender=clean_text(sender),
            title=clean_text(title),
            created=created,
            updated=created,
        )
        is_new = False

        def work(connection: Connection) -> SessionRecord:
            nonlocal is_new
            session, is_new = session_statements.add_session(self._database, connection, new)
            if is_new and new.title:
                text_search.put_title(connection, id, new.title, created)
            return session

        session = await self._database.write_through(work)
        if is_new:
            self._notify(session.id, "created")
        return session

    async def change_session(
        self,
        session_id: str,
        *,
        title: str | None = None,
        model: str | None = None,
        queue_mode: str | None = None,
        service_tier: str | None = None,
        permission_mode: str | None = None,
    ) -> SessionRecord:
        """Change the title or settings of a session; None leaves one as it is.

        Raises SessionError (`not_found`).
        """
        given = {
            "title": title,
            "model": model,
            "queue_mode": queue_mode,
            "service_tier": service_tier,
            "permission_mode": permission_mode,
        }
        values = {name: clean_text(value) for name, value in given.items() if value is not None}

        def work(connection: Connection) -> SessionRecord:
            changed = rows.change_session(connection, session_id, values)
            if title is not None:
                text_search.put_title(connection, session_id, changed.title, changed.updated)
            return changed

        if not is_storable(session_id):
            raise rows.session_not_found(session_id)
        session = await self._database.write_through(work)
        self._notify(session_id, "updated")
        return session

    async def renew_session(
        self, session_id: str, *, new_id: str, keeps_settings: bool
    ) -> SessionRecord:
        """Add an empty session that takes over the key of this one, which stays without a key.

        Raises SessionError (`not_found`, or `invalid` for an id that is used).
        """
        check_id(new_id, "the session id")

        if not is_storable(session_id):
            raise rows.session_not_found(session_id)
        session = await self._database.write(
            lambda it: session_statements.renew_session(
                it, session_id, new_id, keeps_settings=keeps_settings
            )
        )
        self._notify(session_id, "updated")
        self._notify(new_id, "created")
        return session

    async def session_usage(self, session_id: str) -> Usage:
        """The tokens of all turns of a session that have ended."""
        if not is_storable(session_id):
            return Usage()
        return await self._database.read(lambda it: session_statements.sum_usage(it, session_id))

    async def delete_session(self, session_id: str) -> bool:
        """Delete a session and all that belongs to it; False if there is none.

        Raises SessionError while one of its turns runs.
        """
        if not is_storable(session_id):
            return False
        was_deleted = await self._database.write(
            lambda it: session_statements.delete_session(it, session_id)
        )
        if was_deleted:
            self._notify(session_id, "deleted")
        return was_deleted

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
        query = session_statements.select_sessions(
            agent_id=agent_id, key=key, before=before, unused_since=unused_since
        )

        def work(connection: Connection) -> list[SessionRecord]:
            found = connection.execute(query.limit(limit)).mappings()
            return [SessionRecord(**row) for row in found]

        return await self._database.read(work)

    async def fork_session(
        self, session_id: str, *, new_id: str, last_run_id: str | None = None
    ) -> SessionRecord:
        """Copy a session with its turns up to and with one of them, or with all that have ended.

        The copy has its own run ids, and the messages, events and media of the turns. Raises
        SessionError: `not_found`, or `busy` if that turn is running.
        """
        check_id(new_id, "the session id")
        if not is_storable(session_id) or not is_storable(last_run_id or ""):
            raise rows.session_not_found(session_id)

        def work(connection: Connection) -> SessionRecord:
            new = session_statements.fork_session(connection, session_id, new_id, last_run_id)
            text_search.index_session(connection, new)
            return new

        session = await self._database.write(work)
        self._notify(new_id, "created")
        return session

    async def search(
        self,
        query: str,
        *,
        agent_id: str | None = None,
        before: str | None = None,
        limit: int = 20,
    ) -> list[SearchHit]:
        """Find the messages and titles with all words of the query, newest first.

        Raises SessionError (`invalid`) for a `before` that is not the cursor of a hit.
        """
        if not is_storable(agent_id or ""):
            return []
        return await self._database.read(
            lambda it: text_search.find_hits(
                it, query, agent_id=agent_id, before=before, limit=limit
            )
        )

    # Turns.

    async def begin_turn(
        self,
        *,
        run_id: str,
        session_id: str,
        prompt: Message | None,
        model: str,
        surface: str,
        title: str = "",
        is_exclusive: bool = False,
        loads_messages: bool = False,
        items: Sequence[int] = (),
    ) -> BegunTurn:
        """Record that a turn is running, and its prompt; returns its session, in one transaction.

        `title` is for a session without one. `loads_messages` reads its messages for a model.
        `items` are the messages in the inbox that the turn begins with; they are deleted.

        Raises SessionError: `not_found` for an unknown session, `invalid` for a run id that was
        used before, `busy` if the turn is exclusive and another turn of the session is running.
        """
        row = {
            **_NEW_TURN,
            "run_id": check_id(run_id, "the run id"),
            "session_id": session_id,
            "owner": self._database.ownership.owner,
            "prompt": "" if prompt is None else dump_message(prompt, "the prompt"),
            "model": clean_text(model),
            "surface": clean_text(surface),
            "started": now(),
        }
        is_retry = False

        def work(connection: Connection) -> BegunTurn:
            nonlocal is_retry
            self._check_lease(connection, session_id)
            if is_retry and rows.has_begun(connection, run_id, row):
                session = rows.change_session(connection, session_id, {})
            else:
                is_retry = True
                # Locks the session's row, so that no other turn can begin in between.
                session = _count_turn(connection, session_id, clean_text(title))
                if is_exclusive:
                    rows.refuse_if_busy(connection, session_id)
                rows.add_turn(self._database, connection, {**row, "number": session.turn_count})
            if items:
                rows.end_items(connection, items)
            return rows.describe_begun(connection, session, loads_messages=loads_messages)

        if not is_storable(session_id):
            raise rows.session_not_found(session_id)
        await self._database.ensure_ownership()
        begun = await self._database.write_through(work)
        self._notify(session_id, "updated")
        return begun

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
        thread: ThreadRecord | None = None,
        items: Sequence[int] = (),
    ) -> None:
        """Write the whole turn in one transaction: its messages, usage and status.

        `messages` are all messages of the turn, the prompt first. A message whose identity the
        session already has is skipped. `events` are those that `add_events` did not get. `thread`
        replaces the one of the session. `items` are the messages in the inbox that the turn has
        taken. Temporary failures are retried for some seconds. Raises
        SessionError: `not_found`, `ended`, or `invalid` for a bad status or compaction.
        """
        if status == "running":
            raise SessionError("a turn cannot end as `running`", code="invalid")
        event_texts = rows.dump_events(run_id, events)
        ending = {
            "status": status,
            **rows.dump_usage(usage),
            "error": clean_text(error),
            "data": dump_json(data or {}, f"the data of {run_id}"),
            "ended": now(),
        }

        def work(connection: Connection) -> str | None:
            if self._leases is not None:
                self._leases.check_run(connection, run_id)
            session_id = rows.mark_turn_ended(connection, run_id, ending)
            if session_id is None:
                return None
            rows.delete_cells(connection, run_id)
            if self._leases is not None:
                rows.end_items(connection, items, run_id=run_id)
            if status != "completed":
                rows.withdraw_approvals(connection, session_id, run_id)
            if status == "interrupted" and self._leases is not None:
                self._leases.end_run(connection, run_id)
            count = _add_messages(connection, session_id, run_id, messages)
            rows.add_events(connection, run_id, session_id, event_texts)
            if thread is not None:
                rows.put_thread(self._database, connection, thread, machine=self._machine)
            if compaction is not None:
                rows.put_compaction(
                    self._database, connection, session_id, compaction, message_count=count
                )
            return session_id

        if not is_storable(run_id):
            raise rows.run_not_found(run_id)
        session_id = await self._database.write_through(work)
        if session_id is not None:
            self._notify(session_id, "updated")

    async def add_to_interrupted(self, run_id: str, messages: Sequence[Message]) -> None:
        """Add messages to a turn that was interrupted, as another runtime has them.

        A message whose identity the session has already is left out. For a turn that was not
        interrupted, nothing happens.
        """

        def work(connection: Connection) -> str | None:
            session_id = rows.find_interrupted(connection, run_id)
            if session_id is not None:
                _add_messages(connection, session_id, run_id, messages)
            return session_id

        if is_storable(run_id):
            session_id = await self._database.write_through(work)
            if session_id is not None:
                self._notify(session_id, "updated")

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

        def work(connection: Connection) -> tuple[StoredMessage | None, MessageRows]:
            if whole:
                return None, rows.find_messages(connection, session_id)
            return rows.find_model_messages(connection, session_id)

        summary, found = await self._database.read(work)
        return [*filter(None, [summary]), *await rows.load_messages(session_id, found)]

    async def decode_messages(self, begun: BegunTurn) -> list[StoredMessage]:
        """Return the messages that `begin_turn` has read, as `messages` does."""
        found = await rows.load_messages(begun.session.id, begun.message_rows)
        return [*filter(None, [begun.summary]), *found]

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
        return await rows.load_messages(session_id, found)

    async def message(self, session_id: str, sequence: int) -> StoredMessage | None:
        """Return one message of a session."""
        if not is_storable(session_id):
            return None
        found = await self._database.read(
            lambda it: rows.find_messages(it, session_id, after=sequence - 1, limit=1)
        )
        if not found or found[0][0] != sequence:
            return None
        return (await rows.load_messages(session_id, found))[0]

    async def add_compaction(self, session_id: str, *, up_to_sequence: int, summary: str) -> None:
        """Replace all messages up to that one by `summary` for models; they stay readable.

        Raises SessionError: `not_found`, or `invalid` for a sequence that does not exist.
        """
        compaction = Compaction(up_to_sequence=up_to_sequence, summary=summary)

        def work(connection: Connection) -> None:
            self._check_lease(connection, session_id)
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
        texts = rows.dump_events(run_id, events)

        def work(connection: Connection) -> None:
            self._check_lease(connection, session_id)
            rows.add_events(connection, run_id, session_id, texts)

        if texts:
            await self._database.write(work)

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

    # Threads of sessions in other runtimes.

    async def thread(self, session_id: str) -> ThreadRecord | None:
        """Return the thread of a session."""
        if not is_storable(session_id):
            return None
        return await self._database.read(lambda it: rows.find_thread(it, session_id))

    async def threads(self, limit: int = 100) -> list[ThreadRecord]:
        """Return the threads of all sessions, the last used first."""
        query = select(threads).order_by(threads.c.updated.desc(), threads.c.session_id)

        def work(connection: Connection) -> list[ThreadRecord]:
            found = connection.execute(query.limit(limit)).mappings()
            return [rows.thread_from_row(row) for row in found]

        return await self._database.read(work)

    async def put_thread(self, record: ThreadRecord) -> None:
        """Store the thread of a session, in place of an earlier one. Its session must be stored."""
        await self._database.write_through(
            lambda it: rows.put_thread(self._database, it, record, machine=self._machine)
        )

    async def delete_thread(self, session_id: str) -> bool:
        """Forget the thread of a session; False if there is none."""
        query = delete(threads).where(threads.c.session_id == session_id)
        return await self._database.write(lambda it: it.execute(query).rowcount > 0)

    # Values that expire.

    async def value(self, kind: str, key: str) -> JsonObject | None:
        """Return a value that has not expired."""
        if not is_storable(key):
            return None
        time = self._database.now
        return await self._database.read(lambda it: rows.find_value(it, kind, key, time))

    async def add_value(
        self, kind: str, key: str, value: JsonObject, *, seconds: float
    ) -> JsonObject | None:
        """Add a value for some time if there is none with this key; otherwise return the existing
        one."""
        row = rows.value_to_row(kind, key, value, self._database.now + seconds)
        insert = self._database.insert_or_ignore(values).values(row)

        def work(connection: Connection) -> JsonObject | None:
            connection.execute(delete(values).where(values.c.expires <= self._database.now))
            if connection.execute(insert).rowcount:
                return None
            return rows.find_value(connection, kind, key, self._database.now)

        return await self._database.write(work)

    async def put_value(self, kind: str, key: str, value: JsonObject, *, seconds: float) -> None:
        """Store a value for some time, in place of an earlier one."""
        row = rows.value_to_row(kind, key, value, self._database.now + seconds)
        upsert = self._database.upsert(values).values(row)
        await self._database.write_through(lambda it: it.execute(upsert))

    async def delete_value(self, kind: str, key: str) -> None:
        """Delete a value, if there is one."""
        query = delete(values).where(values.c.kind == kind, values.c.key == key)
        await self._database.write_through(lambda it: it.execute(query))


def _open_cluster(database: Database) -> Cluster | None:
    if database.dialect != "postgresql":
        return None
    # Imported when the database was opened.
    from nacre.storage.cluster import Cluster

    return Cluster(database)


def _count_turn(connection: Connection, session_id: str, title: str) -> SessionRecord:
    """Count a turn of a session; index the title that it gets by that."""
    session, new_title = rows.count_turn(connection, session_id, title=title)
    if new_title:
        text_search.put_title(connection, session_id, new_title, now())
    return session


def _add_messages(
    connection: Connection, session_id: str, run_id: str, messages: Sequence[Message]
) -> int:
    """Append and index the messages that are new; return how many the session has then."""
    count, new = rows.add_messages(connection, session_id, run_id, messages)
    text_search.add_messages(connection, session_id, run_id, new, count - len(new), now())
    return count
