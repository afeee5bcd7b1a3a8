"""A turn: the model is asked, its calls are made, and it answers."""

from collections.abc import Sequence
from dataclasses import replace

import anyio
import pytest

from nacre.agent import ClientTool, TurnRequest
from nacre.errors import (
    ConfigError,
    ProviderError,
    SessionError,
    ToolDefinitionError,
    ToolServerError,
)
from nacre.hooks import (
    AgentEnd,
    BeforeAgentFinalize,
    ChangeContent,
    LlmInput,
    LlmOutput,
    Revise,
    ToolResultPersist,
    hook,
)
from nacre.messages import (
    AssistantMessage,
    FinishReason,
    Message,
    ToolCallPart,
    ToolMessage,
    UserMessage,
    user_message,
)
from nacre.providers.base import ModelSettings
from nacre.tools import Tool
from nacre.tools.definition import ListedServer
from nacre.tools.surface import MAX_RESULT_BYTES
from tests.agent.agent_setup import AgentRun, events_of, kinds
from tests.agent.conftest import OpenAgent
from tests.agent.fake_models import call, calls, say
from tests.agent.tools import HeldTool, echo_tool, failing_tool, returning_tool
from tests.code_mode.simple_tools import simple_tool


def result_of(run: AgentRun, index: int = -1) -> ToolMessage:
    """What came of a call, the last one's unless it is said."""
    assert run.result is not None
    return [message for message in run.result.messages if isinstance(message, ToolMessage)][index]


def calls_in(message: Message) -> tuple[ToolCallPart, ...]:
    return message.tool_calls if isinstance(message, AssistantMessage) else ()


def error_of(run: AgentRun) -> str:
    assert run.result is not None
    return run.result.error


async def test_an_answer_without_calls_ends_the_turn(open_service: OpenAgent) -> None:
    async with open_service() as setup:
        setup.model.will(say("good day"))
        run = await setup.turn("hello")
        assert run.state == "completed"
        assert run.result is not None
        assert run.result.text == "good day"
        assert await setup.kept(run.session_id) == [
            user_message("hello"),
            replace(say("good day"), model="fake/model"),
        ]
        assert kinds(run) == [
            "run.started",
            "model.started",
            "text.delta",
            "message.completed",
            "run.completed",
        ]


async def test_a_call_is_made_and_its_result_is_what_the_model_reads_next(
    open_service: OpenAgent,
) -> None:
    async with open_service(tools=[echo_tool()]) as setup:
        setup.model.will(call("echo", {"text": "hi"}), say("done"))
        run = await setup.turn()
        assert run.state == "completed"
        expected = ToolMessage(call_id="call_1", name="echo", content="echo: hi")
        assert list(setup.model.requests[1].messages)[2:] == [expected]
        assert [spec.name for spec in setup.model.requests[0].tools] == ["echo"]
        started, ended = events_of(run, "call.started"), events_of(run, "call.ended")
        assert [event.data["toolCallId"] for event in (*started, *ended)] == ["call_1"] * 2


async def test_the_next_turn_of_the_session_sees_the_same_messages(
    open_service: OpenAgent,
) -> None:
    async with open_service(tools=[echo_tool()]) as setup:
        setup.model.will(call("echo", {"text": "hi"}), say("done"), say("again"))
        first = await setup.turn()
        await setup.turn("more", session_id=first.session_id)
        assert first.result is not None
        assert list(setup.model.requests[2].messages) == [
            *first.result.messages,
            user_message("more"),
        ]


async def test_calls_of_one_answer_run_at_the_same_time_and_keep_their_order(
    open_service: OpenAgent,
) -> None:
    slow, quick = HeldTool("slow"), HeldTool("quick")
    async with open_service(tools=[slow.tool, quick.tool]) as setup:
        setup.model.will(
            calls(("a", "slow", {"text": "1"}), ("b", "quick", {"text": "2"})), say("done")
        )
        run = await setup.start()
        with anyio.fail_after(5):
            await slow.started.wait()
            await quick.started.wait()
            quick.release.set()
            slow.release.set()
            await run.wait()
        assert [message.content for message in (result_of(run, 0), result_of(run, 1))] == [
            "held: 1",
            "held: 2",
        ]


