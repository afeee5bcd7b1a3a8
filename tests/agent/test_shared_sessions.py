"""Two services on one PostgreSQL: any of them serves any session, and takes over from the other."""

from __future__ import annotations

import json
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest

from nacre.agent import AgentRun, ClientResult, ClientTool, RemoteRun, TurnRequest
from nacre.errors import ApprovalError, SessionError, StorageError
from nacre.messages import ToolMessage
from nacre.sandbox import KeyRing, new_key
from nacre.storage import Cluster, Store, open_store
from nacre.tools import AllowOnce, Tool, ToolCall
from tests.agent.agent_setup import AgentSetup, kinds, open_agent
from tests.agent.fake_models import call, say

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence
    from pathlib import Path

    from nacre.agent.session_inbox import Placed
    from nacre.storage import InboxItem, TurnState
    from nacre.trajectory import RunEvent
    from tests.storage.conftest import PostgresServer

KEYS: Final = KeyRing(new_key())
DURABLE: Final = {"tools": {"codeMode": {"enabled": True, "durable": True}}}
PAY: Final = "return await tools.pay({sum: 7})"
ASK: Final = "return await tools.ask({question: 'why'})"


class Work:
    """A tool that waits until the test lets it go, and one that needs an approval."""

    def __init__(self) -> None:
        self.paid = 0
        self.is_held = anyio.Event()
        self.may_end = anyio.Event()

    def as_tools(self) -> list[Tool]:
        return [
            Tool(name="pay", execute=self._pay, needs_approval="money"),
            Tool(name="hold", execute=self._hold, catalog_mode="direct-only"),
        ]

    async def _pay(self, given: dict[str, Any], _call: ToolCall) -> object:
        self.paid += 1
        return given

    async def _hold(self, _given: dict[str, Any], _call: ToolCall) -> object:
        self.is_held.set()
        await self.may_end.wait()
        return "held"


@dataclass(kw_only=True)
class Gateways:
    """Two services, as in two processes, and the server that both use."""

    one: AgentSetup
    other: AgentSetup
    server: PostgresServer
    work: Work

    async def remote(self, run: AgentRun) -> RemoteRun:
        """The run as the other service sees it."""
        with anyio.fail_after(30):
            # Its first events are on their way.
            async for event in run.events.follow():
                if event.kind == "run.started":
                    break
            shared = self.one.service.shared
            assert shared is not None
            await shared.flush()
            found = await self.other.service.find_run(run.id)
        assert isinstance(found, RemoteRun)
        return found

    async def until_stored(self) -> None:
        """Wait until another process could continue the turn that waits."""
        query = "SELECT count(*) FROM nacre_turn_states"
        with anyio.fail_after(30):
            while await anyio.to_thread.run_sync(self.server.sql, query) != "1":
                pass

    def kill(self, setup: AgentSetup, *cut: AgentSetup) -> None:
        """End the connection with the lock of a service, and keep it from getting it back. Those
        of others are only cut."""
        cluster = cluster_of(setup.store)

        async def stay_away() -> None:
            await anyio.sleep_forever()

        vars(cluster)["reconnect"] = stay_away
        owners = ", ".join(cluster_of(each.store).leases.owner for each in (setup, *cut))
        self.server.sql(
            "SELECT pg_terminate_backend(pid, 10000) FROM pg_locks WHERE locktype = 'advisory' "
            f"AND objid IN ({owners})"
        )


def cluster_of(store: Store) -> Cluster:
    assert store.cluster is not None
    return store.cluster


@asynccontextmanager
async def open_service(
    server: PostgresServer, folder: Path, work: Work
) -> AsyncGenerator[AgentSetup]:
    async with (
        open_store(server.url()) as store,
        open_agent(
            store=store, folder=folder, document=DURABLE, tools=work.as_tools(), keys=KEYS
        ) as setup,
    ):
        await setup.service.continue_turns()
        yield setup


@pytest.fixture
async def gateways(postgres: PostgresServer, tmp_path: Path) -> AsyncGenerator[Gateways]:
    work = Work()
    async with AsyncExitStack() as stack:
        one = await stack.enter_async_context(open_service(postgres, tmp_path, work))
        other = await stack.enter_async_context(open_service(postgres, tmp_path, work))
        yield Gateways(one=one, other=other, server=postgres, work=work)


