"""Turns that wait for a person or a client continue in the next process."""

from __future__ import annotations

import json
import math
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

import anyio
import pytest
from sqlalchemy import update

from nacre.agent import AgentRun, ClientTool, turn_state
from nacre.errors import StorageError
from nacre.messages import AssistantMessage, ToolMessage, UserMessage
from nacre.sandbox import KeyRing, new_key
from nacre.storage import open_store
from nacre.storage.schema import approvals, turn_states
from nacre.tools import AllowOnce, Tool, ToolCall
from nacre.trajectory import import_json_lines
from tests.agent.agent_setup import AgentSetup, kinds, open_agent
from tests.agent.fake_models import call, calls, say

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

    from nacre.storage import Store
    from tests.storage.conftest import PostgresServer

KEYS: Final = KeyRing(new_key())
DURABLE: Final = {"tools": {"codeMode": {"enabled": True, "durable": True}}}
PAY: Final = "text('before'); const paid = await tools.pay({sum: 7}); text('after'); return paid"
ASK: Final = "return await tools.ask({question: 'why'})"
CLIENT_TOOLS: Final = [ClientTool(name="ask")]


class Payments:
    """A tool that needs an approval, and what it did."""

    def __init__(self) -> None:
        self.done: list[str] = []

    def as_tools(self) -> list[Tool]:
        return [
            Tool(name="pay", execute=self._pay, needs_approval="money"),
            Tool(
                name="show", execute=self._pay, needs_approval="looks", catalog_mode="direct-only"
            ),
        ]

    async def _pay(self, given: dict[str, Any], tool_call: ToolCall) -> object:
        self.done.append(tool_call.id)
        return given


@pytest.fixture
def payments() -> Payments:
    return Payments()