async def test_calls_run_one_by_one_where_the_agent_is_not_parallel(
    open_service: OpenAgent,
) -> None:
    slow = HeldTool("slow")
    async with open_service(
        tools=[slow.tool, echo_tool()], agent={"parallelToolCalls": False}
    ) as setup:
        setup.model.will(calls(("a", "slow", {}), ("b", "echo", {})), say("done"))
        run = await setup.start()
        with anyio.fail_after(5):
            await slow.started.wait()
            assert len(events_of(run, "call.started")) == 1
            slow.release.set()
            await run.wait()
        assert len(events_of(run, "call.started")) == 2
        assert setup.model.requests[0].settings.is_parallel is False


async def test_an_unknown_tool_is_an_error_that_names_what_there_is(
    open_service: OpenAgent,
) -> None:
    async with open_service(tools=[echo_tool()]) as setup:
        setup.model.will(call("__proto__"), say("sorry"))
        run = await setup.turn()
        assert run.state == "completed"
        result = result_of(run)
        assert result.is_error
        assert result.content == "there is no tool '__proto__'; there are: echo"


@pytest.mark.parametrize("arguments", ['{"text": ', "[1]", '"x"', "[" * 5000])
async def test_arguments_that_are_no_object_are_an_error_result(
    open_service: OpenAgent, arguments: str
) -> None:
    async with open_service(tools=[echo_tool()]) as setup:
        setup.model.will(call("echo", arguments), say("sorry"))
        run = await setup.turn()
        assert run.state == "completed"
        assert result_of(run).is_error
        assert "the arguments are" in result_of(run).content


async def test_a_tool_that_fails_is_an_error_result(open_service: OpenAgent) -> None:
    async with open_service(tools=[failing_tool()]) as setup:
        setup.model.will(call("print"), say("sorry"))
        run = await setup.turn()
        assert result_of(run) == ToolMessage(
            call_id="call_1", name="print", content="no paper left", is_error=True
        )


async def test_a_large_result_is_cut_and_says_how_large_it_was(open_service: OpenAgent) -> None:
    async with open_service(tools=[returning_tool("ä" * MAX_RESULT_BYTES)]) as setup:
        setup.model.will(call("give"), say("much"))
        run = await setup.turn()
        content = result_of(run).content
        assert len(content.encode()) < MAX_RESULT_BYTES + 200
        assert f"{2 * MAX_RESULT_BYTES} bytes" in content


async def test_calls_with_equal_or_no_ids_have_results_of_their_own(
    open_service: OpenAgent,
) -> None:
    async with open_service(tools=[echo_tool()]) as setup:
        setup.model.will(
            calls(("x", "echo", {"text": "1"}), ("x", "echo", {"text": "2"}), ("", "echo", {})),
            say("done"),
        )
        run = await setup.turn()
        contents = [result_of(run, index).content for index in range(3)]
        assert contents == ["echo: 1", "echo: 2", "echo: "]
        assert len({result_of(run, index).call_id for index in range(3)}) == 3


async def test_ids_that_begin_anew_with_each_answer_are_told_apart(
    open_service: OpenAgent,
) -> None:
    async with open_service(tools=[echo_tool()]) as setup:
        setup.model.will(call("echo", call_id="c0"), call("echo", call_id="c0"), say("done"))
        run = await setup.turn()
        assert run.result is not None
        made = [part.call_id for each in run.result.messages for part in calls_in(each)]
        assert made[0] == "c0"
        assert made == [result_of(run, 0).call_id, result_of(run, 1).call_id]
        assert len(set(made)) == 2


async def test_half_characters_of_a_model_do_not_leave_the_step(open_service: OpenAgent) -> None:
    async with open_service(tools=[echo_tool()]) as setup:
        setup.model.will(call("echo", '{"text": "\ud83d"}'), say("a\ud83d\ude00b\ud800c"))
        run = await setup.turn()
        assert run.result is not None
        assert run.result.text == "a\N{GRINNING FACE}b\ufffdc"
        assert events_of(run, "text.delta")[0].data["text"] == run.result.text
        assert [part.arguments for part in calls_in(run.result.messages[1])] == [
            '{"text": "\ufffd"}'
        ]


# Budgets.


