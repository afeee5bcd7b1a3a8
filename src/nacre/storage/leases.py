"""Leases: which process serves a session of a database server, and what it may write.

A process that serves a session holds its lease and renews it. When the lease has expired, or when
the lock of its process is gone, another process takes the session over with a higher epoch. Each
write for a session checks the epoch in its transaction, so a process that was stopped for a while
and continues cannot write any more. All times are those of the database.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import Double, bindparam, literal_column, select, text

from nacre.errors import LeaseLostError, StorageError
from nacre.storage.records import (
    GatewayRecord,
    InboxItem,
    Lease,
    TakenSession,
)
from nacre.storage.rows import load_damaged, turn_state_from_row
from nacre.storage.schema import inbox, leases, turn_states, turns

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence, Set

    from sqlalchemy.engine import Connection, RowMapping

    from nacre.storage.database import Database
    from nacre.storage.records import TurnState

LEASE_SECONDS: Final = 15.0
RENEW_SECONDS: Final = 5.0
"""How often a process renews all its leases."""
_MAX_TAKEN: Final = 100

_NOW: Final = "(extract(epoch from clock_timestamp())::double precision)"
_NOW_COLUMN: Final = literal_column(_NOW, Double)
_LIVE: Final = "('queued', 'running', 'waiting')"

# A takeover locks the row for update and waits for these writes; a renewal does not.
_CHECK: Final = (
    select(leases.c.epoch)
    .where(
        leases.c.session_id == bindparam("of_session"),
        leases.c.owner == bindparam("of_owner"),
        leases.c.epoch == bindparam("of_epoch"),
    )
    .with_for_update(read=True, key_share=True)
)
_TAKE: Final = text(
    f"""
    INSERT INTO nacre_leases (session_id, owner, epoch, expires)
    VALUES (:session_id, :owner, nextval('nacre_epochs'), {_NOW} + :seconds)
    ON CONFLICT DO NOTHING RETURNING epoch
    """
)
_FIND: Final = text(
    f"SELECT owner, epoch, expires <= {_NOW} AS is_expired FROM nacre_leases "
    "WHERE session_id = :session_id FOR KEY SHARE"
)
_RENEW: Final = text(
    f"UPDATE nacre_leases SET expires = {_NOW} + :seconds WHERE owner = :owner "
    "RETURNING session_id, epoch"
)
_RENEW_GATEWAY: Final = text(f"UPDATE nacre_gateways SET renewed = {_NOW} WHERE owner = :owner")
# Waits for transactions that add to the inbox; the next statement sees what they have added.
_LOCK: Final = text(
    "SELECT session_id FROM nacre_leases WHERE owner = :owner ORDER BY session_id FOR UPDATE"
)
_LOCK_SOME: Final = text(
    "SELECT session_id FROM nacre_leases WHERE owner = :owner "
    "AND session_id = ANY(:session_ids) ORDER BY session_id FOR UPDATE"
)
# A message may have come, and its turn may have begun, since somebody saw that nothing runs.
_RELEASE: Final = text(
    """
    DELETE FROM nacre_leases WHERE session_id = ANY(:session_ids) AND owner = :owner
    AND session_id NOT IN (SELECT session_id FROM nacre_inbox WHERE state <> 'done')
    AND session_id NOT IN (SELECT session_id FROM nacre_turns
        WHERE session_id = ANY(:session_ids) AND status = 'running')
    """
)
# Nobody could renew a lease while the server was down. 0 is that of an owner that has left.
_STARTED: Final = "extract(epoch from pg_postmaster_start_time())"
_EXPIRED: Final = (
    f"(expires <= {_NOW} AND (expires = 0 "
    f"OR expires - :seconds > {_STARTED} OR {_NOW} > {_STARTED} + :seconds))"
)
_TAKE_OVER: Final = """
    WITH gone AS (
        SELECT session_id FROM nacre_leases
        WHERE owner <> :owner AND ({expired} OR owner = ANY(:dead)) {condition}
        OR owner = :owner AND :is_uncertain AND NOT session_id = ANY(:known)
        ORDER BY session_id LIMIT :most FOR UPDATE SKIP LOCKED
    )
    UPDATE nacre_leases SET owner = :owner, epoch = nextval('nacre_epochs'),
        expires = {now} + :seconds
    FROM gone WHERE nacre_leases.session_id = gone.session_id
    RETURNING nacre_leases.session_id, nacre_leases.epoch
