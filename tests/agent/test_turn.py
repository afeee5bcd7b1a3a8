"""A run can be aborted in any state. Its completed steps are stored and can be replayed."""

from collections.abc import Sequence
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from nacre.agent import AgentRun
from nacre.errors import SessionError
from nacre.hooks import AgentEnd, hook
from nacre.messages import AssistantMessage, Message, ToolMessage, UserMessage, user_message
from nacre.providers.base import ModelRequest
from nacre.storage import Store
from nacre.tools import Tool, ToolCall
from tests.agent.agent_setup import CODE_MODE, event_of, events_of
from tests.agent.conftest import OpenAgent
from tests.agent.fake_models import HeldAnswer, call, calls, say
from tests.agent.tools import HeldTool, echo_tool


async def aborted(run: AgentRun, reason: str = "enough") -> None:
    with anyio.fail_after(5):
        assert await run.abort(reason)
    assert run.state == "aborted"


def shapes(messages: list[Message]) -> list[str]:
    return [type(message).__name__ for message in messages]


async def test_an_abort_closes_the_stream_of_the_model(open_service: OpenAgent) -> None:
    held = HeldAnswer(say("never"))
    async with open_service() as setup:
        setup.model.will(held, say("back"))
        run = await setup.start("hello")
        with anyio.fail_after(5):
            await held.asked.wait()
        await aborted(run)
        assert setup.model.open_streams == 0
        assert run.result is not None
        assert run.result.error == "enough"
        turn = await setup.store.turn(run.id)
        assert turn is not None
        assert (turn.status, turn.error) == ("aborted", "enough")
        again = await setup.turn("again", session_id=run.session_id)
        assert again.state == "completed"
        assert list(setup.model.requests[1].messages) == [
            user_message("hello"),
            user_message("again"),
        ]


async def test_an_abort_cancels_calls_and_gives_each_a_result(open_service: OpenAgent) -> None:
    held = HeldTool()
    async with open_service(tools=[held.tool, echo_tool()]) as setup:
        setup.model.will(calls(("a", "held", {}), ("b", "echo", {"text": "hi"})), say("back"))
        run = await setup.start()
        with anyio.fail_after(5):
            await held.started.wait()
            while len(events_of(run, "call.ended")) < 1:
                await anyio.lowlevel.checkpoint()
        await aborted(run)
        assert held.was_cancelled
        kept = await setup.kept(run.session_id)
        assert shapes(kept) == ["UserMessage", "AssistantMessage", "ToolMessage", "ToolMessage"]
        cut_off, done = kept[2], kept[3]
        assert isinstance(cut_off, ToolMessage)
        assert isinstance(done, ToolMessage)
        assert (cut_off.call_id, cut_off.is_error, cut_off.content) == ("a", True, "enough")
        assert (done.call_id, done.content) == ("b", "echo: hi")
        await setup.turn("again", session_id=run.session_id)
        assert len(setup.model.requests[1].messages) == 5


async def test_a_tool_that_does_not_listen_cannot_hold_up_an_abort(
    open_service: OpenAgent,
) -> None:
    started, release = anyio.Event(), anyio.Event()

    async def stubborn(given: dict[str, Any], call: ToolCall) -> object:
        started.set()
        for _ in range(3):
            try:
                await release.wait()
            except anyio.get_cancelled_exc_class():
                continue
        return "finally"

    async with open_service(tools=[Tool(name="stubborn", execute=stubborn)]) as setup:
        setup.model.will(call("stubborn"))
        run = await setup.start()
        with anyio.fail_after(5):
            await started.wait()
        await aborted(run)
        kept = await setup.kept(run.session_id)
        assert isinstance(kept[-1], ToolMessage)