async def test_a_run_that_never_ends_stops_at_max_steps_with_its_work_kept(
    open_service: OpenAgent,
) -> None:
    async with open_service(tools=[echo_tool()], agent={"maxSteps": 2}) as setup:
        setup.model.will(call("echo"), call("echo", call_id="call_2"))
        run = await setup.turn()
        assert run.state == "failed"
        assert "`maxSteps` of the agent main is 2" in error_of(run)
        kept = await setup.kept(run.session_id)
        assert [type(message).__name__ for message in kept] == [
            "UserMessage",
            "AssistantMessage",
            "ToolMessage",
            "AssistantMessage",
            "ToolMessage",
        ]


async def test_a_run_stops_before_a_model_call_beyond_max_tokens(open_service: OpenAgent) -> None:
    async with open_service(tools=[echo_tool()], agent={"maxTokens": 1000}) as setup:
        setup.model.will(replace(call("echo"), usage=replace(say("").usage, output_tokens=1000)))
        run = await setup.turn()
        assert run.state == "failed"
        assert "`maxTokens` of the agent main is 1000" in error_of(run)


async def test_a_run_that_takes_too_long_fails_and_its_tools_are_cancelled(
    open_service: OpenAgent,
) -> None:
    held = HeldTool()
    async with open_service(tools=[held.tool], agent={"timeoutSeconds": 1}) as setup:
        setup.model.will(call("held"))
        run = await setup.turn()
        assert run.state == "failed"
        assert "`timeoutSeconds` of the agent main" in error_of(run)
        assert held.was_cancelled
        assert result_of(run).is_error


# Models that fail.


async def test_a_model_that_fails_is_replaced_by_the_next(open_service: OpenAgent) -> None:
    model = {"model": {"primary": "fake/model", "fallbacks": ["fake/spare"]}}
    async with open_service(agent=model) as setup:
        setup.model.will(ProviderError("overloaded", status=529))
        setup.spare_model.will(say("from the spare"))
        run = await setup.turn()
        assert run.state == "completed"
        assert run.result is not None
        assert run.result.model == "fake/spare"
        (retry,) = events_of(run, "retry")
        assert retry.data["model"] == "fake/spare"
        assert retry.data["problem"] == "overloaded"


async def test_no_other_model_is_asked_once_words_were_passed_on(open_service: OpenAgent) -> None:
    model = {"model": {"primary": "fake/model", "fallbacks": ["fake/spare"]}}
    async with open_service(agent=model) as setup:
        setup.model.will(say("half an answer"))
        setup.model.breaks_after_text = ProviderError("the connection broke")
        run = await setup.turn()
        assert run.state == "failed"
        assert error_of(run) == "the connection broke"
        assert setup.spare_model.requests == []
        kept = await setup.kept(run.session_id)
        assert isinstance(kept[1], AssistantMessage)
        assert (kept[1].text, kept[1].finish_reason) == ("half an answer", "error")


async def test_a_turn_without_any_answer_fails_with_what_the_provider_said(
    open_service: OpenAgent,
) -> None:
    async with open_service() as setup:
        setup.model.will(ProviderError("401: wrong key", status=401))
        run = await setup.turn("important")
        assert run.state == "failed"
        assert error_of(run) == "401: wrong key"
        turn = await setup.store.turn(run.id)
        assert turn is not None
        assert (turn.status, turn.error) == ("failed", "401: wrong key")
        assert await setup.kept(run.session_id) == [user_message("important")]


async def test_a_fault_of_our_own_fails_the_turn_and_not_the_service(
    open_service: OpenAgent,
) -> None:
    async with open_service() as setup:
        setup.model.will(RuntimeError("a bug"), say("fine"))
        run = await setup.turn()
        assert run.state == "failed"
        assert "RuntimeError: a bug" in error_of(run)
        assert (await setup.turn("again", session_id=run.session_id)).state == "completed"


@pytest.mark.parametrize("reason", ["length", "content_filter", "stop"])
async def test_an_empty_answer_completes_with_an_honest_finish_reason(
    open_service: OpenAgent, reason: FinishReason
) -> None:
    async with open_service() as setup:
        setup.model.will(AssistantMessage(parts=(), finish_reason=reason), say("better"))
        run = await setup.turn()
        assert run.state == "completed"
        assert run.result is not None
        assert (run.result.text, run.result.finish_reason) == ("", reason)
        await setup.turn("again", session_id=run.session_id)
        assert all(isinstance(said, UserMessage) for said in setup.model.requests[1].messages)


