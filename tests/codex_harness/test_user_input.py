"""Questions of Codex to the person in the chat."""

import anyio
import pytest

from nacre.agent import AgentRun, TurnContext
from nacre.codex_harness.user_input import (
    UnclearAnswerError,
    UserInputBridge,
    format_questions,
    parse_answers,
    parse_questions,
)
from nacre.json_types import JsonObject
from nacre.messages import message_to_json
from tests.agent.agent_setup import AgentSetup, events_of, kinds
from tests.agent.conftest import OpenAgent
from tests.contract.requirements import requirement

COLOUR: JsonObject = {
    "id": "colour",
    "header": "Colour",
    "question": "Which one?",
    "isOther": True,
    "options": [
        {"label": "Red", "description": "like a rose"},
        {"label": "Blue", "description": "like the sea"},
    ],
}
SIZE: JsonObject = {
    "id": "size",
    "header": "Size",
    "question": "How large?",
    "isOther": False,
    "options": [{"label": "Small", "description": ""}, {"label": "Large", "description": ""}],
}
NAME: JsonObject = {"id": "name", "header": "", "question": "Whose is it?", "options": None}


def ask(*questions: JsonObject, **more: object) -> JsonObject:
    base = {"threadId": "t1", "turnId": "u1", "itemId": "call_1", "isBlocking": True}
    return {**base, "questions": [*questions], **more}  # pyright: ignore[reportReturnType]


class QuestionTurns:
    """A harness whose turns ask one question each."""

    def __init__(self, params: JsonObject) -> None:
        self._params = params
        self.results: list[JsonObject] = []

    def plan_surface(self, turn: TurnContext, /) -> str:
        return "codex"

    def needs_history(self, turn: TurnContext, /) -> bool:
        return True

    async def run(self, turn: TurnContext, /) -> None:
        bridge = UserInputBridge(
            turn, is_active=lambda thread_id, turn_id: (thread_id, turn_id) == ("t1", "u1")
        )
        self.results.append(await bridge.ask(self._params))


async def begin(setup: AgentSetup) -> AgentRun:
    run = await setup.start("paint it", session_key="chat")
    with anyio.fail_after(5):
        await run.waiting_or_ended()
    return run


@requirement("codex:user-input")
async def test_the_next_message_of_the_session_is_the_answer(open_service: OpenAgent) -> None:
    harness = QuestionTurns(ask(COLOUR))
    async with open_service(harness=harness) as setup:
        run = await begin(setup)
        assert run.state == "waiting"
        (asked,) = events_of(run, "input.requested")
        assert asked.data["text"] == (
            "[Colour] Which one?\n"
            "   1) Red: like a rose\n"
            "   2) Blue: like the sea\n"
            "Answer with the number or the text of an option, or with your own words."
        )
        assert await setup.start("2", session_key="chat", queue_mode="followup") is run
        await run.wait()
        assert setup.service.runs() == [run]
        assert "steered" not in kinds(run)
        said = [message_to_json(message) for message in await setup.kept(run.session_id)]
        assert [message["role"] for message in said] == ["user", "assistant", "user"]
        assert "Which one?" in str(said[1])
        assert "'2'" in str(said[2])
    assert harness.results == [{"answers": {"colour": {"answers": ["Blue"]}}}]


async def test_a_secret_answer_reaches_codex_and_is_not_stored(open_service: OpenAgent) -> None:
    harness = QuestionTurns(ask({"id": "key", "question": "Your key?", "isSecret": True}))
    async with open_service(harness=harness) as setup:
        run = await begin(setup)
        await setup.start("sesame", session_key="chat")
        await run.wait()
        assert "sesame" not in str(await setup.kept(run.session_id))
        assert "sesame" not in str([event.data for event in run.events.events])
    assert harness.results == [{"answers": {"key": {"answers": ["sesame"]}}}]


async def test_an_answer_that_is_no_option_is_asked_for_again(open_service: OpenAgent) -> None:
    harness = QuestionTurns(ask(SIZE))
    async with open_service(harness=harness) as setup:
        run = await begin(setup)
        await setup.start("medium", session_key="chat")
        with anyio.fail_after(5):
            async for event in run.events.follow(after=run.events.last_sequence):
                if event.kind == "input.requested":
                    text = str(event.data["text"])
                    assert text.startswith(
                        "'medium' is no answer to 'Size'; the options are: Small"
                    )
                    break
        await setup.start("large", session_key="chat")
        await run.wait()
    assert harness.results == [{"answers": {"size": {"answers": ["Large"]}}}]


async def test_an_abort_leaves_the_question_without_an_answer(open_service: OpenAgent) -> None:
    harness = QuestionTurns(ask(COLOUR))
    async with open_service(harness=harness) as setup:
        run = await begin(setup)
        with anyio.fail_after(5):
            await run.abort("enough")
    assert harness.results == [{"answers": {}}]


@pytest.mark.parametrize(
    "params",
    [
        ask(COLOUR, threadId="t2"),
        ask(COLOUR, turnId="u2"),
        ask(COLOUR, autoResolutionMs=1),
        ask(),
        ask(questions="none"),
    ],
)
async def test_questions_of_others_and_late_answers_have_no_answer(
    open_service: OpenAgent, params: JsonObject
) -> None:
    harness = QuestionTurns(params)
    async with open_service(harness=harness) as setup:
        run = await setup.turn("paint it")
        assert run.state == "completed"
    assert harness.results == [{"answers": {}}]


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("1", "Red"),
        ("2)", "Blue"),
        (" blue ", "Blue"),
        ("colour: red", "Red"),
        ("something darker", "something darker"),
        ("3", "3"),
        ("note: darker\nplease", "note: darker\nplease"),
    ],
)
def test_one_question_is_answered_by_number_label_or_own_words(said: str, expected: str) -> None:
    assert parse_answers(said, parse_questions([COLOUR])) == {"colour": expected}


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("colour: 2\nsize: large\nname: Ada", {"colour": "Blue", "size": "Large", "name": "Ada"}),
        ("Size: small\nWhose is it?: Ada", {"size": "Small", "name": "Ada"}),
        ("3: Ada\n1: green", {"name": "Ada", "colour": "green"}),
        ("2) large\n1. red", {"size": "Large", "colour": "Red"}),
        ("red\nlarge\nAda", {"colour": "Red", "size": "Large", "name": "Ada"}),
        ("size: 1\nblue", {"size": "Small", "colour": "Blue"}),
    ],
)
def test_several_questions_are_answered_line_by_line(said: str, expected: dict[str, str]) -> None:
    assert parse_answers(said, parse_questions([COLOUR, SIZE, NAME])) == expected


def test_an_answer_that_fits_no_question_says_what_does() -> None:
    with pytest.raises(UnclearAnswerError, match="the options are: Small, Large"):
        parse_answers("huge", parse_questions([SIZE]))


def test_a_secret_says_who_can_read_it_and_hidden_characters_are_dropped() -> None:
    question: JsonObject = {"id": "k", "question": "Your\u202e key\x1b?", "isSecret": True}
    text = format_questions(parse_questions([question]))
    assert text.splitlines() == [
        "Your key?",
        "   (everybody who can read this chat sees your answer)",
        "Your next message is the answer.",
    ]