async def test_an_abort_ends_cells_and_their_calls(open_service: OpenAgent) -> None:
    held = HeldTool()
    async with open_service(tools=[held.tool], document=CODE_MODE) as setup:
        setup.model.will(call("exec", {"code": "return await tools.held({})"}))
        run = await setup.start()
        with anyio.fail_after(5):
            await held.started.wait()
        await aborted(run)
        assert held.was_cancelled
        assert setup.runtime.cells() == []
        kept = await setup.kept(run.session_id)
        assert shapes(kept) == ["UserMessage", "AssistantMessage", "ToolMessage"]
        (ended,) = [it.data for it in events_of(run, "call.ended") if "result" in it.data]
        assert (ended["outcome"], ended["abortReason"]) == ("completed", "enough")


async def test_an_abort_withdraws_approvals(open_service: OpenAgent) -> None:
    tool = echo_tool(needs_approval="it speaks")
    async with open_service(tools=[tool], document=CODE_MODE) as setup:
        setup.model.will(call("exec", {"code": "return await tools.echo({})"}))
        run = await setup.start()
        await event_of(run, "cell.suspended")
        assert len(setup.approvals.pending) == 1
        await aborted(run)
        assert setup.approvals.pending == ()
        (answered,) = events_of(run, "approval.answered")
        assert answered.data["answer"] == "withdrawn"


async def test_words_of_an_answer_that_was_cut_off_are_kept(open_service: OpenAgent) -> None:
    told = anyio.Event()
    async with open_service() as setup:
        setup.model.will(say("half an answer"))
        setup.model.holds_after_text = told
        run = await setup.start()
        await event_of(run, "text.delta")
        await aborted(run)
        kept = await setup.kept(run.session_id)
        assert isinstance(kept[1], AssistantMessage)
        assert kept[1].text == "half an answer"
        assert run.result is not None
        assert run.result.text == "half an answer"


async def test_a_run_can_be_aborted_before_it_has_done_anything(open_service: OpenAgent) -> None:
    async with open_service(tools=[echo_tool()], document=CODE_MODE) as setup:
        run = await setup.start("hello")
        await aborted(run)
        assert setup.model.requests == []
        assert await setup.kept(run.session_id) == [user_message("hello")]
        turn = await setup.store.turn(run.id)
        assert turn is not None
        assert turn.status == "aborted"


async def test_a_run_can_be_aborted_while_a_server_starts(open_service: OpenAgent) -> None:
    starting = anyio.Event()

    class SlowServer:
        name = "slow"
        description = ""
        known_tools: Sequence[Tool] | None = None

        async def tools(self) -> Sequence[Tool]:
            starting.set()
            await anyio.sleep_forever()
            raise AssertionError

    async with open_service(servers=[SlowServer()]) as setup:
        run = await setup.start("hello")
        with anyio.fail_after(5):
            await starting.wait()
        await aborted(run)
        assert run.result is not None
        assert run.result.finish_reason == "aborted"
        assert await setup.kept(run.session_id) == [user_message("hello")]


async def test_a_run_can_be_aborted_while_its_session_is_summed_up(
    open_service: OpenAgent,
) -> None:
    held = HeldAnswer(say("never"))
    settings = {"compaction": {"keepTurns": 0, "thresholdShare": 0.1}}
    async with open_service(agent=settings, context_tokens=100) as setup:
        setup.model.will(say("one", tokens=50), held)
        await setup.turn("first", session_key="chat")
        run = await setup.start("second", session_key="chat")
        with anyio.fail_after(5):
            await held.asked.wait()
        await aborted(run)
        assert setup.model.open_streams == 0
        assert len(await setup.kept(run.session_id)) == 3


async def test_a_run_that_has_ended_cannot_be_aborted(open_service: OpenAgent) -> None:
    async with open_service() as setup:
        setup.model.will(say("done"))
        run = await setup.turn()
        assert not await run.abort()
        assert not await setup.service.abort(run.id)
        assert run.state == "completed"


