"""Leases of sessions on a real server: one process writes, whoever was stopped or killed."""

from __future__ import annotations

from collections import defaultdict
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, Final, cast

import anyio
import anyio.to_thread
import pytest
from anyio.from_thread import start_blocking_portal
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.util import await_only

from nacre.errors import LeaseLostError
from nacre.messages import Usage, user_message
from nacre.storage import Cluster, GatewayRecord, RunBatch, Store, open_store

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator

    from anyio.from_thread import BlockingPortal
    from sqlalchemy.engine import Connection

    from nacre.storage.database import Database
    from tests.storage.conftest import PostgresServer

PROCESSES: Final = range(3)
SESSIONS: Final = range(2)


def cluster_of(store: Store) -> Cluster:
    assert store.cluster is not None
    return store.cluster


def database_of(store: Store) -> Database:
    database: Database = vars(store)["_database"]
    return database


def is_alive(owner: str, found: list[GatewayRecord]) -> bool:
    return any(it.owner == owner and it.state != "dead" for it in found)


async def register(store: Store) -> None:
    await cluster_of(store).leases.register(name="g", address="", machine="m", version="1")


@pytest.fixture
async def stores(postgres: PostgresServer) -> AsyncGenerator[tuple[Store, Store]]:
    async with open_store(postgres.url()) as one, open_store(postgres.url()) as other:
        for store in (one, other):
            await register(store)
        await one.add_session(id="s", agent_id="main")
        yield one, other


def expire(server: PostgresServer, session_id: str = "s") -> None:
    server.sql(_expire(session_id))


def _expire(session_id: str) -> str:
    return f"UPDATE nacre_leases SET expires = 0 WHERE session_id = '{session_id}'"


def drop_lock(server: PostgresServer, store: Store) -> None:
    """End the connection with the lock of a process, as a kill does."""
    server.sql(_drop_lock(store))


def _drop_lock(store: Store) -> str:
    # The timeout is the time to wait for the end of the connection.
    return (
        "SELECT pg_terminate_backend(pid, 10000) FROM pg_locks WHERE locktype = 'advisory' "
        f"AND objid = {cluster_of(store).leases.owner}"
    )


async def begin(store: Store, run_id: str, items: tuple[int, ...] = ()) -> None:
    await store.begin_turn(
        run_id=run_id,
        session_id="s",
        prompt=user_message("hi"),
        model="",
        surface="",
        items=items,
    )


async def test_a_session_has_one_owner_until_it_is_released(stores: tuple[Store, Store]) -> None:
    one, other = map(cluster_of, stores)
    mine = await one.leases.take("s")
    assert (mine.owner, mine.is_expired) == (one.leases.owner, False)
    assert await other.leases.take("s") == mine
    assert await one.leases.take("s") == mine
    await one.leases.release(["s"])
    assert await other.leases.find("s") is None
    assert (await other.leases.take("s")).epoch > mine.epoch


async def test_a_session_whose_turn_has_begun_meanwhile_is_not_released(
    stores: tuple[Store, Store],
) -> None:
    leases = cluster_of(stores[0]).leases
    lease = await leases.take("s")
    await begin(stores[0], "r1")
    await leases.release(["s"])
    assert leases.held == {"s": lease.epoch}
    await stores[0].end_turn("r1", status="completed", messages=(), usage=Usage())
    await leases.release(["s"])
    assert leases.held == {}


async def test_every_write_of_an_owner_that_was_replaced_fails(
    stores: tuple[Store, Store], postgres: PostgresServer
) -> None:
    one, other = stores
    await cluster_of(one).leases.take("s")
    await begin(one, "r1")
    expire(postgres)
    (taken,) = (await cluster_of(other).leases.take_over()).sessions
    assert taken.session_id == "s"
    turn = await other.turn("r1")
    assert turn is not None
    assert turn.status == "interrupted"

    writes = (
        begin(one, "r2"),
        one.end_turn("r1", status="completed", messages=[user_message("hi")], usage=Usage()),
        one.add_events("r1", "s", [{"kind": "late"}]),
        one.cells.delete_turn_state("r1"),
    )
    for write in writes:
        with pytest.raises(LeaseLostError, match="another gateway serves the session s now"):
            await write
    assert await cluster_of(one).leases.renew() == ["s"]
    assert await other.messages("s") == []
    assert await other.events(run_id="r1") == []
    await begin(other, "r3")
    await cluster_of(one).leases.release(["s"])
    assert cluster_of(one).leases.held == {}
    # A write that failed before is repeated later.
    for run_id in ("r1", "r3"):
        with pytest.raises(LeaseLostError, match="another gateway"):
            await one.end_turn(run_id, status="completed", messages=[], usage=Usage())
    turn = await other.turn("r3")
    assert turn is not None
    assert turn.status == "running"
    assert await cluster_of(other).leases.renew() == []