@pytest.fixture(params=["file", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgres":
        server: PostgresServer = request.getfixturevalue("postgres")
        return server.url()
    return f"sqlite:///{tmp_path}/nacre.db"


@asynccontextmanager
async def open_process(
    url: str, folder: Path, payments: Payments, **options: Any
) -> AsyncGenerator[AgentSetup]:
    """A service on a connection of its own, as in a new process."""
    document = options.pop("document", DURABLE)
    async with (
        open_store(url) as store,
        open_agent(
            store=store,
            folder=folder,
            document=document,
            tools=payments.as_tools(),
            keys=KEYS,
            **options,
        ) as setup,
    ):
        yield setup


async def wait_until_waiting(run: AgentRun) -> None:
    with anyio.fail_after(30):
        assert await run.waiting_or_ended() == "waiting", run.result


async def wait_for_end(run: AgentRun) -> None:
    with anyio.fail_after(30):
        await run.wait()


async def stop_while_waiting(
    url: str, folder: Path, payments: Payments, code: str = PAY, **options: Any
) -> AgentRun:
    """Close a service whose turn waits; returns the run."""
    async with open_process(url, folder, payments) as setup:
        setup.model.will(call("exec", {"code": code}))
        run = await setup.start("buy it", **options)
        await wait_until_waiting(run)
    assert run.is_detached
    return run


async def continue_turn(setup: AgentSetup) -> AgentRun:
    (run,) = await setup.service.continue_turns()
    await wait_until_waiting(run)
    return run


def tool_results(run: AgentRun) -> list[Any]:
    assert run.result is not None
    found = [it for it in run.result.messages if isinstance(it, ToolMessage)]
    return [json.loads(it.content) if it.content.startswith("{") else it.content for it in found]


async def test_a_turn_continues_with_the_answer_to_its_approval(
    url: str, tmp_path: Path, payments: Payments
) -> None:
    first = await stop_while_waiting(url, tmp_path, payments, sender="ann", channel="mail")
    async with open_process(url, tmp_path, payments) as setup:
        setup.model.will(say("done"))
        run = await continue_turn(setup)
        assert (run.id, run.session_id) == (first.id, first.session_id)
        (request,) = run.pending_approvals
        assert (request.context.sender, request.context.channel) == ("ann", "mail")
        setup.approvals.answer(request.id, AllowOnce())
        await wait_for_end(run)
        assert run.state == "completed"
        assert tool_results(run)[0]["value"] == {"sum": 7}
        assert [it["text"] for it in tool_results(run)[0]["output"]] == ["before", "after"]
        assert payments.done == ["call_1.1"]
        # The model gets the conversation as it was.
        sent = [type(it) for it in setup.model.requests[0].messages]
        assert sent == [UserMessage, AssistantMessage, ToolMessage]
        turn = await setup.store.turn(run.id)
        assert turn is not None
        assert (turn.status, turn.data["steps"]) == ("completed", 2)
        assert turn.usage.output_tokens == 20
        assert await setup.store.cells.of_run(run.id) == []
        assert len(await setup.kept(run.session_id)) == 4


@pytest.mark.timeout(60)  # The closing of a service is shielded.
async def test_a_stop_waits_only_until_the_cells_are_stored(
    url: str, tmp_path: Path, payments: Payments, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turn_state, "_DETACH_SECONDS", math.inf)
    async with open_process(url, tmp_path, payments) as setup:
        setup.model.will(
            calls(("call_1", "exec", {"code": PAY}), ("call_2", "exec", {"code": PAY}))
        )
        run = await setup.start()
        await wait_until_waiting(run)
    assert run.is_detached


async def test_the_approval_stays_open_with_its_id(
    url: str, tmp_path: Path, payments: Payments
) -> None:
    async with open_process(url, tmp_path, payments) as setup:
        setup.model.will(call("exec", {"code": PAY}))
        first = await setup.start()
        await wait_until_waiting(first)
        (asked,) = first.pending_approvals
    async with open_process(url, tmp_path, payments) as setup:
        (record,) = await setup.store.approvals.find_all()
        assert (record.id, record.state) == (asked.id, "open")
        run = await continue_turn(setup)
        (request,) = run.pending_approvals
        assert (request.id, request.created, request.expires) == (
            asked.id,
            asked.created,
            asked.expires,
        )


async def test_readers_see_each_event_once_with_numbers_that_go_on(
    url: str, tmp_path: Path, payments: Payments
) -> None:
    first = await stop_while_waiting(url, tmp_path, payments)
    seen = first.events.events
    async with open_process(url, tmp_path, payments) as setup:
        setup.model.will(say("done"))
        run = await continue_turn(setup)
        assert run.events.events[: len(seen)] == seen
        setup.approvals.answer(run.pending_approvals[0].id, AllowOnce())
        await wait_for_end(run)
        numbers = [event.sequence for event in run.events.events]
        assert numbers == sorted(set(numbers))
        later = [event async for event in run.events.follow(seen[-1].sequence)]
        assert [event.kind for event in later][:2] == ["run.resumed", "cell.resumed"]
        assert later[0].data == {"cause": "restart"}
        assert run.events.count_missing(seen[-1].sequence, later[0].sequence) == 0
        for kind in ("run.started", "call.started", "approval.requested", "cell.started"):
            assert kinds(run).count(kind) == (2 if kind == "call.started" else 1)
        assert kinds(run).count("call.ended") == 2
        recorded = [it.event for it in await setup.store.events(run_id=run.id, limit=1000)]
        lines = "\n".join(json.dumps(it) for it in recorded)
        assert len(import_json_lines(lines)) == len(recorded)
        assert [it["kind"] for it in recorded].count("turn.ended") == 1


async def test_a_turn_continues_with_the_result_of_its_client(
    url: str, tmp_path: Path, payments: Payments
) -> None:
    first = await stop_while_waiting(url, tmp_path, payments, ASK, client_tools=CLIENT_TOOLS)
    async with open_process(url, tmp_path, payments) as setup:
        setup.model.will(say("I see"))
        run = await continue_turn(setup)
        (pending,) = run.pending_client_calls
        assert (pending.call_id, pending.name) == ("call_1.1", "ask")
        assert kinds(run).count("client_call.requested") == 1
        run.deliver(pending.call_id, "because")
        await wait_for_end(run)
        assert tool_results(run)[0]["value"] == "because"
    assert kinds(first).count("client_call.requested") == 1


async def test_an_answer_that_was_stored_is_not_asked_for_again(
    url: str, tmp_path: Path, payments: Payments
) -> None:
    await stop_while_waiting(url, tmp_path, payments)
    async with open_process(url, tmp_path, payments) as setup:
        database = setup.store._database  # pyright: ignore[reportPrivateUsage]
        answered = {"state": "allowed", "answer": '{"answer":"allow","how":"once"}'}
        await database.write(lambda it: it.execute(update(approvals).values(**answered)))
        setup.model.will(say("done"))
        (run,) = await setup.service.continue_turns()
        await wait_for_end(run)
        assert run.state == "completed"
        assert payments.done == ["call_1.1"]


async def test_results_of_other_calls_are_kept_and_calls_that_began_are_not_repeated(
    url: str, tmp_path: Path, payments: Payments
) -> None:
    async with open_process(url, tmp_path, payments) as setup:
        setup.model.will(
            calls(
                ("done", "exec", {"code": "return 5"}),
                ("held", "exec", {"code": PAY}),
                ("asks", "show", {}),
            )
        )
        first = await setup.start()
        await wait_until_waiting(first)
        assert len(first.pending_approvals) == 2
    async with open_process(url, tmp_path, payments) as setup:
        setup.model.will(say("done"))
        run = await continue_turn(setup)
        with anyio.fail_after(30):
            while len(run.pending_approvals) < 2:
                await setup.approvals.wait_for_change()
        for request in run.pending_approvals:
            setup.approvals.answer(request.id, AllowOnce())
        await wait_for_end(run)
        assert [it["value"] for it in tool_results(run)[:2]] == [5, {"sum": 7}]
        assert sorted(payments.done) == ["asks", "held.1"]
        assert kinds(run).count("cell.started") == 2


async def test_messages_that_steer_a_waiting_turn_survive(
    url: str, tmp_path: Path, payments: Payments
) -> None:
    async with open_process(url, tmp_path, payments) as setup:
        setup.model.will(call("exec", {"code": PAY}))
        first = await setup.start()
        await wait_until_waiting(first)
        same = await setup.start("hurry", session_id=first.session_id, queue_mode="steer")
        assert same is first
    async with open_process(url, tmp_path, payments) as setup:
        setup.model.will(say("done"))
        run = await continue_turn(setup)
        setup.approvals.answer(run.pending_approvals[0].id, AllowOnce())
        await wait_for_end(run)
        last = setup.model.requests[0].messages[-1]
        assert isinstance(last, UserMessage)
        assert last.text == "hurry"


async def test_a_message_behind_a_waiting_turn_is_taken_by_it_after_a_restart(
    url: str, tmp_path: Path, payments: Payments
) -> None:
    # On a server, both messages are in the inbox of the session and keep their runs.
    has_inbox = url.startswith("postgresql")
    async with open_process(url, tmp_path, payments) as setup:
        setup.model.will(call("exec", {"code": PAY}))
        first = await setup.start()
        await wait_until_waiting(first)
        queued = await setup.start("and then?", session_id=first.session_id, queue_mode="followup")
        other = await setup.start(
            "me too", session_id=first.session_id, queue_mode="followup", sender="bob"
        )
        # Turns have time to end, but these must not run before the first one has ended.
        await setup.service.aclose(grace_seconds=30)
        assert len(setup.model.requests) == 1
        assert (queued.is_detached, other.is_detached) == (has_inbox, has_inbox)
        if not has_inbox:
            assert queued.result is not None
            assert queued.result.error == f"the message was passed to the run {first.id}"
            assert other.result is not None
            assert "the turn before it continues in another process" in other.result.error
    async with open_process(url, tmp_path, payments) as setup:
        setup.model.will(say("done"), say("and then"), say("you too"))
        run = await continue_turn(setup)
        setup.approvals.answer(run.pending_approvals[0].id, AllowOnce())
        await wait_for_end(run)
        if has_inbox:
            later = [setup.service.run(it.id) for it in (queued, other)]
            for each in later:
                assert each is not None
                await wait_for_end(each)
                assert each.state == "completed"
            answers = await setup.kept(run.session_id)
            said = [it.text for it in answers if isinstance(it, UserMessage)]
            assert said[1:] == ["and then?", "me too"]
            return
        last = setup.model.requests[0].messages[-1]
        assert isinstance(last, UserMessage)
        assert last.text == "and then?"
        stored = await setup.kept(run.session_id)
        texts = [it.text for it in stored if isinstance(it, UserMessage)]
        assert "me too" in texts


async def test_the_calls_of_a_continued_turn_have_ids_of_their_own(
    url: str, tmp_path: Path, payments: Payments
) -> None:
    await stop_while_waiting(url, tmp_path, payments)
    async with open_process(url, tmp_path, payments) as setup:
        # Some providers start their ids again with each answer.
        setup.model.will(call("exec", {"code": "return 1"}), say("done"))
        run = await continue_turn(setup)
        setup.approvals.answer(run.pending_approvals[0].id, AllowOnce())
        await wait_for_end(run)
        assert run.result is not None
        ids = [it.call_id for it in run.result.messages if isinstance(it, ToolMessage)]
        assert len(ids) == len(set(ids)) == 2


@pytest.mark.parametrize("jump_seconds", [-864_000.0, 864_000.0])
async def test_an_approval_stays_open_when_the_clock_of_the_machine_jumps(
    url: str,
    tmp_path: Path,
    payments: Payments,
    monkeypatch: pytest.MonkeyPatch,
    jump_seconds: float,
) -> None:
    await stop_while_waiting(url, tmp_path, payments)
    now = time.time
    monkeypatch.setattr(time, "time", lambda: now() + jump_seconds)
    async with open_process(url, tmp_path, payments) as setup:
        setup.model.will(say("done"))
        run = await continue_turn(setup)
        setup.approvals.answer(run.pending_approvals[0].id, AllowOnce())
        await wait_for_end(run)
        assert payments.done == ["call_1.1"]


async def test_an_approval_expires_by_the_time_of_the_database(
    url: str, tmp_path: Path, payments: Payments
) -> None:
    await stop_while_waiting(url, tmp_path, payments)
    async with open_process(url, tmp_path, payments) as setup:
        database = setup.store._database  # pyright: ignore[reportPrivateUsage]
        earlier = update(turn_states).values(updated=turn_states.c.updated - 864_000)
        await database.write(lambda it: it.execute(earlier))
        setup.model.will(say("done"))
        (run,) = await setup.service.continue_turns()
        await wait_for_end(run)
        assert tool_results(run)[0]["status"] == "failed"
        assert "nobody answered" in tool_results(run)[0]["error"]
        assert payments.done == []


async def test_an_abort_ends_a_continued_turn(url: str, tmp_path: Path, payments: Payments) -> None:
    await stop_while_waiting(url, tmp_path, payments)
    async with open_process(url, tmp_path, payments) as setup:
        run = await continue_turn(setup)
        assert await setup.service.abort(run.id, "enough")
        turn = await setup.store.turn(run.id)
        assert turn is not None
        assert (turn.status, turn.error) == ("aborted", "enough")
        assert await setup.store.cells.of_run(run.id) == []
        assert [it.state for it in await setup.store.approvals.find_all()] == ["given_up"]
        assert await setup.service.continue_turns() == []
    assert payments.done == []


async def test_a_process_that_is_alive_keeps_its_turns(
    url: str, tmp_path: Path, payments: Payments
) -> None:
    async with open_process(url, tmp_path, payments) as setup:
        setup.model.will(call("exec", {"code": PAY}), say("done"))
        run = await setup.start()
        await wait_until_waiting(run)
        async with open_process(url, tmp_path, payments) as other:
            assert await other.service.continue_turns() == []
        setup.approvals.answer(run.pending_approvals[0].id, AllowOnce())
        await wait_for_end(run)
        assert run.state == "completed"


async def test_nothing_is_stored_before_a_turn_waits_or_after_its_calls(
    url: str, tmp_path: Path, payments: Payments
) -> None:
    async with open_process(url, tmp_path, payments) as setup:
        database = setup.store._database  # pyright: ignore[reportPrivateUsage]
        states: list[int] = []

        async def count(_request: object) -> Any:
            found = await database.read(lambda it: it.execute(turn_states.select()).all())
            states.append(len(found))
            return say("done") if len(states) > 2 else call("exec", {"code": code}, call_id=code)

        code = "await yield_control(); return 1"
        setup.model.will(count, count, count)
        run = await setup.turn()
        assert run.state == "completed"
        assert states == [0, 0, 0]
        code = PAY
        states.clear()
        setup.model.will(call("exec", {"code": PAY}), count, say("done"))
        run = await setup.start()
        await wait_until_waiting(run)
        setup.approvals.answer(run.pending_approvals[0].id, AllowOnce())
        with anyio.fail_after(30):
            while not states:
                await run.events.follow(run.events.last_sequence).__anext__()
        await run.abort()
        assert states == [0]


@pytest.mark.parametrize("change", ["damaged", "not JSON", "version", "setting", "agent"])
async def test_a_turn_that_cannot_be_continued_is_interrupted_with_the_reason(
    url: str, tmp_path: Path, payments: Payments, change: str
) -> None:
    first = await stop_while_waiting(url, tmp_path, payments)
    options: dict[str, Any] = {}
    reason = "`tools.codeMode.durable` is off"
    if change == "setting":
        options["document"] = {"tools": {"codeMode": {"enabled": True}}}
    elif change == "agent":
        options["document"] = {**DURABLE, "agents": {"list": [{"id": "other"}]}}
        reason = "main"
    else:
        data = {"version": "{}", "not JSON": '{"for', "damaged": '{"format":1}'}[change]
        reason = "it is damaged" if change == "damaged" else "its format is None"
        async with open_store(url) as store:
            database = store._database  # pyright: ignore[reportPrivateUsage]
            await database.write(lambda it: it.execute(update(turn_states).values(data=data)))
    async with open_process(url, tmp_path, payments, **options) as setup:
        assert await setup.service.continue_turns() == []
        turn = await setup.store.turn(first.id)
        assert turn is not None
        assert turn.status == "interrupted"
        assert reason in turn.error
        assert [it.state for it in await setup.store.approvals.find_all()] == ["given_up"]
        assert await setup.store.cells.of_run(first.id) == []


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("steps",), "1"),
        (("lastRecorded",), []),
        (("begun", 0), 5),
        (("usage", "input_tokens"), {}),
        (("events", 0, "data"), []),
        (("approvals", 0, "id"), 5),
        (("approvals", 0, "id"), ""),
    ],
    ids=str,
)
async def test_a_turn_with_a_member_of_a_wrong_type_breaks_no_other_turn(
    tmp_path: Path, payments: Payments, path: tuple[Any, ...], value: Any
) -> None:
    url = f"sqlite:///{tmp_path}/nacre.db"
    first = await stop_while_waiting(url, tmp_path, payments)
    async with open_store(url) as store:
        await change_state(store, path, value)
    async with open_process(url, tmp_path, payments) as setup:
        assert await setup.service.continue_turns() == []
        turn = await setup.store.turn(first.id)
        assert turn is not None
        assert "it is damaged" in turn.error
        setup.model.will(say("fine"))
        run = await setup.turn()
        assert run.state == "completed"


