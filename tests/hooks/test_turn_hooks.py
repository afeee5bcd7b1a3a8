"""Hooks around the model and the turn: observing, keeping results, sending the model back."""

import logging

import anyio
import pytest

from nacre.hooks import (
    AfterCompaction,
    AgentEnd,
    BeforeAgentFinalize,
    BeforeCompaction,
    ChangeContent,
    HookRunner,
    Hooks,
    LlmInput,
    LlmOutput,
    Revise,
    ToolResultPersist,
)
from nacre.run_context import RunContext

CONTEXT = RunContext(agent_id="main", session_id="session_1", session_key="key", run_id="run_1")
IDENTITY = {"agentId": "main", "sessionId": "session_1", "sessionKey": "key", "runId": "run_1"}

REQUEST = LlmInput(
    context=CONTEXT,
    model="openai/gpt",
    instructions="Be brief.",
    messages=[{"role": "user", "text": "hi"}],
    tool_names=("exec", "wait"),
)
RESULT = ToolResultPersist(context=CONTEXT, tool_name="read", call_id="call_1", content="secret")
ANSWER = BeforeAgentFinalize(context=CONTEXT, text="done")


async def kept(*hooks: object) -> str:
    with anyio.fail_after(10):
        return await HookRunner(Hooks(hooks)).tool_result_persist(RESULT)


async def revision(*hooks: object) -> str | None:
    with anyio.fail_after(10):
        return await HookRunner(Hooks(hooks)).before_agent_finalize(ANSWER)


def keeping(answer: object) -> tuple[str, object]:
    async def keeps(event: ToolResultPersist) -> object:
        return answer

    return ("tool_result_persist", keeps)


def finalizing(answer: object) -> tuple[str, object]:
    async def finalizes(event: BeforeAgentFinalize) -> object:
        return answer

    return ("before_agent_finalize", finalizes)


def failing(event: object) -> None:
    raise RuntimeError("broken")


async def test_every_observer_is_told_its_event() -> None:
    told: list[object] = []
    events: dict[str, object] = {
        "llm_input": REQUEST,
        "llm_output": LlmOutput(context=CONTEXT, model="m", text="t"),
        "agent_end": AgentEnd(context=CONTEXT, status="completed"),
        "before_compaction": BeforeCompaction(context=CONTEXT, message_count=3, estimated_tokens=9),
        "after_compaction": AfterCompaction(context=CONTEXT, message_count=3, summary="s"),
    }
    runner = HookRunner(Hooks([(name, told.append) for name in events]))
    for name, event in events.items():
        await getattr(runner, name)(event)
    assert told == list(events.values())


async def test_what_one_observer_writes_the_next_does_not_read() -> None:
    seen: list[object] = []

    async def scribbles(event: LlmInput) -> None:
        event.messages.append({"role": "user", "text": "injected"})

    async def reads(event: LlmInput) -> None:
        seen.extend(event.messages)

    await HookRunner(Hooks([("llm_input", scribbles), ("llm_input", reads)])).llm_input(REQUEST)
    assert seen == [{"role": "user", "text": "hi"}]


async def test_an_observer_that_fails_is_logged_and_the_next_is_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    told: list[object] = []
    runner = HookRunner(Hooks([("llm_input", failing), ("llm_input", told.append)]))
    with caplog.at_level(logging.ERROR):
        await runner.llm_input(REQUEST)
    assert told == [REQUEST]
    assert "failing" in caplog.text


@pytest.mark.parametrize("answer", [ChangeContent("less"), {"content": "less"}])
async def test_a_hook_changes_what_is_kept_of_a_result(answer: object) -> None:
    assert await kept(keeping(answer)) == "less"


async def test_the_next_hook_sees_what_the_one_before_left() -> None:
    seen: list[str] = []

    async def reads(event: ToolResultPersist) -> None:
        seen.append(event.content)

    assert await kept(keeping(ChangeContent("less")), ("tool_result_persist", reads)) == "less"
    assert seen == ["less"]


@pytest.mark.parametrize("answer", [None, {}])
async def test_without_an_answer_the_result_is_kept(answer: object) -> None:
    assert await kept(keeping(answer)) == "secret"


@pytest.mark.parametrize("answer", [7, {"text": "x"}, {"content": 1}, ChangeContent(1)])  # pyright: ignore[reportArgumentType]
async def test_a_hook_without_a_usable_answer_has_the_result_withheld(answer: object) -> None:
    text = await kept(keeping(answer))
    assert text.startswith("[the result is withheld: the hook keeping.<locals>.keeps failed: it ")


async def test_a_hook_that_raises_has_the_result_withheld() -> None:
    text = await kept(("tool_result_persist", failing))
    assert text == "[the result is withheld: the hook failing failed: RuntimeError: broken]"


@pytest.mark.parametrize("answer", [Revise("no tests"), {"action": "revise", "reason": "no tests"}])
async def test_a_hook_sends_the_model_back_to_work(answer: object) -> None:
    assert await revision(finalizing(answer), finalizing(Revise("later"))) == "no tests"


@pytest.mark.parametrize("answer", [None, {}, {"action": "finalize"}])
async def test_an_answer_that_no_hook_minds_stands(answer: object) -> None:
    assert await revision(finalizing(answer)) is None


@pytest.mark.parametrize("answer", ["again", {"action": "retry"}, {"why": "x"}, Revise(3)])  # pyright: ignore[reportArgumentType]
async def test_an_answer_stands_where_a_hook_returns_nonsense(answer: object) -> None:
    assert await revision(finalizing(answer)) is None


async def test_a_revision_without_a_reason_says_so() -> None:
    assert await revision(finalizing({"action": "revise"})) == "no reason given"


def test_events_are_json_for_hooks_elsewhere() -> None:
    assert REQUEST.to_json() == {
        **IDENTITY,
        "model": "openai/gpt",
        "instructions": "Be brief.",
        "messages": [{"role": "user", "text": "hi"}],
        "toolNames": ["exec", "wait"],
    }
    assert RESULT.to_json() == {
        **IDENTITY,
        "toolName": "read",
        "toolCallId": "call_1",
        "content": "secret",
        "isError": False,
    }
    assert ANSWER.to_json() == {**IDENTITY, "text": "done", "passCount": 0}
    assert AgentEnd(context=CONTEXT, status="failed", error="e").to_json() == {
        **IDENTITY,
        "status": "failed",
        "text": "",
        "error": "e",
        "usage": {},
    }