async def test_a_process_without_its_lock_is_dead_at_the_second_look(
    stores: tuple[Store, Store], postgres: PostgresServer
) -> None:
    one, other = map(cluster_of, stores)
    await one.leases.take("s")
    first = await other.leases.take_over(suspects=frozenset())
    assert (first.sessions, first.suspects) == ((), frozenset())
    drop_lock(postgres, stores[0])
    seen = await other.leases.take_over(suspects=first.suspects)
    assert (seen.sessions, seen.suspects) == ((), {one.leases.owner})
    again = await other.leases.take_over(suspects=seen.suspects)
    assert [each.session_id for each in again.sessions] == ["s"]
    # A gateway without leases is forgotten.
    await other.leases.take_over(suspects=again.suspects)
    assert [it.owner for it in await other.leases.gateways()] == [other.leases.owner]


async def test_a_process_that_is_stopped_in_a_transaction_does_not_keep_its_locks(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nacre.storage.postgres._TRANSACTION_SECONDS", 0.3)
    async with open_store(postgres.url()) as one, open_store(postgres.url()) as other:
        # Only the server has this limit: a process that is stopped cannot give up by itself.
        monkeypatch.undo()
        await one.add_session(id="s", agent_id="main")
        await cluster_of(one).leases.take("s")
        await anyio.to_thread.run_sync(expire, postgres)
        attempts = 0

        async def until_taken() -> None:
            with anyio.fail_after(20):
                while not (await cluster_of(other).leases.take_over()).sessions:
                    pass

        def work(connection: Connection) -> None:
            nonlocal attempts
            attempts += 1
            cluster_of(one).leases.check(connection, "s")
            await_only(until_taken())
            connection.execute(text("SELECT 1"))

        with pytest.raises(LeaseLostError):
            await database_of(one).write(work)
        assert attempts == 2


async def test_a_process_that_was_forgotten_is_watched_and_listed_again(
    stores: tuple[Store, Store], postgres: PostgresServer
) -> None:
    one, other = map(cluster_of, stores)
    drop_lock(postgres, stores[0])
    # It has no sessions that would keep it in the list.
    assert (await other.leases.take_over()).sessions == ()
    assert [it.owner for it in await other.leases.gateways()] == [other.leases.owner]
    await one.leases.take("s")
    (taken,) = (await other.leases.take_over()).sessions
    assert taken.session_id == "s"
    await one.leases.renew()
    (_, last) = await other.leases.gateways()
    assert (last.owner, last.name, last.state) == (one.leases.owner, "g", "dead")


async def test_a_process_that_gets_its_lock_back_keeps_its_sessions(
    stores: tuple[Store, Store], postgres: PostgresServer
) -> None:
    one, other = map(cluster_of, stores)
    await one.leases.take("s")
    drop_lock(postgres, stores[0])
    seen = await other.leases.take_over(suspects=frozenset())
    with anyio.fail_after(10):
        while not is_alive(one.leases.owner, await other.leases.gateways()):
            await one.reconnect()
    found = await other.leases.take_over(suspects=seen.suspects)
    assert (found.sessions, found.suspects) == ((), frozenset())
    await begin(stores[0], "r1")


async def test_a_server_that_has_just_started_gives_processes_time_to_get_their_locks_back(
    own_postgres: PostgresServer,
) -> None:
    async with open_store(own_postgres.url()) as one:
        await register(one)
        await one.add_session(id="s", agent_id="main")
        await cluster_of(one).leases.take("s")
        await begin(one, "r1")
        await anyio.to_thread.run_sync(own_postgres.crash)
        await anyio.to_thread.run_sync(own_postgres.start_again)
        # As if the server had been down for longer than a lease.
        expired = "UPDATE nacre_leases SET expires = extract(epoch FROM pg_postmaster_start_time())"
        await anyio.to_thread.run_sync(own_postgres.sql, expired)
        # This process has not tried to connect again yet.
        async with open_store(own_postgres.url()) as other:
            assert (await cluster_of(other).leases.take_over()).sessions == ()
            assert await other.interrupt_open_turns() == 0
            # From its first sign of life on, its lock counts.
            await cluster_of(one).leases.renew()
            (taken,) = (await cluster_of(other).leases.take_over()).sessions
            assert taken.session_id == "s"


async def test_a_message_waits_for_its_turn_whoever_serves_the_session(
    stores: tuple[Store, Store], postgres: PostgresServer
) -> None:
    one, other = map(cluster_of, stores)
    accepted = await one.inbox.add_message("s", {"text": "a"}, run_id="r1")
    sent = await other.inbox.add_message("s", {"text": "b"}, run_id="r2")
    again = await other.inbox.add_message("s", {"text": "b"}, run_id="r2")
    assert (sent.lease.owner, again.number) == (one.leases.owner, sent.number)
    assert [item.payload for item in await one.inbox.open_items()] == [{"text": "b"}]
    assert await other.inbox.open_items() == []
    # The owner does not give up a session with messages.
    await one.leases.release(["s"])
    assert one.leases.held.keys() == {"s"}
    await begin(stores[0], "r1", items=(accepted.number,))
    expire(postgres)
    (taken,) = (await other.leases.take_over()).sessions
    assert [(item.number, item.run_id) for item in taken.items] == [(sent.number, "r2")]
    await begin(stores[1], "r2", items=(sent.number,))
    assert await other.inbox.open_items() == []
    assert await other.inbox.find(sent.number) is None


async def test_only_the_owner_answers_what_is_in_the_inbox(
    stores: tuple[Store, Store], postgres: PostgresServer
) -> None:
    one, other = map(cluster_of, stores)
    assert await other.inbox.add("s", "abort", {}, run_id="r1", key="k0") is None
    await one.leases.take("s")
    sent = await other.inbox.add("s", "abort", {"reason": "enough"}, run_id="r1", key="k1")
    assert sent is not None
    (item,) = await one.inbox.open_items()
    expire(postgres)
    (taken,) = (await other.leases.take_over()).sessions
    assert taken.items == (item,)
    with pytest.raises(LeaseLostError):
        await one.inbox.answer(item, {"wasAborted": True})
    await other.inbox.answer(item, {"wasAborted": False})
    found = await one.inbox.find(sent.number)
    assert found is not None
    assert (found.state, found.result) == ("done", {"wasAborted": False})


async def test_a_process_that_leaves_hands_over_what_is_not_done(
    stores: tuple[Store, Store],
) -> None:
    one, other = map(cluster_of, stores)
    await stores[0].add_session(id="idle", agent_id="main")
    await one.leases.take("idle")
    await one.inbox.add_message("s", {}, run_id="r1")
    await one.leases.hand_over()
    assert await other.leases.find("idle") is None
    (taken,) = (await other.leases.take_over(suspects=frozenset())).sessions
    assert (taken.session_id, [it.run_id for it in taken.items]) == ("s", ["r1"])


async def test_notifications_reach_all_processes(stores: tuple[Store, Store]) -> None:
    one, other = map(cluster_of, stores)
    heard: list[tuple[str, Any]] = []
    news = anyio.Event()

    def receive(kind: str, content: Any) -> None:
        heard.append((kind, content))
        news.set()

    await one.listen(receive, on_lost=lambda: None)
    await one.leases.take("s")
    await other.inbox.add("s", "abort", {}, run_id="r1", key="")
    with anyio.fail_after(10):
        await news.wait()
    assert heard == [("inbox", one.leases.owner)]


async def test_readers_at_other_processes_get_events_after_the_last_one_they_have(
    stores: tuple[Store, Store], postgres: PostgresServer
) -> None:
    one, other = map(cluster_of, stores)

    def batch(state: str, *sequences: int) -> RunBatch:
        return RunBatch(
            run_id="r1",
            session_id="s",
            state=state,
            data={"agentId": "main"},
            events=[{"sequence": it, "kind": "text.delta"} for it in sequences],
            is_changed=True,
        )

    await one.leases.take("s")
    await one.feed.write([batch("running", 0, 1, 2)])
    await one.feed.write([batch("waiting", 3)])
    (fed,) = await other.feed.read({"r1": 1})
    assert [event["sequence"] for event in fed.events] == [2, 3]
    (fed,) = await other.feed.read({"r1": 2})
    assert [event["sequence"] for event in fed.events] == [3]
    (live,) = await other.feed.live_runs()
    assert (live, live.state) == (fed.record, "waiting")
    assert (await one.feed.live_runs(), await other.feed.live_runs("s")) == ([], [live])
    expire(postgres)
    await other.leases.take_over()
    # What the old owner adds is left out, and its run is over.
    await one.feed.write([batch("completed", 4)])
    (fed,) = await other.feed.read({"r1": 3})
    assert (fed.events, fed.record.state) == ([], "interrupted")


# The protocol as a state machine: any order of steps of three processes, two sessions and a clock.


@dataclass(kw_only=True)
class World:
    """Three processes, whose stores are open for all examples."""

    engine: AsyncEngine
    portal: BlockingPortal
    stores: list[Store]
    numbers: count[int] = field(default_factory=count)
    without_lock: set[int] = field(default_factory=set[int])

    def sql(self, statement: str) -> None:
        async def run() -> None:
            async with self.engine.connect() as connection:
                await connection.execute(text(statement))

        self.portal.call(run)


@pytest.fixture
def world(postgres: PostgresServer) -> Generator[World]:
    with ExitStack() as stack:
        portal = stack.enter_context(start_blocking_portal())
        stores = [
            stack.enter_context(portal.wrap_async_context_manager(open_store(postgres.url())))
            for _ in PROCESSES
        ]
        for store in stores:
            portal.call(register, store)
        url = postgres.url().replace("postgresql", "postgresql+asyncpg", 1)
        engine = create_async_engine(url, isolation_level="AUTOCOMMIT")
        stack.callback(portal.call, engine.dispose)
        yield World(engine=engine, portal=portal, stores=stores)


process = st.sampled_from(PROCESSES)
session = st.sampled_from(SESSIONS)


class LeaseMachine(RuleBasedStateMachine):
    """Compares the store with a model: who owns a session, and what each process believes."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self.world = world
        number = next(world.numbers)
        self.ids = [f"s{number}_{it}" for it in SESSIONS]
        self.clusters = [cluster_of(store) for store in world.stores]
        self.owner: dict[int, tuple[int, int]] = {}
        self.expired: set[int] = set()
        self.without_lock = world.without_lock
        self.highest = defaultdict[int, int](int)
        self.sent = defaultdict[int, set[int]](set)
        self.known = defaultdict[int, dict[int, int]](dict)
        self.begun: list[int] = []
        # What an earlier example has left.
        world.sql("TRUNCATE nacre_leases, nacre_inbox")
        for cluster in self.clusters:
            cluster.leases.held.clear()
        for store_id in self.ids:
            self.call(world.stores[0].add_session, id=store_id, agent_id="main")
        for which in [*self.without_lock]:
            self.restore_lock(which)

    def call(self, function: Any, *given: Any, **named: Any) -> Any:
        return self.world.portal.call(partial(function, *given, **named))

    def owns(self, which: int, of: int) -> bool:
        held = self.clusters[which].leases.held
        return self.owner.get(of) == (which, held.get(self.ids[of], -1))

    def note_owner(self, of: int, which: int, epoch: int) -> None:
        assert epoch > self.highest[of], "an epoch must grow with each owner"
        self.highest[of] = epoch
        self.owner[of] = (which, epoch)
        self.expired.discard(of)

    def which(self, owner: str) -> int:
        return next(it for it in PROCESSES if self.clusters[it].leases.owner == owner)

    @rule(which=process, of=session)
    def take(self, which: int, of: int) -> None:
        lease = self.call(self.clusters[which].leases.take, self.ids[of])
        self.check_taken(which, of, lease)

    def check_taken(self, which: int, of: int, lease: Any) -> None:
        if of not in self.owner:
            self.note_owner(of, which, lease.epoch)
        assert (self.which(lease.owner), lease.epoch) == self.owner[of]

    @rule(which=process, of=session)
    def send(self, which: int, of: int) -> None:
        key = f"k{next(self.world.numbers)}"
        inbox = self.clusters[which].inbox
        accepted = self.call(inbox.add_message, self.ids[of], {}, run_id=key)
        self.check_taken(which, of, accepted.lease)
        # Once more, as after a commit whose response is lost.
        again = self.call(inbox.add_message, self.ids[of], {}, run_id=key)
        assert (again.number, again.is_new) == (accepted.number, False)
        self.sent[of].add(accepted.number)
        if self.owns(which, of):
            self.known[which][accepted.number] = of

    @rule(which=process)
    def read_inbox(self, which: int) -> None:
        items = self.call(self.clusters[which].inbox.open_items)
        for item in items:
            if item.session_id in self.ids:
                of = self.ids.index(item.session_id)
                assert self.owner[of][0] == which
                self.known[which][item.number] = of

    @rule(which=process)
    def begin_turns(self, which: int) -> None:
        """Also with messages that the process knew before it lost their session."""
        for number, of in list(self.known[which].items()):
            if self.ids[of] not in self.clusters[which].leases.held:
                continue
            run_id = f"r{next(self.world.numbers)}"
            try:
                self.world.portal.call(self.begin, which, of, run_id, number)
            except LeaseLostError:
                assert not self.owns(which, of)
                continue
            assert self.owns(which, of)
            if number in self.sent[of]:
                self.sent[of].remove(number)
                self.begun.append(number)
            del self.known[which][number]

    async def begin(self, which: int, of: int, run_id: str, number: int) -> None:
        store = self.world.stores[which]
        if await self.clusters[which].inbox.find(number) is None:
            # Another owner has begun it; a process that knows better does not begin it again.
            await store.add_events("any", self.ids[of], [{"kind": "fenced"}])
            return
        # A process that has lost its lock gets it back before it begins a turn.
        self.without_lock.discard(which)
        await store.begin_turn(
            run_id=run_id,
            session_id=self.ids[of],
            prompt=None,
            model="",
            surface="",
            items=[number],
        )
        await store.end_turn(run_id, status="completed", messages=(), usage=Usage())

    @rule(which=process, of=session)
    def write(self, which: int, of: int) -> None:
        if self.ids[of] not in self.clusters[which].leases.held:
            return
        store = self.world.stores[which]
        try:
            self.call(store.add_events, "any", self.ids[of], [{"kind": "fenced"}])
        except LeaseLostError:
            assert not self.owns(which, of)
        else:
            assert self.owns(which, of)

    @rule(of=session)
    def let_time_pass(self, of: int) -> None:
        self.world.sql(_expire(self.ids[of]))
        if of in self.owner:
            self.expired.add(of)

    @rule(which=process)
    def renew(self, which: int) -> None:
        held = self.clusters[which].leases.held
        lost = {it for it in SESSIONS if self.ids[it] in held and not self.owns(which, it)}
        assert {*self.call(self.clusters[which].leases.renew)} == {self.ids[it] for it in lost}
        self.expired -= {it for it in SESSIONS if self.owner.get(it, (-1, 0))[0] == which}

    @rule(which=process, of=session)
    def release(self, which: int, of: int) -> None:
        leases = self.clusters[which].leases
        self.call(leases.release, [self.ids[of]])
        if self.owner.get(of, (-1, 0))[0] == which and not self.sent[of]:
            del self.owner[of]
            self.expired.discard(of)
        assert (self.ids[of] in leases.held) <= (self.owner.get(of, (-1, 0))[0] == which)

    @rule(which=process)
    def lose_lock(self, which: int) -> None:
        self.world.sql(_drop_lock(self.world.stores[which]))
        self.without_lock.add(which)

    @rule(which=process)
    def restore_lock(self, which: int) -> None:
        self.call(self.lock_again, which)
        self.without_lock.discard(which)

    async def lock_again(self, which: int) -> None:
        leases = self.clusters[which].leases
        # A process that was forgotten because it had no lock is back.
        await register(self.world.stores[which])
        with anyio.fail_after(30):
            while True:
                await self.clusters[which].reconnect()
                # As another process sees it.
                other = self.clusters[(which + 1) % len(self.clusters)].leases
                if is_alive(leases.owner, await other.gateways()):
                    return

    @rule(which=process)
    def take_over(self, which: int) -> None:
        expected = {
            self.ids[of]
            for of, (owner, _) in self.owner.items()
            if owner != which and (of in self.expired or owner in self.without_lock)
        }
        found = self.call(self.clusters[which].leases.take_over)
        taken = {it.session_id: it for it in found.sessions if it.session_id in self.ids}
        assert taken.keys() == expected
        for session_id, each in taken.items():
            of = self.ids.index(session_id)
            self.note_owner(of, which, each.epoch)
            assert {item.number for item in each.items} == self.sent[of]
            self.known[which] |= {item.number: of for item in each.items}

    @invariant()
    def no_message_begins_twice(self) -> None:
        assert len(self.begun) == len(set(self.begun))


def test_the_protocol_holds_in_every_order_of_steps(world: World) -> None:
    run_state_machine_as_test(
        cast("type[LeaseMachine]", partial(LeaseMachine, world)),
        settings=settings(
            max_examples=15,
            stateful_step_count=40,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
        ),
    )


async def test_an_unused_lease_costs_nothing_on_a_file() -> None:
    async with open_store("sqlite:///:memory:") as store:
        assert store.cluster is None
