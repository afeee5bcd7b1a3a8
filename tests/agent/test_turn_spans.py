"""What a trace shows of a turn: the whole tree in one piece, how things ended, and no words."""

import json

import anyio
import pytest
from opentelemetry.trace import SpanKind

from nacre.agent import AgentRun
from nacre.errors import ProviderError, StorageError
from nacre.messages import AssistantMessage, TextPart, ToolMessage, Usage
from nacre.providers.base import ModelRequest
from tests.agent.agent_setup import CODE_MODE, TOOL_SEARCH
from tests.agent.conftest import OpenAgent
from tests.agent.fake_models import HeldAnswer, call, calls, say
from tests.agent.tools import HeldTool, echo_tool, failing_tool
from tests.agent.traces import (
    Traces,
    attributes_of,
    parent_id_of,
    recording_traces,
    span_id,
    status_of,
    trace_id,
)


@pytest.fixture
def traces(monkeypatch: pytest.MonkeyPatch) -> Traces:
    return recording_traces(monkeypatch)


async def wait_for_the_cell(request: ModelRequest) -> AssistantMessage:
    last = request.messages[-1]
    assert isinstance(last, ToolMessage)
    return call("wait", {"runId": json.loads(last.content)["runId"]}, call_id="call_2")


async def ended(run: AgentRun) -> None:
    with anyio.fail_after(5):
        await run.wait()


# The tree.


async def test_everything_that_a_turn_does_is_below_it_also_after_a_wait(
    open_service: OpenAgent, traces: Traces
) -> None:
    program = (
        "await tools.echo({text: 'private'}); await yield_control('private');"
        "return await tools.echo({text: 'private'})"
    )
    async with open_service(tools=[echo_tool()], document=CODE_MODE) as setup:
        setup.model.will(call("exec", {"code": program}), wait_for_the_cell, say("private"))
        run = await setup.turn("private")
    assert run.state == "completed"
    assert traces.tree() == [
        "agent turn",
        "  chat model",
        "  execute_tool exec",
        "    nacre.tool_call code_mode:exec",
        "      nacre.cell",
        "        nacre.tool_call openclaw:core:echo",
        "        nacre.suspend",
        "        nacre.resume",
        "        nacre.tool_call openclaw:core:echo",
        "  chat model",
        "  execute_tool wait",
        "    nacre.tool_call code_mode:wait",
        "  chat model",
    ]
    assert len({trace_id(each) for each in traces.spans}) == 1
    assert {status_of(each)[0] for each in traces.spans} == {"UNSET"}
    assert "private" not in traces.text()


@pytest.mark.parametrize(
    ("document", "name", "arguments", "lines"),
    [
        (
            None,
            "echo",
            {"text": "private"},
            ["  execute_tool echo", "    nacre.tool_call openclaw:core:echo"],
        ),
        (
            TOOL_SEARCH,
            "tool_call",
            {"id": "openclaw:core:echo", "args": {"text": "private"}},
            [
                "  execute_tool tool_call",
                "    nacre.tool_call tool_search:tool_call",
                "      nacre.tool_call openclaw:core:echo",
            ],
        ),
    ],
    ids=["direct", "tool_search"],
)
async def test_calls_are_below_the_turn_on_other_surfaces(
    open_service: OpenAgent,
    traces: Traces,
    document: dict[str, object] | None,
    name: str,
    arguments: dict[str, object],
    lines: list[str],
) -> None:
    async with open_service(tools=[echo_tool()], document=document) as setup:
        setup.model.will(call(name, json.dumps(arguments)), say("done"))
        await setup.turn()
    assert traces.tree() == ["agent turn", "  chat model", *lines, "  chat model"]
    assert "private" not in traces.text()


async def test_calls_at_the_same_time_are_siblings(open_service: OpenAgent, traces: Traces) -> None:
    async with open_service(tools=[echo_tool()]) as setup:
        setup.model.will(calls(("a", "echo", {}), ("b", "echo", {})), say("done"))
        await setup.turn()
    turn, both = traces.one("agent turn"), traces.all_of("execute_tool echo")
    assert [parent_id_of(each) for each in both] == [span_id(turn)] * 2
    assert {attributes_of(each)["gen_ai.tool.call.id"] for each in both} == {"a", "b"}


