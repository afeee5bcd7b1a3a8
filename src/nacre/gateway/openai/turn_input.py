"""Converts requests of both OpenAI APIs to a turn: model, messages, client tools."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pydantic import BaseModel, ConfigDict

from nacre.agent import ClientTool, TurnRequest
from nacre.errors import ConfigError, MissingReferenceError, SessionError
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

    from nacre.agent import CallerRight
    from nacre.bootstrap import System
    from nacre.json_types import JsonObject, JsonValue
    from nacre.messages import AssistantPart
    from nacre.providers import ModelSettings


_MAX_SHOWN: Final = 80
_TEXT_KINDS: Final = frozenset(("text", "input_text", "output_text"))
_IMAGE_SCHEMES: Final = ("https:", "data:")
CHANNEL: Final = "openai"
OWN_NAME: Final = "nacre"
_AGENT_PREFIXES: Final = ("nacre/", "agent:")
_MAX_MODEL_CHARACTERS: Final = 100
_MAX_LISTED: Final = 20
MAX_MESSAGES: Final = 4_096
"""The messages or items of one request."""


def invalid(path: str, problem: str, *, code: str = "") -> ApiError:
    """The error for an invalid member of the request."""
    return ApiError(400, f"`{path}` {problem}", code=code, path=path)


def format_value(value: object) -> str:
    return repr(value)[:_MAX_SHOWN]


@dataclass(frozen=True, kw_only=True, slots=True)
class Conversation:
    """The messages of a request: the whole conversation, or the new part of a stored one."""

    messages: tuple[Message, ...]
    results: Mapping[str, str]
    """The results of calls, by call id."""
    unplaced: tuple[str, ...]
    """The call ids of results whose calls are not among the messages."""
    message_after_results: UserMessage | None
    """The user message after the last result, if there is one."""

    @property
    def last_user_message(self) -> UserMessage | None:
        """The user message to answer; None if the last message is something else."""
        last = self.messages[-1] if self.messages else None
        return last if isinstance(last, UserMessage) else None

    @property
    def earlier(self) -> tuple[Message, ...]:
        """The messages before it."""
        return self.messages if self.last_user_message is None else self.messages[:-1]


class ConversationBuilder:
    """Builds a conversation from messages in their order."""

    def __init__(self) -> None:
        self._messages: list[Message] = []
        self._answer: list[AssistantPart] = []
        # A list, because some clients use the same id again in every turn.
        self._results: dict[str, list[str]] = {}
        self._parts_after_results: list[UserPart] = []

    def system(self, text: str) -> None:
        self.end_answer()
        self._messages.append(SystemMessage(text=text))

    def user(self, parts: Sequence[UserPart]) -> None:
        self.end_answer()
        self._messages.append(UserMessage(parts=tuple(parts)))
        self._parts_after_results.extend(parts)

    def assistant(self, parts: Sequence[AssistantPart]) -> None:
        """Add parts to the current answer, which ends with the next other message."""
        self._answer.extend(parts)

    def end_answer(self) -> None:
        if self._answer:
            self._messages.append(AssistantMessage(parts=tuple(self._answer)))
            self._answer = []

    def result(self, call_id: str, text: str) -> None:
        self.end_answer()
        self._results.setdefault(call_id, []).append(text)
        self._parts_after_results = []

    def build(self) -> Conversation:
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
        said = (
            UserMessage(parts=tuple(self._parts_after_results))
            if self._parts_after_results
            else None
        )
        return Conversation(
            messages=tuple(placed), results=results, unplaced=unplaced, message_after_results=said
        )


def _tool_message(call: ToolCallPart, text: str) -> ToolMessage:
    return ToolMessage(call_id=call.call_id, name=call.name, content=text)


class WireModel(BaseModel):
    """Base of request models. Unknown members are ignored, as other servers do."""

    model_config = ConfigDict(extra="ignore", strict=True)


class ImageUrl(WireModel):
    """An image URL in Chat Completions. Responses has a plain text instead."""

    url: str


class ContentPart(WireModel):
    """One part of a message."""

    type: str
    text: str | None = None
    refusal: str | None = None
    image_url: ImageUrl | str | None = None


Content = str | list[ContentPart] | None


def text_of(content: Content, path: str) -> str:
    """The text of a message that must not have other parts. Raises ApiError."""
    if content is None or isinstance(content, str):
        return content or ""
    texts: list[str] = []
    for index, part in enumerate(content):
        if part.type == "refusal":
            texts.append(part.refusal or "")
        elif part.type in _TEXT_KINDS:
            texts.append(part.text or "")
        else:
            raise invalid(
                f"{path}[{index}].type",
                f"is {format_value(part.type)}; only user messages can have parts other than text",
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
        raise invalid(f"{path}.type", f"is {format_value(part.type)}; known: text and image parts")
    address = part.image_url.url if isinstance(part.image_url, ImageUrl) else part.image_url
    if not address or not address.startswith(_IMAGE_SCHEMES):
        raise invalid(
            f"{path}.image_url",
            f"is {format_value(address)}; allowed: an https: or data: URL",
        )
    return ImagePart(url=address)


def client_tool(*, name: str, description: str | None, parameters: JsonObject | None) -> ClientTool:
    if parameters is None:
        return ClientTool(name=name, description=description or "")
    return ClientTool(name=name, description=description or "", parameters=parameters)


def select_client_tools(tools: Sequence[ClientTool], choice: JsonValue) -> tuple[ClientTool, ...]:
    """The client tools of the run. Raises ApiError for duplicates and other tool choices."""
    seen: set[str] = set()
    for index, tool in enumerate(tools):
        if tool.name in seen:
            raise invalid(f"tools[{index}]", f"is a second tool named {format_value(tool.name)}")
        seen.add(tool.name)
    match choice:
        case None | "auto":
            return tuple(tools)
        case "none":
            return ()
        case _:
            raise invalid(
                "tool_choice",
                f'is {format_value(choice)}; allowed: "auto" and "none". The agent has its own '
                "tools as well, and the model chooses",
            )


def check_message_count(path: str, count: int) -> None:
    """Raise ApiError if a request has too many messages or items."""
    if count > MAX_MESSAGES:
        raise invalid(path, f"has {count} items; at most {MAX_MESSAGES} are allowed")


def check_tool_type(path: str, kind: str) -> None:
    """Raise ApiError unless the tool is a function: clients can run nothing else."""
    if kind != "function":
        raise invalid(
            path,
            f'is {format_value(kind)}; only "function" is allowed. Configure other tools in the '
            "gateway, as tools of the agent",
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class TurnInput:
    """A request, converted for both APIs."""

    conversation: Conversation
    choice: ModelChoice
    client_tools: tuple[ClientTool, ...]
    settings: ModelSettings
    instructions: str = ""
    session_key: str = ""
    """The client's name for a stored session."""
    previous_run_id: str = ""
    """The run whose session continues; Responses only."""
    is_kept: bool = False
    """Whether to create a session if none is named."""
    rights: frozenset[CallerRight] = frozenset()
    """What the sender of the request may do in the chat."""

    def to_request(
        self,
        *,
        message: UserMessage | None,
        history: Sequence[Message] | None = None,
        session_id: str = "",
        session_key: str = "",
    ) -> TurnRequest:
        """A request for a turn of its own, which waits for a running turn."""
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
            rights=self.rights,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelChoice:
    """The agent and model of a request. Empty for the session's or default agent, and its model."""

    name: str
    """The name in the request."""
    agent_id: str = ""
    model: str = ""


