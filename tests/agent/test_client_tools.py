"""Tools that the client has: their calls wait for the client, inside of cells and outside."""

import json

import anyio
import pytest

from nacre.agent import ClientTool
from nacre.errors import SessionError
from nacre.messages import ToolMessage
from nacre.sandbox.cell_vm import CellVm
from tests.agent.agent_setup import CODE_MODE, AgentRun, event_of, events_of
from tests.agent.conftest import OpenAgent
from tests.agent.fake_models import call, calls, say
from tests.agent.tools import HeldTool

WEATHER = ClientTool(
    name="weather",
    description="The weather.",
    parameters={"type": "object", "properties": {"city": {"type": "string"}}},
)


def last_result(run: AgentRun) -> ToolMessage:
    assert run.result is not None
    return [message for message in run.result.messages if isinstance(message, ToolMessage)][-1]


async def waits(run: AgentRun) -> None:
    with anyio.fail_after(5):
        assert await run.waiting_or_ended() == "waiting"


async def ends(run: AgentRun) -> None:
    with anyio.fail_after(5):
        await run.wait()


async def test_a_direct_client_call_waits_for_its_result(open_service: OpenAgent) -> None:
    async with open_service() as setup:
        setup.model.will(call("weather", {"city": "Oslo"}), say("it rains"))
        run = await setup.start(client_tools=[WEATHER])
        await waits(run)
        (pending,) = run.pending_client_calls
        assert pending.to_json() == {
            "callId": "call_1",
            "name": "weather",
            "arguments": {"city": "Oslo"},
        }
        run.deliver("call_1", "rain")
        assert run.state == "running"
        await ends(run)
        assert last_result(run) == ToolMessage(call_id="call_1", name="weather", content="rain")


async def test_a_client_call_inside_of_a_cell_suspends_and_resumes_the_cell(
    open_service: OpenAgent,
) -> None:
    program = "const said = await tools.weather({city: 'Oslo'}); return said.degrees + 1"
    async with open_service(document=CODE_MODE) as setup:
        setup.model.will(call("exec", {"code": program}), say("done"))
        run = await setup.start(client_tools=[WEATHER])
        asked = await event_of(run, "client_call.requested")
        assert asked.data["parentToolCallId"] == "call_1"
        await event_of(run, "cell.suspended")
        assert run.state == "waiting"
        run.deliver(str(asked.data["callId"]), {"degrees": 4})
        await ends(run)
        assert json.loads(last_result(run).content)["value"] == 5
        assert len(setup.model.requests) == 2