async def test_a_summary_of_the_session_is_a_model_call_of_its_own(
    open_service: OpenAgent, traces: Traces
) -> None:
    agent = {"compaction": {"keepTurns": 1, "thresholdShare": 0.5}}
    async with open_service(agent=agent, context_tokens=1000) as setup:
        setup.model.will(say("one"), say("two", tokens=900))
        first = await setup.turn("private")
        await setup.turn(session_id=first.session_id)
        setup.model.will(say("private"), say("three"))
        await setup.turn(session_id=first.session_id)
    assert traces.tree()[4:] == ["agent turn", "  chat model", "  chat model"]
    assert "private" not in traces.text()


# Attributes.


async def test_a_turn_and_its_model_calls_say_what_the_conventions_ask_for(
    open_service: OpenAgent, traces: Traces
) -> None:
    answer = AssistantMessage(
        parts=(TextPart(text="done"),),
        usage=Usage(input_tokens=100, output_tokens=7, cached_tokens=40),
    )
    async with open_service(tools=[echo_tool()]) as setup:
        setup.model.will(call("echo"), answer)
        run = await setup.turn()
        # The turn is over for the trace as soon as it is for its caller.
        turn = traces.one("agent turn")
    asked = {
        "gen_ai.provider.name": "fake",
        "gen_ai.system": "fake",
        "gen_ai.request.model": "model",
        "gen_ai.conversation.id": run.session_id,
    }
    assert attributes_of(turn) == {
        **asked,
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.id": "main",
        "gen_ai.usage.input_tokens": 100,
        "gen_ai.usage.output_tokens": 17,
        "gen_ai.usage.cache_read.input_tokens": 40,
        "nacre.run.id": run.id,
        "nacre.turn.state": "completed",
        "nacre.turn.surface": "direct",
        "nacre.turn.steps": 2,
    }
    first, last = traces.all_of("chat model")
    assert attributes_of(first)["gen_ai.response.finish_reasons"] == ("tool_calls",)
    assert attributes_of(last) == {
        **asked,
        "gen_ai.operation.name": "chat",
        "gen_ai.response.finish_reasons": ("stop",),
        "gen_ai.usage.input_tokens": 100,
        "gen_ai.usage.output_tokens": 7,
        "gen_ai.usage.cache_read.input_tokens": 40,
    }
    assert (turn.kind, last.kind) == (SpanKind.INTERNAL, SpanKind.CLIENT)
    assert attributes_of(traces.one("execute_tool echo")) == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "echo",
        "gen_ai.tool.call.id": "call_1",
        "gen_ai.tool.type": "function",
    }


async def test_a_name_that_the_model_made_up_is_not_told(
    open_service: OpenAgent, traces: Traces
) -> None:
    async with open_service(tools=[echo_tool()]) as setup:
        setup.model.will(call("private words of a person"), say("done"))
        await setup.turn()
    made_up = traces.one("execute_tool")
    assert status_of(made_up) == ("ERROR", "unknown_tool")
    assert attributes_of(made_up)["error.type"] == "unknown_tool"
    assert "private" not in traces.text()


# Ends.


async def test_a_call_that_fails_is_marked_and_the_turn_is_not(
    open_service: OpenAgent, traces: Traces
) -> None:
    async with open_service(tools=[failing_tool()]) as setup:
        setup.model.will(call("print"), say("there is no paper"))
        await setup.turn()
    assert status_of(traces.one("execute_tool print")) == ("ERROR", "tool_error")
    assert status_of(traces.one("nacre.tool_call")) == ("ERROR", "tool_failed")
    assert status_of(traces.one("agent turn")) == ("UNSET", None)
    assert "no paper" not in traces.text()


async def test_a_turn_whose_model_fails_ends_with_the_kind_of_error(
    open_service: OpenAgent, traces: Traces
) -> None:
    async with open_service() as setup:
        setup.model.will(ProviderError("private", status=503))
        run = await setup.turn()
    assert run.state == "failed"
    chat, turn = traces.one("chat model"), traces.one("agent turn")
    assert status_of(chat) == ("ERROR", "503")
    assert attributes_of(chat)["error.type"] == "503"
    assert status_of(turn) == ("ERROR", "ProviderError")
    assert attributes_of(turn)["nacre.turn.state"] == "failed"
    assert "private" not in traces.text()


