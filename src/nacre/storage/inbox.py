"""The inboxes of sessions: what any process accepts for the process that serves the session.

A message stays in the inbox until its turn has begun, so the next owner of the session finds it.
Aborts and answers stay until the end of their run: the next owner applies them again if the first
one ended before it stored what they changed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sqlalchemy import delete, select, text, update

from nacre.storage.leases import find_lease, item_from_row, notify
from nacre.storage.rows import dump_json
from nacre.storage.schema import inbox, turns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy.engine import Connection

    from nacre.json_types import JsonObject
    from nacre.storage.database import Database
    from nacre.storage.leases import Leases
    from nacre.storage.records import InboxItem, InboxKind, InboxState, Lease

_DAY_SECONDS: Final = 86_400.0
_ADD: Final = text(
    """
    INSERT INTO nacre_inbox
        (session_id, run_id, kind, key, payload, state, result, created)
    VALUES (:session_id, :run_id, :kind, :key, :payload, :state, '',
        extract(epoch from clock_timestamp()))
    ON CONFLICT (key) WHERE key <> '' DO NOTHING RETURNING number
    """
)
_OPEN: Final = text(
    """
    SELECT nacre_inbox.* FROM nacre_inbox JOIN nacre_leases USING (session_id)
    WHERE nacre_leases.owner = :owner AND nacre_inbox.state = 'open' ORDER BY number
    """
)
_DELETE_OLD: Final = text(
    "DELETE FROM nacre_inbox WHERE state = 'done' "
    "AND created < extract(epoch from clock_timestamp()) - :seconds"
)
_DEPTH: Final = text("SELECT count(*) FROM nacre_inbox WHERE state = 'open'")


@dataclass(frozen=True, kw_only=True, slots=True)
class Accepted:
    """Something that is in an inbox."""

    number: int
    """0 if its turn has begun."""
    lease: Lease
    is_new: bool = True
    """Whether it was not there before."""


class Inbox:
    """The inboxes of all sessions. Every method raises StorageError when the database fails."""

    def __init__(self, database: Database, leases: Leases) -> None:
        self._database = database
        self._leases = leases

    async def add_message(self, session_id: str, payload: JsonObject, *, run_id: str) -> Accepted:
        """Accept a message, and take the lease of its session if nobody has it.

        The message is `accepted` if this process has the lease, which handles it then. Nothing is
        added for a run that has a message already, or whose turn has begun.
        """
        number, is_added = 0, False
        row = _make_row(session_id, "message", payload, run_id=run_id, key=run_id)

        def work(connection: Connection, lease: Lease) -> None:
            nonlocal number, is_added
            is_mine = lease.owner == self._leases.owner
            state = "accepted" if is_mine else "open"
            added = connection.execute(_ADD, {**row, "state": state}).scalar()
            if added is not None and _has_begun(connection, run_id):
                connection.execute(delete(inbox).where(inbox.c.number == added))
                number, is_added = 0, False
                return
            # An earlier attempt may have added it.
            is_added = is_added or added is not None
            number = _find_number(connection, run_id) if added is None else added
            if added is not None and not is_mine:
                _notify_owner(connection, lease)

        lease = await self._leases.take(session_id, work)
        return Accepted(number=number, lease=lease, is_new=is_added)

    async def add(
        self, session_id: str, kind: InboxKind, payload: JsonObject, *, run_id: str, key: str
    ) -> Accepted | None:
        """Accept something for the owner of a session; None if nobody serves it."""
        row = _make_row(session_id, kind, payload, run_id=run_id, key=key)

        def work(connection: Connection) -> Accepted | None:
            lease = find_lease(connection, session_id)
            if lease is None:
                return None
            number = connection.execute(_ADD, {**row, "state": "open"}).scalar()
            _notify_owner(connection, lease)
            return Accepted(number=number or _find_number(connection, key), lease=lease)

        return await self._database.write_through(work)

    async def open_items(self) -> list[InboxItem]:
        """Return what this process has to handle, in order."""

        def work(connection: Connection) -> list[InboxItem]:
            found = connection.execute(_OPEN, {"owner": self._leases.owner}).mappings()
            return [item_from_row(row) for row in found]

        return await self._database.read(work)

    async def answer(
        self,
        item: InboxItem,
        result: JsonObject,
        *,
        state: InboxState = "done",
        run_id: str = "",
    ) -> None:
        """Record what became of an item, and notify the process that has sent it. Raises
        LeaseLostError if the next owner of the session handles it."""
        values = {"state": state, "result": dump_json(result, f"the inbox item {item.number}")}
        if run_id:
            values["run_id"] = run_id
        change = update(inbox).where(inbox.c.number == item.number).values(values)

        def work(connection: Connection) -> None:
            self._leases.check(connection, item.session_id)
            connection.execute(change)
            notify(connection, f'{{"result":{item.number}}}')

        await self._database.write_through(work)

    async def assign(self, numbers: Sequence[int], session_id: str, run_id: str) -> None:
        """Record which run takes messages. Raises LeaseLostError."""
        change = update(inbox).where(inbox.c.number.in_(numbers)).values(run_id=run_id)

        def work(connection: Connection) -> None:
            self._leases.check(connection, session_id)
            connection.execute(change)

        await self._database.write_through(work)

    async def find(self, number: int) -> InboxItem | None:
        """Return an item; None if its run has ended."""
        query = select(inbox).where(inbox.c.number == number)

        def work(connection: Connection) -> InboxItem | None:
            row = connection.execute(query).mappings().first()
            return None if row is None else item_from_row(row)

        return await self._database.read(work)

    async def delete(self, numbers: Sequence[int]) -> None:
        """Delete messages that no turn is going to take."""
        if numbers:
            query = delete(inbox).where(inbox.c.number.in_(numbers))
            await self._database.write_through(lambda it: it.execute(query))

    async def delete_old(self) -> None:
        """Delete what was handled a day ago."""
        given = {"seconds": _DAY_SECONDS}
        await self._database.write_through(lambda it: it.execute(_DELETE_OLD, given))

    async def count_open(self) -> int:
        """Return how many items of all sessions wait for their owner."""
        return await self._database.read(lambda it: it.execute(_DEPTH).scalar_one())


def _make_row(
    session_id: str, kind: InboxKind, payload: JsonObject, *, run_id: str, key: str
) -> dict[str, object]:
    return {
        "session_id": session_id,
        "run_id": run_id,
        "kind": kind,
        "key": key,
        "payload": dump_json(payload, f"the {kind} for the session {session_id}"),
    }


def _find_number(connection: Connection, key: str) -> int:
    """The number of the first item with a key; 0 if it was deleted."""
    number = connection.execute(select(inbox.c.number).where(inbox.c.key == key)).scalar()
    return number or 0


def _has_begun(connection: Connection, run_id: str) -> bool:
    # In a statement of its own, which sees a turn whose message was in the inbox until now.
    query = select(turns.c.run_id).where(turns.c.run_id == run_id)
    return connection.execute(query).first() is not None


def _notify_owner(connection: Connection, lease: Lease) -> None:
    notify(connection, f'{{"inbox":"{lease.owner}"}}')