async def test_a_result_that_comes_as_the_cell_is_suspended_costs_no_model_call(
    open_service: OpenAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_suspending, is_answered, suspend = anyio.Event(), anyio.Event(), CellVm.suspend

    async def suspend_after_the_answer(vm: CellVm, open_requests: tuple[int, ...]) -> None:
        is_suspending.set()
        await is_answered.wait()
        # The answer reaches the program's request only in later turns of the loop.
        await anyio.wait_all_tasks_blocked()
        await suspend(vm, open_requests)

    monkeypatch.setattr(CellVm, "suspend", suspend_after_the_answer)
    async with open_service(document=CODE_MODE) as setup:
        setup.model.will(call("exec", {"code": "return tools.weather({city: 'Oslo'})"}), say("so"))
        run = await setup.start(client_tools=[WEATHER])
        with anyio.fail_after(30):
            await is_suspending.wait()
        run.deliver(run.pending_client_calls[0].call_id, "rain")
        is_answered.set()
        await ends(run)
        assert json.loads(last_result(run).content)["value"] == "rain"
        assert len(setup.model.requests) == 2


async def test_all_client_calls_of_a_cell_are_open_when_the_run_waits(
    open_service: OpenAgent,
) -> None:
    program = (
        "return await Promise.all(['Oslo', 'Rome', 'Bern'].map(city => tools.weather({city})))"
    )
    async with open_service(document=CODE_MODE) as setup:
        setup.model.will(call("exec", {"code": program}), say("done"))
        run = await setup.start(client_tools=[WEATHER])
        await waits(run)
        assert [each.arguments["city"] for each in run.pending_client_calls] == [
            "Oslo",
            "Rome",
            "Bern",
        ]
        for each in run.pending_client_calls:
            run.deliver(each.call_id, f"{each.arguments['city']} is fine")
        await ends(run)
        assert json.loads(last_result(run).content)["value"] == [
            "Oslo is fine",
            "Rome is fine",
            "Bern is fine",
        ]


async def test_a_model_is_told_of_a_cell_that_waits_for_a_client_and_a_slow_tool(
    open_service: OpenAgent,
) -> None:
    document = {"tools": {"codeMode": {"enabled": True, "timeoutMs": 200}}}
    program = "return await Promise.all([tools.weather({city: 'Oslo'}), tools.held({})])"
    async with open_service(document=document, tools=[HeldTool().tool]) as setup:
        setup.model.will(call("exec", {"code": program}), say("later"))
        run = await setup.turn(client_tools=[WEATHER])
        result = json.loads(last_result(run).content)
        assert result["status"] == "waiting"
        asked, slow = result["pendingToolCalls"]
        assert asked["awaitingClient"] is True
        assert "awaitingApproval" not in asked
        assert "awaitingClient" not in slow


async def test_the_timers_of_a_program_that_waits_for_a_client_still_fire(
    open_service: OpenAgent,
) -> None:
    document = {"tools": {"codeMode": {"enabled": True, "timeoutMs": 200}}}
    program = (
        "const late = new Promise(done => setTimeout(() => done('too late'), 600));"
        "return await Promise.race([tools.weather({}), late])"
    )
    async with open_service(document=document) as setup:
        setup.model.will(call("exec", {"code": program}), say("done"))
        run = await setup.turn(client_tools=[WEATHER])
        assert json.loads(last_result(run).content)["value"] == "too late"
        assert len(setup.model.requests) == 2


async def test_an_error_of_the_client_is_an_error_of_the_call(open_service: OpenAgent) -> None:
    async with open_service() as setup:
        setup.model.will(call("weather"), say("sorry"))
        run = await setup.start(client_tools=[WEATHER])
        await waits(run)
        run.deliver("call_1", "no network", is_error=True)
        await ends(run)
        assert (last_result(run).content, last_result(run).is_error) == ("no network", True)


async def test_a_result_is_taken_once(open_service: OpenAgent) -> None:
    async with open_service() as setup:
        setup.model.will(calls(("a", "weather", {}), ("b", "weather", {})), say("done"))
        run = await setup.start(client_tools=[WEATHER])
        await waits(run)
        run.deliver("a", "rain")
        with pytest.raises(SessionError, match="'a' is over: it was answered") as twice:
            run.deliver("a", "sun")
        assert twice.value.code == "ended"
        with pytest.raises(SessionError, match="no open client call 'c'; open: b") as unknown:
            run.deliver("c", "sun")
        assert unknown.value.code == "not_found"
        run.deliver("b", "sun")
        await ends(run)
        with pytest.raises(SessionError, match=r"is over \(completed\)"):
            run.deliver("b", "late")


async def test_a_call_that_the_client_never_answers_fails_and_the_run_goes_on(
    open_service: OpenAgent,
) -> None:
    document = {"tools": {"codeMode": {"enabled": False, "snapshotTtlSeconds": 1}}}
    async with open_service(document=document) as setup:
        setup.model.will(call("weather"), say("no weather today"))
        run = await setup.turn(client_tools=[WEATHER])
        assert run.state == "completed"
        assert last_result(run).content == "the client gave no result within 1 seconds"
        (closed,) = events_of(run, "client_call.answered")
        assert closed.data["how"] == "expired"


async def test_input_that_does_not_fit_never_reaches_the_client(open_service: OpenAgent) -> None:
    async with open_service() as setup:
        setup.model.will(call("weather", {"city": 7}), say("sorry"))
        run = await setup.turn(client_tools=[WEATHER])
        assert last_result(run).is_error
        assert events_of(run, "client_call.requested") == []


async def test_an_abort_withdraws_client_calls(open_service: OpenAgent) -> None:
    async with open_service() as setup:
        setup.model.will(call("weather"))
        run = await setup.start(client_tools=[WEATHER])
        await waits(run)
        with anyio.fail_after(5):
            assert await run.abort("enough")
        assert run.pending_client_calls == ()
        assert (run.state, last_result(run).is_error) == ("aborted", True)