"""
_TAKE_OVER_ANY: Final = text(_TAKE_OVER.format(now=_NOW, expired=_EXPIRED, condition=""))
_TAKE_OVER_ONE: Final = text(
    _TAKE_OVER.format(now=_NOW, expired=_EXPIRED, condition="AND session_id = :session_id")
)
_ADOPT: Final = tuple(
    map(
        text,
        (
            "UPDATE nacre_turns SET owner = :owner "
            "WHERE session_id = ANY(:session_ids) AND status = 'running'",
            "UPDATE nacre_cells SET owner = :owner, epoch = epoch + 1 "
            "WHERE session_id = ANY(:session_ids)",
            # Their turns can neither be continued nor begin: nobody is going to end them.
            f"""
            UPDATE nacre_runs SET state = 'interrupted', owner = :owner, updated = {_NOW}
            WHERE session_id = ANY(:session_ids) AND state IN {_LIVE}
            AND run_id NOT IN (SELECT run_id FROM nacre_turn_states)
            AND run_id NOT IN (SELECT run_id FROM nacre_inbox
                WHERE session_id = ANY(:session_ids) AND kind = 'message'
                AND NOT EXISTS (SELECT FROM nacre_turns
                    WHERE nacre_turns.run_id = nacre_inbox.run_id))
            """,
        ),
    )
)
_INTERRUPT: Final = text(
    """
    UPDATE nacre_turns SET status = 'interrupted'
    WHERE session_id = ANY(:session_ids) AND status = 'running'
    AND run_id NOT IN (SELECT run_id FROM nacre_turn_states) RETURNING run_id
    """
)
_WITHDRAW: Final = text(
    f"""
    UPDATE nacre_approvals SET state = 'given_up', answer = '{{"answer":"withdrawn"}}',
        answered = {_NOW}
    WHERE state = 'open' AND run_id = ANY(:run_ids)
    """
)
_ADD_GATEWAY: Final = text(
    f"""
    INSERT INTO nacre_gateways (owner, name, address, machine, version, started, renewed)
    VALUES (:owner, :name, :address, :machine, :version, {_NOW}, {_NOW})
    ON CONFLICT (owner) DO UPDATE SET name = :name, address = :address
    """
)
# A process that was forgotten while it had no lock may have taken a lease since then.
_OWNERS: Final = text("SELECT owner FROM nacre_gateways UNION SELECT owner FROM nacre_leases")
# Turns that an older version has begun, or a process without a lease.
_LEASE_ORPHANS: Final = text(
    """
    INSERT INTO nacre_leases (session_id, owner, epoch, expires)
    SELECT session_id, '', nextval('nacre_epochs'), 0 FROM (
        SELECT session_id FROM nacre_turns
        WHERE status = 'running' AND NOT owner = ANY(:alive)
        UNION SELECT session_id FROM nacre_inbox WHERE state <> 'done'
    ) AS orphans
    ON CONFLICT DO NOTHING
    """
)
_HAND_OVER: Final = tuple(
    map(
        text,
        (
            """
            DELETE FROM nacre_leases WHERE owner = :owner
            AND session_id NOT IN (SELECT session_id FROM nacre_inbox WHERE state <> 'done')
            AND session_id NOT IN (SELECT session_id FROM nacre_turn_states)
            """,
            "UPDATE nacre_leases SET expires = 0 WHERE owner = :owner",
            "DELETE FROM nacre_gateways WHERE owner = :owner",
        ),
    )
)
_END_RUN: Final = text(
    f"""
    UPDATE nacre_runs SET state = 'interrupted', updated = {_NOW}
    WHERE run_id = :run_id AND state IN {_LIVE}
    """
)
_FORGET: Final = tuple(
    map(
        text,
        (
            f"""
            UPDATE nacre_runs SET state = 'interrupted', updated = {_NOW}
            WHERE owner = ANY(:owners) AND state IN {_LIVE}
            AND session_id NOT IN (SELECT session_id FROM nacre_leases)
            """,
            """
            DELETE FROM nacre_gateways WHERE owner = ANY(:owners)
            AND owner NOT IN (SELECT owner FROM nacre_leases)
            """,
        ),
    )
)
_GATEWAYS: Final = text(
    f"""
    SELECT nacre_gateways.*, {_NOW} - renewed AS age,
        (SELECT count(*) FROM nacre_leases WHERE nacre_leases.owner = nacre_gateways.owner)
            AS sessions,
        (SELECT count(*) FROM nacre_runs WHERE nacre_runs.owner = nacre_gateways.owner
            AND state = 'queued') AS queued,
        (SELECT count(*) FROM nacre_runs WHERE nacre_runs.owner = nacre_gateways.owner
            AND state = 'running') AS running,
        (SELECT count(*) FROM nacre_runs WHERE nacre_runs.owner = nacre_gateways.owner
            AND state = 'waiting') AS waiting,
        (SELECT count(*) FROM nacre_inbox JOIN nacre_leases USING (session_id)
            WHERE nacre_leases.owner = nacre_gateways.owner AND nacre_inbox.state = 'open')
            AS inbox
    FROM nacre_gateways ORDER BY started, owner
    """
)


def _do_nothing(_connection: Connection, _lease: Lease) -> None:
    pass


@dataclass(frozen=True, kw_only=True, slots=True)
class Takeover:
    """What one look at the leases of other processes has found."""

    sessions: Sequence[TakenSession] = ()
    suspects: frozenset[str] = frozenset()
    """The processes without a lock; they are dead if they have none at the next look either."""


class Leases:
    """The leases of this process. Every method raises StorageError when the database fails."""

    def __init__(self, database: Database, *, seconds: float = LEASE_SECONDS) -> None:
        self._database = database
        self._seconds = seconds
        self._taking: set[str] = set()
        self._registration: dict[str, str] = {}
        # Whether a takeover may have been committed whose sessions this process does not know.
        self._is_uncertain = False
        self.held: dict[str, int] = {}
        """The epoch of each session that this process serves. A lease that was lost stays here
        until `release`, so that late writes fail."""

    @property
    def owner(self) -> str:
        """The id of this process."""
        return self._database.ownership.owner

    # Gateways.

    async def register(self, *, name: str, address: str, machine: str, version: str) -> None:
        """Add this process to the list of gateways."""
        row = {"name": name, "address": address, "machine": machine, "version": version}

        def work(connection: Connection) -> None:
            connection.execute(_ADD_GATEWAY, {"owner": self.owner, **row})
            alive = self._database.ownership.alive(connection)
            connection.execute(_LEASE_ORPHANS, {"alive": sorted(alive)})

        await self._database.write_through(work)
        self._registration = row

    async def gateways(self) -> list[GatewayRecord]:
        """List the gateways, the oldest first."""

        def work(connection: Connection) -> list[GatewayRecord]:
            alive = self._database.ownership.alive(connection)
            found = connection.execute(_GATEWAYS).mappings()
            return [_gateway_from_row(row, alive, self._seconds) for row in found]

        return await self._database.read(work)

    # Leases of this process.

    async def take(
        self, session_id: str, work: Callable[[Connection, Lease], None] = _do_nothing
    ) -> Lease:
        """Take the lease of a session if nobody has it; returns that of the process that has it.

        `work` runs in the same transaction. It must detect that an earlier attempt was committed.
        """

        def take_and_work(connection: Connection) -> Lease:
            lease = self._take_in(connection, session_id)
            work(connection, lease)
            return lease

        self._taking.add(session_id)
        try:
            lease = await self._database.write_through(take_and_work)
            if lease.owner == self.owner:
                self.held[session_id] = lease.epoch
            return lease
        finally:
            self._taking.discard(session_id)

    def _take_in(self, connection: Connection, session_id: str) -> Lease:
        given = {"session_id": session_id, "owner": self.owner, "seconds": self._seconds}
        if session_id in self.held:
            lease = find_lease(connection, session_id)
            if lease is not None:
                return lease
        while True:
            epoch = connection.execute(_TAKE, given).scalar()
            if epoch is not None:
                return Lease(session_id=session_id, owner=self.owner, epoch=epoch)
            # None if it was released in between.
            if (lease := find_lease(connection, session_id)) is not None:
                return lease

    async def give(self, session_id: str, owner: str) -> None:
        """Give the lease of a session that nobody has to another process."""
        given = {"session_id": session_id, "owner": owner, "seconds": self._seconds}
        await self._database.write_through(lambda it: it.execute(_TAKE, given))

    async def find(self, session_id: str) -> Lease | None:
        """Return the lease of a session, also if it has expired."""
        return await self._database.read(lambda it: find_lease(it, session_id))

    def check(self, connection: Connection, session_id: str) -> None:
        """Raise LeaseLostError if this process has lost the lease, and make a takeover wait for the
        end of the transaction. Does nothing for a session without a lease of this process."""
        epoch = self.held.get(session_id)
        if epoch is None:
            return
        given = {"of_session": session_id, "of_owner": self.owner, "of_epoch": epoch}
        if connection.execute(_CHECK, given).first() is None:
            raise _lost(session_id)

    def check_run(self, connection: Connection, run_id: str) -> None:
        """The same for the session of a turn. A turn that another process has taken over is lost,
        also after this one has forgotten the lease."""
        query = select(turns.c.session_id, turns.c.owner, turns.c.status)
        turn = connection.execute(query.where(turns.c.run_id == run_id)).first()
        if turn is None:
            return
        if turn.session_id in self.held:
            self.check(connection, turn.session_id)
        elif (turn.owner, turn.status) != (self.owner, "running"):
            lease = find_lease(connection, turn.session_id)
            if lease is not None and lease.owner != self.owner:
                raise _lost(turn.session_id)

    def end_run(self, connection: Connection, run_id: str) -> None:
        """Mark a run as interrupted that no process continues, for its readers."""
        connection.execute(_END_RUN, {"run_id": run_id})
        notify(connection, '{"leases":1}')

    def find_lost(self, connection: Connection, session_ids: Set[str]) -> set[str]:
        """Return those of these sessions that this process served and has lost. A takeover of the
        others waits for the end of the transaction."""
        mine = {it: self.held[it] for it in sorted(session_ids) if it in self.held}
        if not mine:
            return set()
        query = (
            select(leases.c.session_id, leases.c.epoch)
            .where(leases.c.session_id.in_(mine), leases.c.owner == self.owner)
            .order_by(leases.c.session_id)
            .with_for_update(read=True, key_share=True)
        )
        found = {row.session_id: row.epoch for row in connection.execute(query)}
        return {it for it, epoch in mine.items() if found.get(it) != epoch}

    async def renew(self) -> list[str]:
        """Renew all leases of this process; returns the sessions whose lease is lost."""
        known = dict(self.held)

        def work(connection: Connection) -> dict[str, int]:
            is_listed = connection.execute(_RENEW_GATEWAY, {"owner": self.owner}).rowcount > 0
            if not is_listed and self._registration:
                # The others have forgotten this process while it had no lock.
                connection.execute(_ADD_GATEWAY, {"owner": self.owner, **self._registration})
            given = {"owner": self.owner, "seconds": self._seconds}
            return {row.session_id: row.epoch for row in connection.execute(_RENEW, given)}

        renewed = await self._database.write_through(work)
        return [
            session_id
            for session_id, epoch in known.items()
            if renewed.get(session_id) != epoch and self.held.get(session_id) == epoch
        ]

    async def release(self, session_ids: Sequence[str]) -> None:
        """Give up the leases of sessions that this process does not serve any more. A session with
        messages or a running turn keeps its lease, unless it was lost."""
        if not session_ids:
            return
        given = {"session_ids": [*session_ids], "owner": self.owner}
        before = {session_id: self.held.get(session_id) for session_id in session_ids}

        def work(connection: Connection) -> set[str]:
            connection.execute(_LOCK_SOME, given)
            connection.execute(_RELEASE, given)
            left = select(leases.c.session_id).where(
                leases.c.session_id.in_(session_ids), leases.c.owner == self.owner
            )
            return set(connection.execute(left).scalars())

        kept = await self._database.write_through(work)
        for session_id in session_ids:
            # A message may have taken the lease again meanwhile.
            if session_id not in kept and self.held.get(session_id) == before[session_id]:
                self.held.pop(session_id, None)

    async def hand_over(self) -> None:
        """Leave all sessions to other processes, and the list of gateways. Turns that wait and
        messages that have not begun are taken over."""

        def work(connection: Connection) -> None:
            connection.execute(_LOCK, {"owner": self.owner})
            for statement in _HAND_OVER:
                connection.execute(statement, {"owner": self.owner})
            notify(connection, '{"leases":1}')

        await self._database.write_through(work)
        self.held.clear()

    # Leases of others.

    async def take_over(
        self, *, suspects: Set[str] | None = None, session_id: str = "", continues: bool = True
    ) -> Takeover:
        """Take over sessions of processes that are dead, or have lost their leases.

        `suspects` are the processes that had no lock at the last look: a process that has lost its
        connection gets its lock back within moments. None means that one look is enough. Without
        `continues`, sessions whose turn waits are left to others.
        """

        def work(connection: Connection) -> Takeover:
            gone = self._find_gone(connection)
            dead = gone if suspects is None else gone & suspects
            given: dict[str, Any] = {"dead": sorted(dead), "most": _MAX_TAKEN}
            given |= {"owner": self.owner, "seconds": self._seconds}
            given["is_uncertain"] = self._is_uncertain
            given["known"] = [*self.held, *self._taking] if self._is_uncertain else []
            statement = _TAKE_OVER_ANY
            if session_id:
                statement, given["session_id"] = _TAKE_OVER_ONE, session_id
                if not continues and _has_waiting_turn(connection, session_id):
                    return Takeover(suspects=gone)
            epochs = {row.session_id: row.epoch for row in connection.execute(statement, given)}
            if epochs:
                return Takeover(sessions=self._adopt(connection, epochs), suspects=gone)
            if dead:
                for forget in _FORGET:
                    connection.execute(forget, {"owners": sorted(dead)})
            return Takeover(suspects=gone)

        try:
            found = await self._database.write(work)
        except StorageError as error:
            self._is_uncertain = self._is_uncertain or error.is_uncertain
            raise
        if not session_id and len(found.sessions) < _MAX_TAKEN:
            self._is_uncertain = False
        self.held.update({each.session_id: each.epoch for each in found.sessions})
        return found

    def _find_gone(self, connection: Connection) -> frozenset[str]:
        alive = self._database.ownership.alive(connection)
        return frozenset(connection.execute(_OWNERS).scalars()) - alive

    def _adopt(self, connection: Connection, epochs: dict[str, int]) -> list[TakenSession]:
        given = {"session_ids": [*epochs], "owner": self.owner}
        run_ids = [*connection.execute(_INTERRUPT, {"session_ids": [*epochs]}).scalars()]
        connection.execute(_WITHDRAW, {"run_ids": run_ids})
        for statement in _ADOPT:
            connection.execute(statement, given)
        states: dict[str, list[TurnState]] = {}
        waiting = (
            select(turn_states, (_NOW_COLUMN - turn_states.c.updated).label("age"))
            .join(turns, turns.c.run_id == turn_states.c.run_id)
            .where(turn_states.c.session_id.in_(epochs), turns.c.status == "running")
            .order_by(turns.c.started)
        )
        for row in connection.execute(waiting).mappings():
            states.setdefault(row["session_id"], []).append(turn_state_from_row(row))
        items: dict[str, list[InboxItem]] = {}
        for item in find_items(connection, [*epochs]):
            items.setdefault(item.session_id, []).append(item)
        notify(connection, '{"leases":1}')
        return [
            TakenSession(
                session_id=session_id,
                epoch=epoch,
                states=tuple(states.get(session_id, ())),
                items=tuple(items.get(session_id, ())),
            )
            for session_id, epoch in epochs.items()
        ]


def _lost(session_id: str) -> LeaseLostError:
    return LeaseLostError(
        f"another gateway serves the session {session_id} now; nothing was stored"
    )


def find_lease(connection: Connection, session_id: str) -> Lease | None:
    row = connection.execute(_FIND, {"session_id": session_id}).first()
    if row is None:
        return None
    return Lease(session_id=session_id, owner=row.owner, epoch=row.epoch, is_expired=row.is_expired)


def find_items(connection: Connection, session_ids: Sequence[str]) -> list[InboxItem]:
    """Return everything that is in the inbox of these sessions, in order."""
    query = select(inbox).where(inbox.c.session_id.in_(session_ids)).order_by(inbox.c.number)
    return [item_from_row(row) for row in connection.execute(query).mappings()]


def item_from_row(row: RowMapping) -> InboxItem:
    name = f"the inbox item {row['number']}"
    return InboxItem(
        number=row["number"],
        session_id=row["session_id"],
        run_id=row["run_id"],
        kind=row["kind"],
        payload=load_damaged(row["payload"], name),
        state=row["state"],
        result=load_damaged(row["result"], name) if row["result"] else {},
    )


def notify(connection: Connection, payload: str) -> None:
    """Send a notification to all processes when the transaction is committed."""
    connection.execute(text("SELECT pg_notify('nacre', :payload)"), {"payload": payload})


def _has_waiting_turn(connection: Connection, session_id: str) -> bool:
    query = select(turn_states.c.run_id).where(turn_states.c.session_id == session_id).limit(1)
    return connection.execute(query).first() is not None


def _gateway_from_row(row: RowMapping, alive: Set[str], seconds: float) -> GatewayRecord:
    state = "alive" if row["owner"] in alive else "dead"
    if state == "alive" and row["age"] > seconds:
        state = "silent"
    counts = {name: row[name] for name in ("sessions", "queued", "running", "waiting", "inbox")}
    return GatewayRecord(
        owner=row["owner"],
        name=row["name"],
        address=row["address"],
        machine=row["machine"],
        version=row["version"],
        started=row["started"],
        seconds_since_renewal=row["age"],
        state=state,
        **counts,
    )