def model_ids(system: System) -> list[str]:
    """All listed model names. Providers without a list accept any of their models."""
    agents = (f"{OWN_NAME}/{agent_id}" for agent_id in system.config.agents.ids)
    return [OWN_NAME, *agents, *system.list_models()]


def models_to_json(system: System) -> JsonObject:
    """The list of models. `openProviders`, an extension, names providers that accept any model."""
    return {
        "object": "list",
        "data": [model_to_json(name) for name in model_ids(system)],
        "openProviders": [*system.providers.list_open_providers()],
    }


def choose_model(system: System, name: str) -> ModelChoice:
    """Find the agent or model. Raises ApiError (404) for an unknown name."""
    if name == OWN_NAME:
        return ModelChoice(name=name)
    for prefix in _AGENT_PREFIXES:
        if name.startswith(prefix):
            return ModelChoice(name=name, agent_id=_agent_id(system, name, prefix))
    try:
        system.providers.get(name)
    except MissingReferenceError:
        # The model exists; starting the run reports the missing secret.
        pass
    except ConfigError:
        raise _unknown_model_error(system, name) from None
    return ModelChoice(name=name, model=name)


def model_to_json(name: str) -> JsonObject:
    owner = OWN_NAME if name == OWN_NAME else name.partition("/")[0]
    return {"id": name, "object": "model", "created": 0, "owned_by": owner}


def _agent_id(system: System, name: str, prefix: str) -> str:
    try:
        return system.config.agents.agent(name.removeprefix(prefix)).id
    except SessionError:
        raise _unknown_model_error(system, name) from None


def _unknown_model_error(system: System, name: str) -> ApiError:
    known = model_ids(system)
    more = f" and {len(known) - _MAX_LISTED} more" if len(known) > _MAX_LISTED else ""
    shown = ", ".join(known[:_MAX_LISTED])
    providers = system.providers.list_open_providers()[:_MAX_LISTED]
    others = f", and any model of {', '.join(providers)}" if providers else ""
    return ApiError(
        404,
        f"there is no model {name[:_MAX_MODEL_CHARACTERS]!r}; known models: {shown}{more}{others}",
        code="model_not_found",
        path="model",
    )