async def run_at(setup: AgentSetup, run_id: str) -> AgentRun:
    """The run, once the service has it."""
    found = anyio.Event()

    def look(run: AgentRun) -> None:
        if run.id == run_id:
            found.set()

    stop = setup.service.watch_runs(look)
    try:
        if setup.service.run(run_id) is None:
            await found.wait()
    finally:
        stop()
    run = setup.service.run(run_id)
    assert run is not None
    return run


async def end_of(run: AgentRun) -> str:
    with anyio.fail_after(30):
        await run.wait()
    return run.state


async def until_waiting(run: AgentRun) -> None:
    with anyio.fail_after(30):
        assert await run.waiting_or_ended() == "waiting", run.result


async def start_waiting(setup: AgentSetup, code: str = PAY, **options: Any) -> AgentRun:
    setup.model.will(call("exec", {"code": code}))
    run = await setup.start("buy it", **options)
    await until_waiting(run)
    return run


async def start_holding(gateways: Gateways, **options: Any) -> AgentRun:
    gateways.one.model.will(call("hold", {}))
    run = await gateways.one.start("hold it", **options)
    with anyio.fail_after(30):
        await gateways.work.is_held.wait()
    return run


async def test_a_message_at_another_gateway_steers_the_running_turn(gateways: Gateways) -> None:
    run = await start_holding(gateways)
    steered = await gateways.other.start("faster", session_id=run.session_id, queue_mode="steer")
    assert isinstance(steered, RemoteRun)
    assert steered.id == run.id
    gateways.one.model.will(say("done"))
    gateways.work.may_end.set()
    assert await end_of(run) == "completed"
    assert await end_of(steered) == "completed"
    assert steered.result is not None
    assert (steered.result.text, steered.result.usage) == ("done", run.result and run.result.usage)
    assert "faster" in str(gateways.one.model.requests[-1].messages)
    assert await cluster_of(gateways.one.store).inbox.open_items() == []


async def test_a_message_at_another_gateway_is_queued_behind_the_running_turn(
    gateways: Gateways,
) -> None:
    run = await start_holding(gateways)
    queued = await gateways.other.start("next", session_id=run.session_id, queue_mode="followup")
    assert queued.state == "queued"
    gateways.one.model.will(say("first"), say("second"))
    gateways.work.may_end.set()
    assert (await end_of(run), await end_of(queued)) == ("completed", "completed")
    turns = await gateways.other.store.turns(run.session_id)
    assert [turn.run_id for turn in turns] == [run.id, queued.id]


async def test_a_message_is_not_refused_when_it_is_stored_already(gateways: Gateways) -> None:
    run = await start_holding(gateways)
    inbox = cluster_of(gateways.other.store).inbox
    find = inbox.find

    seen: set[int] = set()

    async def fail_at_first(number: int) -> InboxItem | None:
        if number not in seen:
            seen.add(number)
            raise StorageError("the database is away for a moment")
        return await find(number)

    async def send(text: str) -> AgentRun:
        sent = await gateways.other.start(text, session_id=run.session_id, queue_mode="followup")
        assert sent.state == "queued"
        return sent

    vars(inbox)["find"] = fail_at_first
    second = await send("second")
    with anyio.fail_after(30):
        await run_at(gateways.one, second.id)
    server = vars(gateways.one.service)

    async def refuse(_request: TurnRequest, _placed: Placed) -> AgentRun:
        del server["start_here"]
        raise SessionError("the queue is full", code="busy")

    server["start_here"] = refuse
    third = await send("third")
    assert await end_of(third) == "interrupted"
    assert third.result is not None
    assert third.result.error == "the queue is full"

    gateways.one.model.will(say("first"), say("done"))
    gateways.work.may_end.set()
    assert await end_of(second) == "completed"
    turns = await gateways.one.store.turns(run.session_id)
    assert [turn.run_id for turn in turns] == [run.id, second.id]


async def test_events_at_another_gateway_are_complete_and_in_order(gateways: Gateways) -> None:
    gateways.one.model.will(call("hold", {}), say("a long answer in many pieces"))
    run = await gateways.one.start("hello")
    remote = await gateways.remote(run)
    seen: list[Any] = []

    async def follow() -> None:
        seen.extend([event async for event in remote.events.follow()])

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(follow)
        gateways.work.may_end.set()
        await end_of(run)
    assert seen == list(run.events.events)
    # A reader that comes later, and one that has seen some of it.
    assert [it async for it in remote.events.follow(3)] == seen[4:]


