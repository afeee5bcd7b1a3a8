"""What a client says was said: the messages of a request, every result right after its call."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from nacre.gateway.errors import ApiError
from nacre.messages import (
    AssistantMessage,
    Message,
    SystemMessage,
    ToolCallPart,
    ToolMessage,
    UserMessage,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from nacre.messages import AssistantPart, UserPart

_MAX_SHOWN: Final = 80


def refused(path: str, problem: str, *, code: str = "") -> ApiError:
    """What is wrong with one member of a request."""
    return ApiError(400, f"`{path}` {problem}", code=code, path=path)


def shown_value(value: object) -> str:
    return repr(value)[:_MAX_SHOWN]


@dataclass(frozen=True, kw_only=True, slots=True)
class Conversation:
    """Whole, or what is new of one that we keep."""

    messages: tuple[Message, ...]
    results: Mapping[str, str]
    """What all calls returned, by their ids."""
    unplaced: tuple[str, ...]
    """Ids of results whose calls are not among the messages."""
    said_after_results: UserMessage | None
    """What a person added after the last result; of no interest where there is none."""

    @property
    def last_said(self) -> UserMessage | None:
        """What is to be answered; None where the model has to go on from something else."""
        last = self.messages[-1] if self.messages else None
        return last if isinstance(last, UserMessage) else None

    @property
    def earlier(self) -> tuple[Message, ...]:
        """What came before that."""
        return self.messages if self.last_said is None else self.messages[:-1]


class ConversationBuilder:
    """Takes the messages of a request in their order."""

    def __init__(self) -> None:
        self._messages: list[Message] = []
        self._answer: list[AssistantPart] = []
        # A list each: clients that number their calls anew in every turn use an id twice.
        self._results: dict[str, list[str]] = {}
        self._said_since: list[UserPart] = []

    def system(self, text: str) -> None:
        self.end_answer()
        self._messages.append(SystemMessage(text=text))

    def user(self, parts: Sequence[UserPart]) -> None:
        self.end_answer()
        self._messages.append(UserMessage(parts=tuple(parts)))
        self._said_since.extend(parts)

    def assistant(self, parts: Sequence[AssistantPart]) -> None:
        """Some more of an answer, until something else comes."""
        self._answer.extend(parts)

    def end_answer(self) -> None:
        if self._answer:
            self._messages.append(AssistantMessage(parts=tuple(self._answer)))
            self._answer = []

    def result(self, call_id: str, text: str) -> None:
        self.end_answer()
        self._results.setdefault(call_id, []).append(text)
        self._said_since = []

    def built(self) -> Conversation:
        self.end_answer()
        results = {call_id: texts[-1] for call_id, texts in self._results.items()}
        left = {call_id: list(texts) for call_id, texts in self._results.items()}
        placed: list[Message] = []
        for message in self._messages:
            placed.append(message)
            if isinstance(message, AssistantMessage):
                placed.extend(
                    _tool_message(call, left[call.call_id].pop(0))
                    for call in message.tool_calls
                    if left.get(call.call_id)
                )
        unplaced = tuple(call_id for call_id, texts in left.items() if texts)
        said = UserMessage(parts=tuple(self._said_since)) if self._said_since else None
        return Conversation(
            messages=tuple(placed), results=results, unplaced=unplaced, said_after_results=said
        )


def _tool_message(call: ToolCallPart, text: str) -> ToolMessage:
    return ToolMessage(call_id=call.call_id, name=call.name, content=text)