async def test_closing_the_service_aborts_what_runs_and_keeps_it(open_service: OpenAgent) -> None:
    held = HeldAnswer(say("never"))
    async with open_service() as setup:
        setup.model.will(held)
        run = await setup.start("hello", session_key="chat")
        with anyio.fail_after(5):
            await held.asked.wait()
        waiting = await setup.start("and this", session_key="chat", queue_mode="followup")
        with anyio.fail_after(5):
            await setup.service.aclose()
        assert (run.state, waiting.state) == ("aborted", "aborted")
        kept = await setup.kept(run.session_id)
        assert [each.text for each in kept if isinstance(each, UserMessage)] == [
            "hello",
            "and this",
        ]
        with pytest.raises(SessionError, match="shutting down"):
            await setup.start()


async def test_closing_with_grace_lets_turns_finish(open_service: OpenAgent) -> None:
    held = HeldAnswer(say("in time"))
    async with open_service() as setup:
        setup.model.will(held)
        run = await setup.start()
        with anyio.fail_after(5):
            await held.asked.wait()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(setup.service.aclose, 5)
                held.release.set()
                await run.wait()
        assert run.state == "completed"


async def test_closing_does_not_wait_for_messages_that_could_join(open_service: OpenAgent) -> None:
    held = HeldAnswer(say("first"))
    document = {"messages": {"queue": {"mode": "collect", "debounceMs": 60_000}}}
    async with open_service(document=document) as setup:
        setup.model.will(held, say("second"))
        run = await setup.start("hello", session_key="chat")
        with anyio.fail_after(5):
            await held.asked.wait()
            collected = await setup.start("and this", session_key="chat")
            held.release.set()
            await run.wait()
        with anyio.fail_after(10):
            await setup.service.aclose(600)
        assert (run.state, collected.state) == ("completed", "completed")
        assert collected.result is not None
        assert collected.result.text == "second"


async def test_closing_does_not_wait_for_people(open_service: OpenAgent) -> None:
    held = HeldAnswer(call("send", {}))
    async with open_service(tools=[echo_tool("send", needs_approval="it is far away")]) as setup:
        setup.model.will(call("send", {}), held)
        waiting = await setup.start()
        with anyio.fail_after(5):
            assert await waiting.waiting_or_ended() == "waiting"
            later = await setup.start()
            await held.asked.wait()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(setup.service.aclose, 600)
                await waiting.wait()
                assert later.state == "running"
                held.release.set()
        assert (waiting.state, later.state) == ("aborted", "aborted")
        assert later.result is not None
        assert later.result.finish_reason == "aborted"
        assert "waited for an answer" in later.result.error
        turn = await setup.store.turn(waiting.id)
    assert turn is not None
    assert turn.status == "aborted"


async def test_a_hook_that_hangs_at_the_end_of_a_turn_does_not_hold_up_closing(
    open_service: OpenAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nacre.agent.service._END_HOOKS_SECONDS", 0.01)
    told: list[str] = []

    @hook("agent_end")
    async def hangs(event: AgentEnd) -> None:
        told.append(event.status)
        await anyio.sleep_forever()

    held = HeldAnswer(say("never"))
    async with open_service(hooks=[hangs]) as setup:
        setup.model.will(held)
        run = await setup.start()
        with anyio.fail_after(5):
            await held.asked.wait()
            await setup.service.aclose()
    assert run.state == "aborted"
    assert told == ["aborted"]


async def test_what_is_raised_beside_the_service_comes_out_as_it_was(
    open_service: OpenAgent,
) -> None:
    with pytest.raises(LookupError, match="ours"):
        async with open_service() as setup:
            setup.model.will(HeldAnswer(say("never")))
            await setup.start()
            raise LookupError("ours")


async def test_cancelling_whoever_holds_the_service_keeps_the_turns(
    open_service: OpenAgent, store: Store
) -> None:
    async def never(request: ModelRequest) -> AssistantMessage:
        scope.cancel()
        await anyio.sleep_forever()
        raise AssertionError

    runs: list[AgentRun] = []
    with anyio.CancelScope() as scope:
        async with open_service() as setup:
            setup.model.will(never)
            runs.append(await setup.start("hello"))
            await runs[0].wait()
    assert runs[0].state == "aborted"
    kept = await store.messages(runs[0].session_id)
    assert [stored.message for stored in kept] == [user_message("hello")]