def hold_events(setup: AgentSetup) -> anyio.Event:
    """Let no events of this service reach the database until the event is set."""
    may_write, feed = anyio.Event(), cluster_of(setup.store).feed
    write = feed.write

    async def hold(*given: Any) -> None:
        await may_write.wait()
        await write(*given)

    vars(feed)["write"] = hold
    return may_write


async def test_a_run_is_found_before_its_first_event_is_written(gateways: Gateways) -> None:
    may_write = hold_events(gateways.one)
    run = await start_holding(gateways, session_key="chat")
    found = await gateways.other.service.find_run(run.id)
    assert isinstance(found, RemoteRun)
    assert (found.state, found.agent_id, found.session_key) == ("queued", "main", "chat")
    gateways.one.model.will(say("done"))
    gateways.work.may_end.set()
    may_write.set()
    assert await end_of(found) == "completed"
    assert found.events.events == run.events.events
    assert await gateways.other.service.find_run("run_that_is_not") is None


async def test_a_run_whose_last_events_are_lost_ends_as_its_turn(
    gateways: Gateways, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nacre.agent.remote_runs._UNWRITTEN_SECONDS", 0.0)
    may_write = hold_events(gateways.one)
    gateways.work.may_end.set()
    gateways.one.model.will(call("hold", {}), say("done"))
    run = await gateways.one.start("hold it")
    found = await gateways.other.service.find_run(run.id)
    assert isinstance(found, RemoteRun)
    assert await end_of(run) == "completed"
    gateways.kill(gateways.one)
    assert await end_of(found) == "completed"
    assert found.result is not None
    assert (found.result.text, found.result.usage.output_tokens) == ("done", 20)
    # Too late: the session has another owner.
    may_write.set()
    # A reader that has all events of the killed gateway but the last one gets the end here.
    *_, last_seen, _ = run.events.events
    rest = [event.kind async for event in found.events.follow(last_seen.sequence)]
    assert rest == ["run.completed"]


async def test_another_gateway_aborts_a_run(gateways: Gateways) -> None:
    run = await start_holding(gateways)
    remote = await gateways.remote(run)
    with anyio.fail_after(30):
        assert await remote.abort("enough")
    assert (run.state, remote.state) == ("aborted", "aborted")
    assert remote.result is not None
    assert remote.result.error == "enough"
    assert not await remote.abort()


async def test_another_gateway_answers_an_approval(gateways: Gateways) -> None:
    run = await start_waiting(gateways.one)
    (asked,) = run.pending_approvals
    remote = await gateways.remote(run)
    await until_waiting(remote)
    assert [it.id for it in remote.pending_approvals] == [asked.id]
    assert await gateways.other.service.approvals.read_input(asked.id) == asked.input
    gateways.one.model.will(say("paid"))
    await gateways.other.service.approvals.answer(asked.id, AllowOnce())
    assert await end_of(remote) == "completed"
    assert gateways.work.paid == 1
    with pytest.raises(ApprovalError, match="was answered already"):
        await gateways.other.service.approvals.read_input(asked.id)
    with pytest.raises(ApprovalError, match="was answered already"):
        await gateways.other.service.approvals.answer(asked.id, AllowOnce())


async def test_another_gateway_delivers_the_result_of_a_client(gateways: Gateways) -> None:
    run = await start_waiting(gateways.one, ASK, client_tools=[ClientTool(name="ask")])
    remote = await gateways.remote(run)
    await until_waiting(remote)
    (pending,) = remote.pending_client_calls
    gateways.one.model.will(say("thanks"))
    result = ClientResult(call_id=pending.call_id, content="because")
    await gateways.other.service.deliver(remote, [result])
    assert await end_of(remote) == "completed"
    assert run.result is not None
    contents = [it.content for it in run.result.messages if isinstance(it, ToolMessage)]
    assert json.loads(contents[0])["value"] == "because"
    with pytest.raises(SessionError, match="is over"):
        await gateways.other.service.deliver(remote, [result])


async def test_another_gateway_runs_commands_at_the_owner(gateways: Gateways) -> None:
    run = await start_holding(gateways)
    stopped = await gateways.other.start("/stop", session_id=run.session_id)
    assert await end_of(stopped) == "completed"
    assert await end_of(run) == "aborted"


async def test_a_waiting_turn_of_a_killed_gateway_continues(gateways: Gateways) -> None:
    run = await start_waiting(gateways.one)
    remote = await gateways.remote(run)
    (asked,) = run.pending_approvals
    gateways.other.model.will(say("paid"))
    await gateways.until_stored()
    gateways.kill(gateways.one)
    with anyio.fail_after(30):
        await run_at(gateways.other, run.id)
    await gateways.other.service.approvals.answer(asked.id, AllowOnce())
    assert await end_of(remote) == "completed"
    assert gateways.work.paid == 1
    numbers = [event.sequence for event in remote.events.events]
    assert numbers == sorted(set(numbers))
    assert kinds(remote).count("approval.requested") == 1
    # The gateway that was thought to be dead drops its part when it renews its leases.
    cluster = cluster_of(gateways.one.store)
    assert await cluster.leases.renew() == [run.session_id]
    gateways.one.service.drop(run.session_id)
    with anyio.fail_after(30):
        await run.wait()
    assert run.is_detached
    turn = await gateways.other.store.turn(run.id)
    assert turn is not None
    assert turn.status == "completed"


async def test_a_turn_continues_with_the_events_after_its_stored_state(gateways: Gateways) -> None:
    run = await start_waiting(gateways.one)
    await gateways.until_stored()
    # After the state, and before its gateway was killed.
    run.events.add("text.delta", {"text": "later"})
    shared = gateways.one.service.shared
    assert shared is not None
    await shared.flush()
    seen = run.events.events
    gateways.kill(gateways.one)
    with anyio.fail_after(30):
        log = (await run_at(gateways.other, run.id)).events
        first = await anext(log.follow(seen[-1].sequence))
    assert log.events[: len(seen)] == seen
    assert first.kind == "run.resumed"
    assert log.count_missing(seen[-1].sequence, first.sequence) == 0


@pytest.mark.parametrize("is_dropped", [False, True])
async def test_a_gateway_that_has_lost_a_session_sends_answers_to_its_owner(
    gateways: Gateways, is_dropped: bool
) -> None:
    run, service = await start_waiting(gateways.one), gateways.one.service
    (approval,) = run.pending_approvals
    await gateways.until_stored()
    gateways.other.model.will(say("done"))
    sql = gateways.server.sql

    async def renew_nothing() -> list[str]:
        return []

    vars(cluster_of(gateways.one.store).leases)["renew"] = renew_nothing
    await anyio.to_thread.run_sync(sql, "UPDATE nacre_leases SET expires = 0")
    with anyio.fail_after(30):
        continued = await run_at(gateways.other, run.id)
        if is_dropped:
            service.drop(run.session_id)
            await run.wait()
        else:
            # It would notice when it renews its leases.
            assert service.run(run.id) is run
        await service.approvals.answer(approval.id, AllowOnce())
    assert await end_of(continued) == "completed"
    assert gateways.work.paid == 1
    found = await service.find_run(run.id, for_change=True)
    assert isinstance(found, RemoteRun)
    assert await end_of(found) == "completed"


async def test_a_session_keeps_its_lease_until_its_turn_continues(gateways: Gateways) -> None:
    run = await start_waiting(gateways.one)
    await gateways.until_stored()
    service = gateways.other.service
    continue_here, is_taken, may_continue = service.continue_here, anyio.Event(), anyio.Event()

    async def hold(state: TurnState, later: Sequence[RunEvent] = ()) -> AgentRun | None:
        is_taken.set()
        await may_continue.wait()
        return await continue_here(state, later)

    vars(service)["continue_here"] = hold
    gateways.kill(gateways.one)
    with anyio.fail_after(30):
        await is_taken.wait()
        shared = service.shared
        assert shared is not None
        # Other sessions of a dead gateway may take longer than the time between two renewals.
        await shared._release_idle()  # pyright: ignore[reportPrivateUsage]
        lease = await cluster_of(gateways.one.store).leases.find(run.session_id)
        assert lease is not None
        assert lease.owner == cluster_of(gateways.other.store).leases.owner
        may_continue.set()
        await until_waiting(await run_at(gateways.other, run.id))


async def test_a_gateway_that_has_lost_its_own_lock_waits_for_the_others(
    gateways: Gateways, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nacre.agent.shared_sessions._OUTAGE_SECONDS", 3600.0)
    run = await start_holding(gateways)
    cluster = cluster_of(gateways.other.store)
    reconnect, looks = cluster.reconnect, 0

    async def note_look() -> None:
        nonlocal looks
        await reconnect()
        looks += 1

    vars(cluster)["reconnect"] = note_look
    gateways.kill(gateways.one, gateways.other)
    locks = f"SELECT count(*) FROM pg_locks WHERE objid = {cluster.leases.owner} AND granted"
    with anyio.fail_after(30):
        while await anyio.to_thread.run_sync(gateways.server.sql, locks) != "1":
            pass
        # The outage was so long that nobody could renew a lease.
        expire = "UPDATE nacre_leases SET expires = 0"
        await anyio.to_thread.run_sync(gateways.server.sql, expire)
        looks = 0
        while looks < 4:
            await anyio.lowlevel.checkpoint()
    lease = await cluster.leases.find(run.session_id)
    assert lease is not None
    assert lease.owner == cluster_of(gateways.one.store).leases.owner


async def test_queued_messages_of_a_killed_gateway_run_and_its_turn_is_interrupted(
    gateways: Gateways,
) -> None:
    run = await start_holding(gateways)
    queued = await gateways.one.start("next", session_id=run.session_id, queue_mode="followup")
    remote = await gateways.remote(run)
    gateways.other.model.will(say("second"))
    gateways.kill(gateways.one)
    assert await end_of(remote) == "interrupted"
    assert kinds(remote)[-1] == "run.interrupted"
    with anyio.fail_after(30):
        again = await run_at(gateways.other, queued.id)
    assert await end_of(again) == "completed"
    # Readers know the numbers of the events of the old owner.
    old = queued.events.events
    assert again.events.events[: len(old)] == old
    numbers = [event.sequence for event in again.events.events[len(old) - 1 :]]
    assert again.events.count_missing(numbers[0], numbers[1]) == 0
    turns = await gateways.other.store.turns(run.session_id)
    assert [turn.status for turn in turns] == ["interrupted", "completed"]
    # The old owner cannot store the end of its turn.
    gateways.one.model.will(say("too late"))
    gateways.work.may_end.set()
    with anyio.fail_after(30):
        await run.wait()
    assert run.is_detached
    turns = await gateways.other.store.turns(run.session_id)
    assert [turn.status for turn in turns] == ["interrupted", "completed"]
    assert "too late" not in str(await gateways.other.kept(run.session_id))


async def test_a_stopped_gateway_hands_over_waiting_turns_and_queued_messages(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    work = Work()
    async with open_service(postgres, tmp_path, work) as other:
        async with open_service(postgres, tmp_path, work) as one:
            run = await start_waiting(one)
            queued = await one.start("next", session_id=run.session_id, queue_mode="followup")
        other.model.will(say("paid"), say("second"))
        with anyio.fail_after(30):
            again = await run_at(other, run.id)
        await until_waiting(again)
        await other.service.approvals.answer(again.pending_approvals[0].id, AllowOnce())
        assert await end_of(again) == "completed"
        with anyio.fail_after(30):
            second = await run_at(other, queued.id)
        assert await end_of(second) == "completed"


async def test_a_session_that_nobody_serves_goes_to_whoever_gets_its_message(
    gateways: Gateways,
) -> None:
    gateways.one.model.will(say("one"))
    first = await gateways.one.turn("hello")
    cluster = cluster_of(gateways.one.store)
    await cluster.leases.release([first.session_id])
    gateways.other.model.will(say("two"))
    second = await gateways.other.turn("and now", session_id=first.session_id)
    assert not isinstance(second, RemoteRun)
    assert [it.run_id for it in await gateways.one.store.turns(first.session_id)] == [
        first.id,
        second.id,
    ]


async def test_a_session_of_codex_is_served_where_its_thread_is(gateways: Gateways) -> None:
    owner = cluster_of(gateways.one.store)
    machine, owner.machine = owner.machine, "elsewhere"
    shared = gateways.other.service.shared
    assert shared is not None
    with pytest.raises(SessionError, match="has its files on the machine elsewhere"):
        await shared.send_to_machine(_request(), "s", "elsewhere")
    one = gateways.one.service.shared
    assert one is not None
    await one.announce("http://one")
    # Announced before under the name of this machine.
    gateways.server.sql(
        f"UPDATE nacre_gateways SET machine = 'elsewhere' WHERE owner = '{owner.leases.owner}'"
    )
    await gateways.one.store.add_session(id="s", agent_id="main")
    gateways.one.model.will(say("here"))
    run = await shared.send_to_machine(_request(), "s", "elsewhere")
    assert run is not None
    assert await end_of(run) == "completed"
    assert gateways.one.service.run(run.id) is not None
    assert await shared.send_to_machine(_request(), "s", machine) is None


def _request() -> TurnRequest:
    return TurnRequest(message="hello", session_id="s")
