"""The door to everything that is kept: sessions, turns, messages, trajectories, approvals.

SQLAlchemy is imported when a store is opened and not before: it is heavy, and an optional extra.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Final

import anyio.to_thread

from nacre.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from nacre.json_types import JsonObject
    from nacre.messages import Message, Usage
    from nacre.storage.database import Database
    from nacre.storage.records import (
        ApprovalRecord,
        Compaction,
        SessionRecord,
        StoredEvent,
        StoredMessage,
        TurnRecord,
        TurnStatus,
    )
    from nacre.storage.rows import Rows

LOCK_SECONDS: Final = 10.0
"""How long a write waits for another process that writes to the same SQLite file."""


class Store:
    """A database that is open. Every method raises StorageError when the database fails it.

    A method that returned has committed; one that raised has changed nothing, or says that this
    `is_uncertain`.
    """

    def __init__(self, database: Database, rows: Rows) -> None:
        self._place = database.address
        self._sessions = rows.sessions
        self._turns = rows.turns
        self._messages = rows.messages
        self._events = rows.events
        self._approvals = rows.approvals

    @classmethod
    @asynccontextmanager
    async def open(cls, url: str, *, lock_seconds: float = LOCK_SECONDS) -> AsyncGenerator[Store]:
        """`async with Store.open("sqlite:///~/nacre.db") as store`, or a `postgresql://` URL.

        Makes the file, its folder and the tables where they are missing.
        """
        # In a thread: importing takes longer than an event loop should stand still.
        await anyio.to_thread.run_sync(_import_all)
        from nacre.storage.connect import open_database
        from nacre.storage.rows import rows_in

        async with open_database(url, lock_seconds=lock_seconds) as database:
            yield cls(database, rows_in(database))

    @property
    def place(self) -> str:
        """Where it all is, for people: a path, or a URL without its password."""
        return self._place

    async def session(self, session_id: str) -> SessionRecord | None:
        return await self._sessions.by_id(session_id)

    async def session_by_key(self, agent_id: str, key: str) -> SessionRecord | None:
        return await self._sessions.by_key(agent_id, key)

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
        """A new session, or the one that is there already with this id or this agent and key.

        Raises SessionError (`invalid`) for an id that belongs to another agent or key.
        """
        return await self._sessions.add(
            id=id, agent_id=agent_id, key=key, channel=channel, sender=sender, title=title
        )

    async def sessions(
        self,
        *,
        agent_id: str | None = None,
        key: str | None = None,
        limit: int = 50,
        before: str | None = None,
    ) -> list[SessionRecord]:
        """The last used first; `before` is the `cursor` of the last one of the page before."""
        return await self._sessions.newest(agent_id=agent_id, key=key, limit=limit, before=before)

    async def messages(self, session_id: str, *, whole: bool = False) -> list[StoredMessage]:
        """What a model is to be told: the last summary if there is one, and all messages since.

        The summary is a SystemMessage with `is_summary`. With `whole`: every message, no summary.
        """
        return await self._messages.of_session(session_id, whole=whole)

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
        """Note that a turn runs, and what was asked.

        Raises SessionError: `not_found` for a session that is not there, `invalid` for a run id
        that was used before, `busy` if it is to be exclusive and another turn of it runs.
        """
        await self._turns.begin(
            run_id=run_id,
            session_id=session_id,
            prompt=prompt,
            model=model,
            surface=surface,
            is_exclusive=is_exclusive,
        )

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
        """Write the whole turn at once: its messages, its usage, how it ended.

        `messages` are all of it, the prompt first; `events` are what `add_events` has not been
        given of its trajectory. What may be over in a moment, such as a full disk or a server that
        starts anew, is tried again for some seconds. Raises SessionError: `not_found`, `ended` if
        it was ended before, `invalid` for a status or a compaction that cannot be.
        """
        await self._turns.end(
            run_id,
            status=status,
            messages=messages,
            usage=usage,
            error=error,
            compaction=compaction,
            data=data,
            events=events,
        )

    async def turn(self, run_id: str) -> TurnRecord | None:
        return await self._turns.by_id(run_id)

    async def turns(self, session_id: str, limit: int = 100) -> list[TurnRecord]:
        """The last `limit` turns, the oldest of them first."""
        return await self._turns.of_session(session_id, limit=limit)

    async def interrupt_open_turns(self) -> int:
        """Mark the turns whose process is gone as `interrupted`, and say how many; for the start.

        Their open approvals are given up.
        Turns of processes that still have the database open are left alone.
        """
        return await self._turns.interrupt_orphans()

    async def add_compaction(self, session_id: str, *, up_to_sequence: int, summary: str) -> None:
        """From now on `summary` stands for all messages up to that one; they stay readable.

        Raises SessionError: `not_found`, or `invalid` for a sequence that is not there.
        """
        await self._messages.add_compaction(
            session_id, up_to_sequence=up_to_sequence, summary=summary
        )

    async def add_events(self, run_id: str, session_id: str, events: Sequence[JsonObject]) -> None:
        """Keep events of a trajectory; the session need not be a stored one."""
        await self._events.add(run_id, session_id, events)

    async def events(
        self,
        *,
        run_id: str | None = None,
        session_id: str | None = None,
        after: int = -1,
        limit: int = 1000,
    ) -> list[StoredEvent]:
        """In the order in which they were stored; `after` is the `number` of the last one seen."""
        return await self._events.find(
            run_id=run_id, session_id=session_id, after=after, limit=limit
        )

    async def put_approval(self, record: ApprovalRecord) -> None:
        """Keep what was asked; later, with the same id, what was answered."""
        await self._approvals.put(record)

    async def approvals(
        self, *, session_id: str | None = None, limit: int = 100, is_closed: bool = False
    ) -> list[ApprovalRecord]:
        """The last asked first; with `is_closed`, without those that are open."""
        return await self._approvals.newest(session_id=session_id, limit=limit, is_closed=is_closed)


def _import_all() -> None:
    try:
        for module in ("nacre.storage.connect", "nacre.storage.rows"):
            import_module(module)
    except ModuleNotFoundError as error:
        raise StorageError(
            f"sessions cannot be stored: the module {error.name!r} is not installed; "
            "install it with: pip install 'nacre-ai[gateway]'"
        ) from error