async def test_a_model_and_its_stand_in_have_a_span_each(
    open_service: OpenAgent, traces: Traces
) -> None:
    agent = {"model": {"primary": "fake/model", "fallbacks": ["fake/spare"]}}
    async with open_service(agent=agent) as setup:
        setup.model.will(ProviderError("overloaded"))
        setup.spare_model.will(say("here"))
        await setup.turn()
    assert traces.tree() == ["agent turn", "  chat model", "  chat spare"]
    assert status_of(traces.one("chat model")) == ("ERROR", "ProviderError")
    assert status_of(traces.one("chat spare")) == ("UNSET", None)


async def test_an_aborted_turn_ends_all_its_spans(open_service: OpenAgent, traces: Traces) -> None:
    held = HeldTool()
    async with open_service(tools=[held.tool], document=CODE_MODE) as setup:
        setup.model.will(call("exec", {"code": "return await tools.held({})"}))
        run = await setup.start()
        with anyio.fail_after(5):
            await held.started.wait()
            await run.abort("private")
    assert traces.tree() == [
        "agent turn",
        "  chat model",
        "  execute_tool exec",
        "    nacre.tool_call code_mode:exec",
        "      nacre.cell",
        "        nacre.tool_call openclaw:core:held",
    ]
    turn = traces.one("agent turn")
    assert status_of(turn) == ("ERROR", "aborted")
    assert attributes_of(turn)["nacre.turn.state"] == "aborted"
    assert "private" not in traces.text()


async def test_a_turn_that_could_not_be_kept_has_failed(
    open_service: OpenAgent, traces: Traces, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*given: object, **named: object) -> None:
        raise StorageError("private")

    async with open_service() as setup:
        setup.model.will(say("done"))
        kept = setup.store.end_turn
        monkeypatch.setattr(setup.store, "end_turn", fail)
        await setup.turn()
        turn = traces.one("agent turn")
        monkeypatch.setattr(setup.store, "end_turn", kept)
    assert status_of(turn) == ("ERROR", "StorageError")
    assert attributes_of(turn)["nacre.turn.state"] == "failed"
    assert "private" not in traces.text()


async def test_a_model_call_that_is_cut_off_says_that_it_was_aborted(
    open_service: OpenAgent, traces: Traces
) -> None:
    held = HeldAnswer(say("never"))
    async with open_service() as setup:
        setup.model.will(held)
        await setup.start()
        with anyio.fail_after(5):
            await held.asked.wait()
        # Closing the service aborts the turn.
    assert status_of(traces.one("chat model")) == ("ERROR", "aborted")
    assert status_of(traces.one("agent turn")) == ("ERROR", "aborted")


# Callers.


async def test_each_turn_of_a_session_is_below_its_own_caller(
    open_service: OpenAgent, traces: Traces
) -> None:
    held = HeldAnswer(say("one"))
    async with open_service() as setup:
        setup.model.will(held, say("two"), say("three"))
        with traces.tracer.start_as_current_span("first caller"):
            first = await setup.start("one")
        with anyio.fail_after(5):
            await held.asked.wait()
        following = {"session_id": first.session_id, "queue_mode": "followup"}
        with traces.tracer.start_as_current_span("second caller"):
            await setup.start("two", **following)
        last = await setup.start("three", **following)
        held.release.set()
        await ended(last)
    assert traces.tree() == [
        "first caller",
        "  agent turn",
        "    chat model",
        "second caller",
        "  agent turn",
        "    chat model",
        "agent turn",
        "  chat model",
    ]


async def test_spans_of_an_instrumented_client_are_below_the_model_call(
    open_service: OpenAgent, traces: Traces
) -> None:
    async def asked(request: ModelRequest) -> AssistantMessage:
        with traces.tracer.start_as_current_span("POST"):
            return say("done")

    async with open_service() as setup:
        setup.model.will(asked)
        await setup.turn()
    assert traces.tree() == ["agent turn", "  chat model", "    POST"]
