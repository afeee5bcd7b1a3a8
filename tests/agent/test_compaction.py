"""Long sessions: a summary stands for all but the last turns."""

from dataclasses import replace

import pytest

from nacre.agent.model_step import format_transcript
from nacre.errors import ProviderError
from nacre.hooks import AfterCompaction, BeforeCompaction, hook
from nacre.messages import (
    AssistantMessage,
    SystemMessage,
    ToolMessage,
    Usage,
    UserMessage,
    user_message,
)
from tests.agent.agent_setup import AgentSetup, events_of
from tests.agent.conftest import OpenAgent
from tests.agent.fake_models import FakeModel, call, say

KEEP_ONE = {"compaction": {"keepTurns": 1, "thresholdShare": 0.5}}
OVERFLOW = ProviderError("too long", status=400, is_context_overflow=True)


def heavy(text: str, tokens: int) -> AssistantMessage:
    return replace(say(text), usage=Usage(input_tokens=tokens))


async def talked(setup: AgentSetup, *answers: AssistantMessage) -> None:
    for number, answer in enumerate(answers):
        setup.model.will(answer)
        await setup.turn(f"question {number}", session_key="chat")


def texts(model: FakeModel, index: int) -> list[str]:
    return [getattr(message, "text", "") for message in model.requests[index].messages]


async def test_a_long_session_is_summed_up_before_the_next_turn(open_service: OpenAgent) -> None:
    async with open_service(agent=KEEP_ONE, context_tokens=1000) as setup:
        await talked(setup, heavy("one", 100), heavy("two", 600))
        setup.model.will(say("SUMMARY", tokens=5), heavy("three", 100), heavy("four", 120))
        run = await setup.turn("question 2", session_key="chat")
        asked = setup.model.requests[2]
        assert list(asked.tools) == []
        assert texts(setup.model, 2) == ["Person: question 0\n\nAgent: one"]
        first = setup.model.requests[3].messages[0]
        assert isinstance(first, SystemMessage)
        assert "SUMMARY" in first.text
        assert texts(setup.model, 3)[1:] == ["question 1", "two", "question 2"]
        assert run.result is not None
        assert run.result.usage.output_tokens == 5
        (ended,) = events_of(run, "compaction.ended")
        assert ended.data["summary"] == "SUMMARY"
        # Not again: what was counted before the summary does not count any more.
        await setup.turn("question 3", session_key="chat")
        assert texts(setup.model, 4)[1:] == [
            "question 1",
            "two",
            "question 2",
            "three",
            "question 3",
        ]
        whole = await setup.store.messages(run.session_id, whole=True)
        assert len(whole) == 8


async def test_hooks_stand_around_a_compaction(open_service: OpenAgent) -> None:
    seen: list[BeforeCompaction | AfterCompaction] = []

    @hook("before_compaction")
    async def before(event: BeforeCompaction) -> None:
        seen.append(event)

    @hook("after_compaction")
    async def after(event: AfterCompaction) -> None:
        seen.append(event)

    async with open_service(agent=KEEP_ONE, context_tokens=1000, hooks=[before, after]) as setup:
        await talked(setup, heavy("one", 100), heavy("two", 600))
        setup.model.will(say("SUMMARY"), say("three"))
        await setup.turn("question 2", session_key="chat")
    began, ended = seen
    assert isinstance(began, BeforeCompaction)
    assert began.message_count == 2
    assert began.estimated_tokens is not None
    assert began.estimated_tokens >= 600
    assert isinstance(ended, AfterCompaction)
    assert ended.summary == "SUMMARY"


@pytest.mark.parametrize("reply", [ProviderError("busy"), say("  ")])
async def test_a_compaction_that_fails_leaves_the_session_as_it_was(
    open_service: OpenAgent, reply: ProviderError | AssistantMessage
) -> None:
    async with open_service(agent=KEEP_ONE, context_tokens=1000) as setup:
        await talked(setup, heavy("one", 100), heavy("two", 600))
        setup.model.will(reply, say("three"))
        run = await setup.turn("question 2", session_key="chat")
        assert run.state == "completed"
        assert len(setup.model.requests[3].messages) == 5
        (ended,) = events_of(run, "compaction.ended")
        assert "error" in ended.data


async def test_an_overflow_is_compacted_once_and_tried_again(open_service: OpenAgent) -> None:
    async with open_service(agent=KEEP_ONE) as setup:
        await talked(setup, say("one"), say("two"))
        setup.model.will(OVERFLOW, say("SUMMARY"), say("three"))
        run = await setup.turn("question 2", session_key="chat")
        assert run.state == "completed"
        assert texts(setup.model, 4)[1:] == ["question 2"]


async def test_a_second_overflow_fails_the_turn(open_service: OpenAgent) -> None:
    async with open_service(agent=KEEP_ONE) as setup:
        await talked(setup, say("one"))
        setup.model.will(OVERFLOW, say("SUMMARY"), OVERFLOW)
        run = await setup.turn("question 2", session_key="chat")
        assert run.state == "failed"
        assert run.result is not None
        assert run.result.error == "too long"


async def test_an_overflow_without_anything_to_sum_up_fails(open_service: OpenAgent) -> None:
    async with open_service() as setup:
        setup.model.will(OVERFLOW)
        run = await setup.turn()
        assert run.state == "failed"


async def test_compaction_can_be_switched_off(open_service: OpenAgent) -> None:
    off = {"compaction": {"enabled": False}}
    async with open_service(agent=off, context_tokens=1000) as setup:
        await talked(setup, heavy("one", 5000), heavy("two", 5000))
        setup.model.will(say("three"))
        run = await setup.turn("question 2", session_key="chat")
        assert events_of(run, "compaction.started") == []


def test_a_transcript_shortens_results_and_drops_the_oldest_first() -> None:
    messages = [
        SystemMessage(text="earlier"),
        user_message("first " + "a" * 300),
        call("give", {"n": 1}),
        ToolMessage(call_id="call_1", name="give", content="y" * 5000),
        UserMessage(parts=user_message("last").parts),
    ]
    whole = format_transcript(messages, most_characters=100_000)
    assert "Result of give: " + "y" * 1500 + "… [5000 characters]" in whole
    cut = format_transcript(messages, most_characters=1_700)
    assert cut.startswith("Summary of what was before: earlier\n\n[")
    assert cut.endswith("Person: last")
    assert "first" not in cut
