"""Turns in code mode: exactly `exec` and `wait`, nested calls, and cells that wait for people."""

import json

import anyio
import pytest

from nacre.agent import AgentRun
from nacre.errors import RuntimeUnavailableError
from nacre.hooks import BeforeToolCall, Block
from nacre.json_types import JsonObject
from nacre.messages import ImagePart, ToolMessage
from nacre.sandbox.pool import Launcher
from tests.agent.agent_setup import CODE_MODE, TOOL_SEARCH, event_of, events_of, kinds
from tests.agent.conftest import OpenAgent
from tests.agent.fake_models import call, calls, say
from tests.agent.tools import HeldTool, echo_tool


def cell_result(run: AgentRun, index: int = -1) -> JsonObject:
    assert run.result is not None
    results = [message for message in run.result.messages if isinstance(message, ToolMessage)]
    return json.loads(results[index].content)


def code(text: str) -> JsonObject:
    return {"code": text}


async def test_the_model_sees_exec_and_wait_and_programs_call_the_tools(
    open_service: OpenAgent,
) -> None:
    async with open_service(tools=[echo_tool()], document=CODE_MODE) as setup:
        setup.model.will(
            call("exec", code("return await tools.echo({text: 'hi'})")), say("it said hi")
        )
        run = await setup.turn()
        assert run.state == "completed"
        assert [spec.name for spec in setup.model.requests[0].tools] == ["exec", "wait"]
        assert cell_result(run)["value"] == "echo: hi"
        nested = events_of(run, "call.started")[1].data
        assert nested["toolId"] == "openclaw:core:echo"
        assert nested["parentToolCallId"] == "call_1"
        turn = await setup.store.turn(run.id)
        assert turn is not None
        assert turn.surface == "code_mode"


async def test_the_model_gets_no_telemetry_and_the_trajectory_has_it(
    open_service: OpenAgent,
) -> None:
    async with open_service(tools=[echo_tool()], document=CODE_MODE) as setup:
        setup.model.will(call("exec", code("return 1")), say("ok"))
        run = await setup.turn()
        answered = setup.model.requests[1].messages[-1]
        assert isinstance(answered, ToolMessage)
        assert answered.content == '{"status":"completed","value":1}'
        result = events_of(run, "call.ended")[0].data["result"]
        assert isinstance(result, dict)
        assert "telemetry" in result


async def test_images_reach_the_model_in_their_turn_and_stay_in_the_session(
    open_service: OpenAgent,
) -> None:
    image = ImagePart(url="data:image/gif;base64,R0lGODlh")
    async with open_service(tools=[echo_tool()], document=CODE_MODE) as setup:
        setup.model.will(call("exec", code(f"image('{image.url}')")), say("a map"), say("ok"))
        run = await setup.turn()
        (shown,) = [it for it in setup.model.requests[1].messages if isinstance(it, ToolMessage)]
        assert shown.images == (image,)
        assert "R0lGODlh" not in shown.content
        await setup.turn("and now?", session_id=run.session_id)
        (later,) = [it for it in setup.model.requests[2].messages if isinstance(it, ToolMessage)]
        assert (later.images, later.content) == ((), shown.content)
        stored = [it for it in await setup.kept(run.session_id) if isinstance(it, ToolMessage)]
        assert [it.images for it in stored] == [(image,)]
        events = [each.event for each in await setup.store.events(run_id=run.id)]
        assert "R0lGODlh" not in str([it for it in events if it["kind"] == "cell.output"])


async def test_nested_calls_are_in_the_trajectory_and_not_among_the_messages(
    open_service: OpenAgent,
) -> None:
    async with open_service(tools=[echo_tool()], document=CODE_MODE) as setup:
        setup.model.will(call("exec", code("return await tools.echo({text: 'hi'})")), say("ok"))
        run = await setup.turn()
        kept = await setup.kept(run.session_id)
        assert [type(message).__name__ for message in kept] == [
            "UserMessage",
            "AssistantMessage",
            "ToolMessage",
            "AssistantMessage",
        ]
        stored = [each.event["kind"] for each in await setup.store.events(run_id=run.id)]
        assert stored == [
            "run.started",
            "model.requested",
            "model.answered",
            "call.started",
            "cell.started",
            "call.started",
            "call.ended",
            "replay.catalog",
            "replay.bursts",
            "cell.ended",
            "call.ended",
            "model.requested",
            "model.answered",
            "turn.ended",
        ]


async def test_a_payload_that_shows_more_than_code_mode_fails_closed(
    open_service: OpenAgent,
) -> None:
    async with open_service(tools=[echo_tool()], document=CODE_MODE) as setup:
        setup.model.will(say("never"))
        setup.model.sent_names = lambda _request: ("exec", "wait", "echo")
        run = await setup.turn()
        assert run.state == "failed"
        assert run.result is not None
        assert "too many: echo; missing: none" in run.result.error
        assert setup.model.requests == []