async def test_an_answer_that_ended_with_an_error_fails_the_turn(open_service: OpenAgent) -> None:
    async with open_service() as setup:
        setup.model.will(replace(say("half"), finish_reason="error"))
        run = await setup.turn()
        assert run.state == "failed"
        assert "ended its answer with an error" in error_of(run)


# What leaves.


async def test_a_payload_with_another_tool_is_not_sent(open_service: OpenAgent) -> None:
    async with open_service(tools=[echo_tool()]) as setup:
        setup.model.will(say("never"))
        setup.model.sent_names = lambda _request: ("echo", "smuggled")
        run = await setup.turn()
        assert run.state == "failed"
        assert "too many: smuggled; missing: none. Nothing was sent" in error_of(run)
        assert setup.model.requests == []


async def test_an_answer_to_a_request_that_was_not_checked_is_not_used(
    open_service: OpenAgent,
) -> None:
    async with open_service() as setup:
        setup.model.will(say("never"))
        setup.model.skips_check = True
        run = await setup.turn()
        assert run.state == "failed"
        assert "answered without having its request checked" in error_of(run)


async def test_bytes_on_the_wire_are_told_and_kept(open_service: OpenAgent) -> None:
    async with open_service(tools=[echo_tool()]) as setup:
        setup.model.will(call("echo"), say("done"))
        run = await setup.turn()
        started = events_of(run, "model.started")[0].data
        assert (started["toolNames"], started["toolBytes"]) == (["echo"], 100)
        turn = await setup.store.turn(run.id)
        assert turn is not None
        kept = {key: turn.data[key] for key in ("requests", "toolBytes", "payloadBytes", "surface")}
        assert kept == {
            "requests": 2,
            "toolBytes": 200,
            "payloadBytes": 2000,
            "surface": "direct",
        }


async def test_instructions_and_settings_of_agent_and_caller_reach_the_model(
    open_service: OpenAgent,
) -> None:
    async with open_service(agent={"temperature": 0.5, "maxOutputTokens": 100}) as setup:
        setup.model.will(say("a"), say("b"))
        await setup.turn("1", instructions="Be brief.", settings=ModelSettings(max_tokens=7))
        await setup.turn("2", instructions="Be brief.")
        first, second = setup.model.requests
        assert first.instructions.startswith("Be good.\n\n")
        assert first.instructions.endswith("\n\nBe brief.")
        assert first.instructions == second.instructions
        assert (first.settings.max_tokens, first.settings.temperature) == (7, 0.5)
        assert second.settings.max_tokens == 100


async def test_a_turn_without_tools_shows_none(open_service: OpenAgent) -> None:
    async with open_service(tools=[echo_tool()]) as setup:
        setup.model.will(call("echo"), say("plain"))
        run = await setup.turn(tools_disabled=True)
        assert list(setup.model.requests[0].tools) == []
        assert result_of(run).content == "there is no tool 'echo'; there are: none"


async def test_tools_that_policy_denies_are_not_shown(open_service: OpenAgent) -> None:
    document = {"tools": {"deny": ["print"]}}
    async with open_service(tools=[echo_tool(), failing_tool()], document=document) as setup:
        setup.model.will(say("ok"))
        await setup.turn()
        assert [spec.name for spec in setup.model.requests[0].tools] == ["echo"]


# Hooks.


async def test_hooks_see_what_goes_to_the_model_and_what_comes(open_service: OpenAgent) -> None:
    seen: list[LlmInput | LlmOutput | AgentEnd] = []

    @hook("llm_input")
    async def sees_input(event: LlmInput) -> None:
        seen.append(event)

    @hook("llm_output")
    async def sees_output(event: LlmOutput) -> None:
        seen.append(event)

    @hook("agent_end")
    async def sees_end(event: AgentEnd) -> None:
        seen.append(event)

    async with open_service(
        tools=[echo_tool()], hooks=[sees_input, sees_output, sees_end]
    ) as setup:
        setup.model.will(say("good day"))
        await setup.turn("hello")
    told, answered, ended = seen
    assert isinstance(told, LlmInput)
    assert told.tool_names == ("echo",)
    assert len(told.messages) == 1
    assert isinstance(answered, LlmOutput)
    assert answered.text == "good day"
    assert isinstance(ended, AgentEnd)
    assert (ended.status, ended.text) == ("completed", "good day")