async def test_an_approval_that_cannot_be_stored_does_not_end_the_service(
    tmp_path: Path, payments: Payments
) -> None:
    url = f"sqlite:///{tmp_path}/nacre.db"
    await stop_while_waiting(url, tmp_path, payments)
    async with open_store(url) as store:
        await change_state(store, ("approvals", 0, "id"), "a\0b")
    async with open_process(url, tmp_path, payments) as setup:
        run = await continue_turn(setup)
        setup.approvals.answer(run.pending_approvals[0].id, AllowOnce())
        setup.model.will(say("paid"))
        await wait_for_end(run)
        assert run.state == "completed"


async def change_state(store: Store, path: tuple[Any, ...], value: Any) -> None:
    """Change the only stored turn, as somebody with access to the database could."""
    database = store._database  # pyright: ignore[reportPrivateUsage]
    text = await database.read(lambda it: it.execute(turn_states.select()).mappings().one()["data"])
    data = part = json.loads(text)
    for key in path[:-1]:
        part = part[key]
    part[path[-1]] = value
    change = update(turn_states).values(data=json.dumps(data))
    await database.write(lambda it: it.execute(change))


async def test_a_turn_that_cannot_be_stored_is_aborted_when_its_service_closes(
    url: str, tmp_path: Path, payments: Payments, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object, **__: object) -> None:
        raise StorageError("the disk is full")

    async with open_process(url, tmp_path, payments) as setup:
        monkeypatch.setattr(type(setup.store.cells), "put_turn_state", fail)
        setup.model.will(call("show", {}))
        run = await setup.start()
        await wait_until_waiting(run)
    assert (run.state, run.is_detached) == ("aborted", False)