async def test_an_agent_without_tools_is_not_in_code_mode(open_service: OpenAgent) -> None:
    async with open_service(document=CODE_MODE) as setup:
        setup.model.will(say("plain"))
        run = await setup.turn()
        assert run.state == "completed"
        assert list(setup.model.requests[0].tools) == []


async def test_a_cell_that_waits_for_a_person_goes_on_without_a_model_call(
    open_service: OpenAgent,
) -> None:
    tool = echo_tool(needs_approval="it speaks")
    program = "text('before'); const said = await tools.echo({text: 'hi'}); return said"
    async with open_service(tools=[tool], document=CODE_MODE) as setup:
        setup.model.will(call("exec", code(program)), say("done"))
        run = await setup.start()
        asked = await event_of(run, "approval.requested")
        assert asked.data["parentToolCallId"] == "call_1"
        # Long enough for the cell to be suspended meanwhile.
        await event_of(run, "cell.suspended")
        assert run.state == "waiting"
        setup.approvals.answer(str(asked.data["approvalId"]), "allow-once")
        with anyio.fail_after(30):
            await run.wait()
        assert run.state == "completed"
        assert len(setup.model.requests) == 2
        assert cell_result(run)["value"] == "echo: hi"
        assert cell_result(run)["output"] == [{"type": "text", "text": "before"}]
        (answered,) = events_of(run, "approval.answered")
        assert answered.data["approvalId"] == asked.data["approvalId"]
        assert answered.data["how"] == "once"


async def test_a_hook_that_blocks_wait_cannot_lose_an_approved_call(
    open_service: OpenAgent,
) -> None:
    def before_tool_call(event: BeforeToolCall) -> object:
        return Block("no wait") if event.tool_kind == "code_mode_wait" else None

    tool = echo_tool(needs_approval="it speaks")
    async with open_service(tools=[tool], document=CODE_MODE) as setup:
        setup.hooks.add(before_tool_call)
        setup.model.will(call("exec", code("return await tools.echo({text: 'hi'})")), say("done"))
        run = await setup.start()
        await event_of(run, "cell.suspended")
        setup.approvals.answer(setup.approvals.pending[0].id, "allow-once")
        with anyio.fail_after(30):
            await run.wait()
        result = cell_result(run)
        assert (result["status"], result["value"]) == ("completed", "echo: hi")
        started = [event.data["toolId"] for event in events_of(run, "call.started")]
        assert started == ["code_mode:exec", "openclaw:core:echo"]
        assert [event.data["cause"] for event in events_of(run, "cell.resumed")] == ["answer"]
        ended = events_of(run, "call.ended")[-1].data
        assert ended["toolCallId"] == "call_1"
        assert isinstance(ended["result"], dict)
        assert ended["result"]["value"] == "echo: hi"


async def test_arguments_of_exec_that_are_not_json_are_a_failed_result(
    open_service: OpenAgent,
) -> None:
    async with open_service(tools=[echo_tool()], document=CODE_MODE) as setup:
        setup.model.will(call("exec", "return 1"), say("done"))
        result = cell_result(await setup.turn())
        assert (result["status"], result["code"]) == ("failed", "invalid_input")


async def test_two_questions_of_a_cell_are_open_before_the_run_is_said_to_wait(
    open_service: OpenAgent,
) -> None:
    tool = echo_tool(needs_approval="it speaks")
    program = "return await Promise.all([tools.echo({text: '1'}), tools.echo({text: '2'})])"
    async with open_service(tools=[tool], document=CODE_MODE) as setup:
        setup.model.will(call("exec", code(program)), say("done"))
        run = await setup.start()
        with anyio.fail_after(30):
            assert await run.waiting_or_ended() == "waiting"
        first, second = run.pending_approvals
        setup.approvals.answer(first.id, "allow-once")
        assert run.state == "running"
        with anyio.fail_after(30):
            assert await run.waiting_or_ended() == "waiting"
        setup.approvals.answer(second.id, "deny")
        with anyio.fail_after(30):
            await run.wait()
        assert "the approval was denied" in str(cell_result(run)["error"])


async def test_a_direct_call_that_needs_a_person_waits_and_is_kept(
    open_service: OpenAgent,
) -> None:
    async with open_service(tools=[echo_tool(needs_approval="it speaks")]) as setup:
        setup.model.will(call("echo", {"text": "hi"}), say("done"))
        run = await setup.start()
        with anyio.fail_after(30):
            assert await run.waiting_or_ended() == "waiting"
        (asked,) = run.pending_approvals
        setup.approvals.answer(asked.id, "allow-always")
        with anyio.fail_after(30):
            await run.wait()
        assert {"run.waiting", "run.resumed"} <= set(kinds(run))
    # Written in the background; the service is closed now.
    (record,) = await setup.store.approvals.find_all(session_id=run.session_id)
    assert (record.state, record.answer) == ("allowed", {"answer": "allow", "how": "always"})