async def test_a_hook_sends_the_model_back_three_times_at_most(open_service: OpenAgent) -> None:
    passes: list[int] = []

    async def before_agent_finalize(event: BeforeAgentFinalize) -> Revise:
        passes.append(event.pass_count)
        return Revise("not yet")

    async with open_service(hooks=[before_agent_finalize]) as setup:
        setup.model.will(say("1"), say("2"), say("3"), say("4"))
        run = await setup.turn()
        assert run.state == "completed"
        assert run.result is not None
        assert run.result.text == "4"
        assert passes == [0, 1, 2]
        assert setup.model.requests[1].messages[-1] == user_message("not yet")


async def test_a_hook_changes_what_is_kept_of_a_result(open_service: OpenAgent) -> None:
    async def tool_result_persist(event: ToolResultPersist) -> ChangeContent:
        return ChangeContent(event.content.replace("secret", "***"))

    async with open_service(tools=[echo_tool()], hooks=[tool_result_persist]) as setup:
        setup.model.will(call("echo", {"text": "secret"}), say("done"))
        run = await setup.turn()
        assert result_of(run).content == "echo: ***"
        assert result_of(run) in setup.model.requests[1].messages


# What cannot be started.


async def test_a_message_or_a_history_is_needed(open_service: OpenAgent) -> None:
    async with open_service() as setup:
        with pytest.raises(SessionError, match="no message and no history"):
            await setup.service.start(TurnRequest())


async def test_a_model_that_is_not_there_is_refused_at_once(open_service: OpenAgent) -> None:
    async with open_service() as setup:
        with pytest.raises(ConfigError, match="has no model 'fake/other'"):
            await setup.start(model="fake/other")
        assert setup.service.runs() == []


async def test_a_client_tool_that_is_none_is_refused_at_once(open_service: OpenAgent) -> None:
    async with open_service() as setup:
        with pytest.raises(ToolDefinitionError, match="a tool's name is 'two words'"):
            await setup.start(client_tools=[ClientTool(name="two words")])
        assert setup.service.runs() == []


@pytest.mark.parametrize(
    "answer",
    [call(""), call(" "), AssistantMessage(parts=(), finish_reason="tool_calls")],
    ids=["empty", "blank", "left out"],
)
async def test_a_tool_call_without_a_name_fails_the_run(
    open_service: OpenAgent, answer: AssistantMessage
) -> None:
    async with open_service(tools=[echo_tool()]) as setup:
        setup.model.will(answer)
        run = await setup.turn()

        assert (run.state, setup.model.replies) == ("failed", [])
        assert run.result is not None
        assert "fake/model answered with a tool call that has no name" in run.result.error
        kept = await setup.kept(run.session_id)
        assert not any(isinstance(message, AssistantMessage) for message in kept)


class BrokenServer:
    """A server that does not start."""

    name = "broken"
    description = ""
    known_tools: Sequence[Tool] | None = None

    async def tools(self) -> Sequence[Tool]:
        raise ToolServerError("broken does not start", server="broken")


async def test_tools_of_servers_are_shown_and_called(open_service: OpenAgent) -> None:
    async def lookup(given: object, call: object) -> object:
        return {"content": [{"type": "text", "text": "found"}]}

    tool = Tool(name="echo", owner="docs", source="mcp", execute=lookup)
    operation = simple_tool("$resources.read", owner="docs", source="mcp")
    servers = [ListedServer("docs", [tool, operation]), BrokenServer()]
    async with open_service(tools=[echo_tool()], servers=servers) as setup:
        setup.model.will(call("docs__echo"), say("done"))
        run = await setup.turn()
        assert [spec.name for spec in setup.model.requests[0].tools] == ["echo", "docs__echo"]
        result = setup.model.requests[1].messages[-1]
        assert isinstance(result, ToolMessage)
        assert result.content == "found"
        (problem,) = events_of(run, "server.unavailable")
        assert problem.data == {"server": "broken", "problem": "broken does not start"}


async def test_servers_that_policy_rules_out_are_not_asked(open_service: OpenAgent) -> None:
    document = {"tools": {"deny": ["broken"]}}
    async with open_service(servers=[BrokenServer()], document=document) as setup:
        setup.model.will(say("done"))
        run = await setup.turn()
        assert events_of(run, "server.unavailable") == []
