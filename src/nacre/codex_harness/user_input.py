"""Asks the person in the chat what Codex wants to know; the next message of the session answers."""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from nacre.agent import InputRequest
from nacre.display import visible_lines
from nacre.messages import AssistantMessage, TextPart, user_message

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from nacre.agent import TurnContext
    from nacre.json_types import JsonObject, JsonValue
    from nacre.messages import UserMessage

logger = logging.getLogger(__name__)

USER_INPUT: Final = "item/tool/requestUserInput"

_BLOCKING_SECONDS: Final = 15 * 60.0
# The model goes on without an answer, so that nobody has to wait long for it.
_OTHER_SECONDS: Final = 120.0
_SECRET: Final = "[a secret, which is not stored]"
_MAX_ATTEMPTS: Final = 3
_MAX_TEXT: Final = 4_000
_MAX_QUESTIONS: Final = 20
_MAX_OPTIONS: Final = 50
_NUMBER: Final = re.compile(r"(\d{1,3})\s*[.):]?")
_KEYED_LINE: Final = re.compile(r"\s*([^:]{1,200}?)\s*:\s*(.*)")
_NUMBERED_LINE: Final = re.compile(r"\s*(\d{1,3})\s*[.)]\s+(.*)")


@dataclass(frozen=True, kw_only=True, slots=True)
class Question:
    """One question, with the answers that it suggests."""

    id: str
    header: str
    text: str
    options: tuple[tuple[str, str], ...] = ()
    """Labels and descriptions."""
    takes_text: bool = True
    """Whether an answer in the person's own words is accepted."""
    is_secret: bool = False


class UserInputBridge:
    """Answers the questions of one turn. At most one request is open; a newer one replaces it."""

    def __init__(self, turn: TurnContext, *, is_active: Callable[[str, str], bool]) -> None:
        """`is_active` says whether a thread and a turn of Codex are those of this turn."""
        self._turn = turn
        self._is_active = is_active

    async def ask(self, params: JsonObject) -> JsonObject:
        """The result of `item/tool/requestUserInput`; without an answer, it has no answers."""
        if not self._is_active(str(params.get("threadId")), str(params.get("turnId"))):
            logger.warning("a question of another thread or turn is not asked")
            return {"answers": {}}
        questions = parse_questions(params.get("questions"))
        if not questions or self._turn.stop.is_aborted:
            return {"answers": {}}
        answers: Mapping[str, str] = {}
        call_id = str(params.get("itemId"))
        self._turn.waits.begin(call_id)
        try:
            with self._turn.stop.cancelling():
                answers = await self._ask_until_clear(call_id, questions, _find_timeout(params))
        finally:
            self._turn.waits.end(call_id)
        return {"answers": {key: {"answers": [value]} for key, value in answers.items()}}

    async def _ask_until_clear(
        self, call_id: str, questions: Sequence[Question], timeout_seconds: float
    ) -> Mapping[str, str]:
        problem = ""
        for _ in range(_MAX_ATTEMPTS):
            text = format_questions(questions)
            request = InputRequest(
                call_id=call_id,
                text=f"{problem}\n{text}" if problem else text,
                questions=tuple(map(_question_to_json, questions)),
                timeout_seconds=timeout_seconds,
            )
            message = await self._turn.run.input_requests.ask(request)
            if message is None:
                return {}
            self._keep(request, message, is_secret=any(it.is_secret for it in questions))
            try:
                return parse_answers(message.text, questions)
            except UnclearAnswerError as error:
                problem = str(error)
        return {}

    def _keep(self, request: InputRequest, message: UserMessage, *, is_secret: bool) -> None:
        """Add the question and the answer to the session, which other harnesses read."""
        output = self._turn.output
        question = AssistantMessage(parts=(TextPart(text=request.text),), model=output.model)
        answer = user_message(_SECRET) if is_secret else message
        output.messages.extend((question, answer))


class UnclearAnswerError(ValueError):
    """The message answers none of the questions; the text says what does."""


def parse_questions(value: JsonValue) -> tuple[Question, ...]:
    """The questions of a request; those that are not valid are left out."""
    given = value if isinstance(value, list) else []
    found = [_parse_question(each) for each in given[:_MAX_QUESTIONS] if isinstance(each, dict)]
    return tuple(question for question in found if question.id)


