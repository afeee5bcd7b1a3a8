"""Requests of both OpenAI APIs converted to a turn: messages, content parts, client tools."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pydantic import BaseModel, ConfigDict

from nacre.agent import ClientTool, TurnRequest
from nacre.gateway.errors import ApiError
from nacre.messages import (
    AssistantMessage,
    ImagePart,
    Message,
    SystemMessage,
    TextPart,
    ToolCallPart,
    ToolMessage,
    UserMessage,
    UserPart,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from nacre.gateway.openai.models import ModelChoice
    from nacre.json_types import JsonObject, JsonValue
    from nacre.messages import AssistantPart
    from nacre.providers import ModelSettings


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


_TEXT_KINDS: Final = frozenset(("text", "input_text", "output_text"))
_IMAGE_SCHEMES: Final = ("https:", "data:")


class WireModel(BaseModel):
    """What clients send. Members that we do not know are left aside, as other servers do."""

    model_config = ConfigDict(extra="ignore", strict=True)


class ImageAddress(WireModel):
    """Chat Completions has an object where Responses has the address itself."""

    url: str


class ContentPart(WireModel):
    """One part of a message."""

    type: str
    text: str | None = None
    refusal: str | None = None
    image_url: ImageAddress | str | None = None


Content = str | list[ContentPart] | None


def text_of(content: Content, path: str) -> str:
    """For messages that hold words alone."""
    if content is None or isinstance(content, str):
        return content or ""
    texts: list[str] = []
    for index, part in enumerate(content):
        if part.type == "refusal":
            texts.append(part.refusal or "")
        elif part.type in _TEXT_KINDS:
            texts.append(part.text or "")
        else:
            raise refused(
                f"{path}[{index}].type",
                f"is {shown_value(part.type)}; only people's messages hold more than text",
            )
    return "".join(texts)


def user_parts(content: Content, path: str) -> list[UserPart]:
    if content is None or isinstance(content, str):
        return [TextPart(text=content or "")]
    return [_user_part(part, f"{path}[{index}]") for index, part in enumerate(content)]


def _user_part(part: ContentPart, path: str) -> UserPart:
    if part.type in _TEXT_KINDS:
        return TextPart(text=part.text or "")
    if part.type not in ("image_url", "input_image"):
        raise refused(f"{path}.type", f"is {shown_value(part.type)}; known: text and image parts")
    address = part.image_url.url if isinstance(part.image_url, ImageAddress) else part.image_url
    if not address or not address.startswith(_IMAGE_SCHEMES):
        raise refused(
            f"{path}.image_url",
            f"is {shown_value(address)}; allowed: an https: address, or a data: address",
        )
    return ImagePart(url=address)


def client_tool(*, name: str, description: str | None, parameters: JsonObject | None) -> ClientTool:
    if parameters is None:
        return ClientTool(name=name, description=description or "")
    return ClientTool(name=name, description=description or "", parameters=parameters)


def offered_tools(tools: Sequence[ClientTool], choice: JsonValue) -> tuple[ClientTool, ...]:
    """The tools that the run has of the client; raises ApiError for what cannot be done."""
    seen: set[str] = set()
    for index, tool in enumerate(tools):
        if tool.name in seen:
            raise refused(f"tools[{index}]", f"is a second tool named {shown_value(tool.name)}")
        seen.add(tool.name)
    match choice:
        case None | "auto":
            return tuple(tools)
        case "none":
            return ()
        case _:
            raise refused(
                "tool_choice",
                f'is {shown_value(choice)}; allowed: "auto" and "none". The agent has tools of '
                "its own, and which of them it calls is up to it",
            )


def refuse_kind(path: str, kind: str) -> None:
    """Only functions are a client's to run."""
    if kind != "function":
        raise refused(
            path,
            f'is {shown_value(kind)}; only "function" tools can be offered. Other tools are the '
            "agent's own: they are set up in the configuration of the gateway",
        )


CHANNEL: Final = "openai"


@dataclass(frozen=True, kw_only=True, slots=True)
class Ask:
    """What one request asks for."""

    conversation: Conversation
    choice: ModelChoice
    client_tools: tuple[ClientTool, ...]
    settings: ModelSettings
    instructions: str = ""
    session_key: str = ""
    """The client's name for a session that is kept."""
    previous_run_id: str = ""
    """The run whose session goes on; Responses only."""
    is_kept: bool = False
    """Whether a session is begun where none is named."""

    def turn(
        self,
        *,
        message: UserMessage | None,
        history: Sequence[Message] | None = None,
        session_id: str = "",
        session_key: str = "",
    ) -> TurnRequest:
        """A turn of its own, whatever else is going on in the session: a request has an answer."""
        return TurnRequest(
            message=message,
            history=history,
            session_id=session_id,
            session_key=session_key,
            agent_id=self.choice.agent_id,
            model=self.choice.model,
            client_tools=self.client_tools,
            instructions=self.instructions,
            settings=self.settings,
            channel=CHANNEL,
            queue_mode="followup",
        )