async def test_a_run_does_not_wait_while_another_call_still_moves(
    open_service: OpenAgent,
) -> None:
    held = HeldTool()
    tools = [held.tool, echo_tool(needs_approval="it speaks")]
    async with open_service(tools=tools) as setup:
        setup.model.will(calls(("a", "held", {}), ("b", "echo", {})), say("done"))
        run = await setup.start()
        await event_of(run, "approval.requested")
        with anyio.fail_after(30):
            await held.started.wait()
        assert run.state == "running"
        held.release.set()
        with anyio.fail_after(30):
            assert await run.waiting_or_ended() == "waiting"
        setup.approvals.answer(run.pending_approvals[0].id, "deny")
        with anyio.fail_after(30):
            await run.wait()


async def test_a_cell_that_yields_goes_back_to_the_model_who_waits_for_it(
    open_service: OpenAgent,
) -> None:
    async def wait_for_it(request: object) -> object:
        results = setup.model.requests[1].messages[-1]
        assert isinstance(results, ToolMessage)
        return call("wait", {"runId": json.loads(results.content)["runId"]}, call_id="call_2")

    async with open_service(tools=[echo_tool()], document=CODE_MODE) as setup:
        setup.model.will(
            call("exec", code("await yield_control('a look'); return 7")),
            wait_for_it,  # pyright: ignore[reportArgumentType]
            say("seven"),
        )
        run = await setup.turn()
        assert run.state == "completed"
        assert cell_result(run, 0)["status"] == "waiting"
        assert cell_result(run, 1)["value"] == 7


async def test_cells_that_still_wait_end_with_their_turn(open_service: OpenAgent) -> None:
    async with open_service(tools=[echo_tool()], document=CODE_MODE) as setup:
        setup.model.will(call("exec", code("await yield_control(); return 7")), say("later"))
        run = await setup.turn()
        assert run.state == "completed"
        assert setup.runtime.cells() == []
        (ended,) = events_of(run, "cell.ended")
        assert ended.data["status"] == "aborted"


async def test_tool_search_shows_its_controls_and_calls_what_was_found(
    open_service: OpenAgent,
) -> None:
    async with open_service(tools=[echo_tool()], document=TOOL_SEARCH) as setup:
        given: JsonObject = {"id": "openclaw:core:echo", "args": {"text": "hi"}}
        setup.model.will(call("tool_call", given), say("done"))
        run = await setup.turn()
        assert [spec.name for spec in setup.model.requests[0].tools] == [
            "tool_search",
            "tool_describe",
            "tool_call",
        ]
        assert cell_result(run)["value"] == "echo: hi"
        turn = await setup.store.turn(run.id)
        assert turn is not None
        telemetry = turn.data["telemetry"]
        assert isinstance(telemetry, dict)
        assert (telemetry["requests"], telemetry["callCount"]) == (2, 1)


async def test_tool_search_fails_closed_on_another_payload(open_service: OpenAgent) -> None:
    async with open_service(tools=[echo_tool()], document=TOOL_SEARCH) as setup:
        setup.model.will(say("never"))
        setup.model.sent_names = lambda _request: ("echo",)
        run = await setup.turn()
        assert run.state == "failed"
        assert run.result is not None
        assert "too many: echo" in run.result.error


async def test_a_question_inside_of_tool_search_makes_the_run_wait(
    open_service: OpenAgent,
) -> None:
    tool = echo_tool(needs_approval="it speaks")
    async with open_service(tools=[tool], document=TOOL_SEARCH) as setup:
        given: JsonObject = {"id": "openclaw:core:echo", "args": {"text": "hi"}}
        setup.model.will(call("tool_call", given), say("done"))
        run = await setup.start()
        with anyio.fail_after(30):
            assert await run.waiting_or_ended() == "waiting"
        setup.approvals.answer(run.pending_approvals[0].id, "allow-once")
        with anyio.fail_after(30):
            await run.wait()
        assert cell_result(run)["value"] == "echo: hi"


async def test_an_approval_that_nobody_gives_expires_and_the_run_goes_on(
    open_service: OpenAgent,
) -> None:
    tool = echo_tool(needs_approval="it speaks")
    async with open_service(tools=[tool], document=CODE_MODE, approval_seconds=1) as setup:
        setup.model.will(call("exec", code("return await tools.echo({})")), say("no"))
        run = await setup.turn()
        assert run.state == "completed"
        assert "nobody answered within 1 seconds" in str(cell_result(run)["error"])
        (answered,) = events_of(run, "approval.answered")
        assert answered.data["answer"] == "expired"
        assert len(setup.model.requests) == 2


async def test_without_a_sandbox_the_run_fails_before_the_model_is_asked(
    open_service: OpenAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(launcher: Launcher) -> None:
        raise RuntimeUnavailableError("cannot write to /srv/cache")

    monkeypatch.setattr(Launcher, "launch", fail)
    async with open_service(tools=[echo_tool()], document=CODE_MODE) as setup:
        run = await setup.turn()
        assert run.result is not None
        assert (run.state, run.result.error_code) == ("failed", "runtime_unavailable")
        assert (run.result.error, setup.model.requests) == ("cannot write to /srv/cache", [])