def _parse_question(given: JsonObject) -> Question:
    listed = given.get("options")
    options = [
        (_clean(each.get("label")), _clean(each.get("description")))
        for each in (listed if isinstance(listed, list) else [])[:_MAX_OPTIONS]
        if isinstance(each, dict) and each.get("label")
    ]
    return Question(
        id=str(given.get("id") or ""),
        header=_clean(given.get("header")),
        text=_clean(given.get("question")),
        options=tuple(options),
        takes_text=not options or given.get("isOther") is True,
        is_secret=given.get("isSecret") is True,
    )


def _clean(value: JsonValue) -> str:
    return visible_lines(value[:_MAX_TEXT]).strip() if isinstance(value, str) else ""


def _find_timeout(params: JsonObject) -> float:
    limit = params.get("autoResolutionMs")
    if isinstance(limit, int | float) and not isinstance(limit, bool) and limit > 0:
        return min(limit / 1000, _BLOCKING_SECONDS)
    # Versions before 0.163 do not say it, and wait.
    return _OTHER_SECONDS if params.get("isBlocking") is False else _BLOCKING_SECONDS


def _question_to_json(question: Question) -> JsonObject:
    return {
        "id": question.id,
        "header": question.header,
        "question": question.text,
        "options": [{"label": label, "description": said} for label, said in question.options],
        "isOther": question.takes_text,
        "isSecret": question.is_secret,
    }


def format_questions(questions: Sequence[Question]) -> str:
    """The questions as a person reads them, and how to answer."""
    is_single = len(questions) == 1
    lines: list[str] = []
    for number, question in enumerate(questions, start=1):
        start = "" if is_single else f"{number}. "
        header = f"[{question.header}] " if question.header else ""
        lines.append(f"{start}{header}{question.text}")
        for index, (label, said) in enumerate(question.options, start=1):
            lines.append(f"   {index}) {label}{f': {said}' if said else ''}")
        if question.is_secret:
            lines.append("   (everybody who can read this chat sees your answer)")
    lines.append(_explain(questions))
    return "\n".join(lines)


def _explain(questions: Sequence[Question]) -> str:
    if len(questions) > 1:
        return f"Answer with one line per question, such as `{questions[0].id}: your answer`."
    (question,) = questions
    if not question.options:
        return "Your next message is the answer."
    own_words = ", or with your own words" if question.takes_text else ""
    return f"Answer with the number or the text of an option{own_words}."


# Answers.


def parse_answers(text: str, questions: Sequence[Question]) -> dict[str, str]:
    """The answers in a message, by the ids of the questions. Raises UnclearAnswerError."""
    if len(questions) == 1:
        (question,) = questions
        keyed = _KEYED_LINE.fullmatch(text.strip())
        if keyed is not None and _is_key(keyed[1], question):
            text = keyed[2]
        return {question.id: _parse_answer(text.strip(), question)}
    answers: dict[str, str] = {}
    unkeyed: list[str] = []
    for line in filter(None, map(str.strip, text.splitlines())):
        question, said = _find_question(line, questions)
        if question is None:
            unkeyed.append(line)
        else:
            answers[question.id] = _parse_answer(said, question)
    # Lines without a key are for the remaining questions, in their order.
    rest = [question for question in questions if question.id not in answers]
    for question, line in zip(rest, unkeyed, strict=False):
        answers[question.id] = _parse_answer(line, question)
    if not answers:
        raise UnclearAnswerError("The message has no answer.")
    return answers


def _find_question(line: str, questions: Sequence[Question]) -> tuple[Question | None, str]:
    """The question that a line names by its id, header, text or number, and the rest of it."""
    for pattern in (_KEYED_LINE, _NUMBERED_LINE):
        match = pattern.fullmatch(line)
        if match is None:
            continue
        for number, question in enumerate(questions, start=1):
            if match[1] == str(number) or _is_key(match[1], question):
                return question, match[2].strip()
    return None, line


def _is_key(word: str, question: Question) -> bool:
    names = (question.id, question.header, question.text, question.text.rstrip("?"))
    return word.casefold() in {name.casefold() for name in names if name}


def _parse_answer(said: str, question: Question) -> str:
    """The label of the option that is meant, or the person's own words."""
    number = _NUMBER.fullmatch(said)
    if number is not None and 1 <= int(number[1]) <= len(question.options):
        return question.options[int(number[1]) - 1][0]
    for label, _ in question.options:
        if said.casefold() == label.casefold():
            return label
    if said and question.takes_text:
        return said
    labels = ", ".join(label for label, _ in question.options)
    raise UnclearAnswerError(
        f"{said!r} is no answer to {question.header or question.id!r}; the options are: {labels}"
    )
