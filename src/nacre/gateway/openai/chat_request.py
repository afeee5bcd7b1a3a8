"""Chat Completions: the request schema and its conversion to a turn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from pydantic import Field

from nacre.gateway.openai.turn_input import (
    Ask,
    Content,
    ConversationBuilder,
    WireModel,
    client_tool,
    offered_tools,
    refuse_kind,
    refused,
    shown_value,
    text_of,
    user_parts,
)
from nacre.messages import TextPart, ToolCallPart
from nacre.providers import ModelSettings

if TYPE_CHECKING:
    from nacre.agent import ClientTool
    from nacre.gateway.openai.models import ModelChoice
    from nacre.gateway.openai.turn_input import Conversation
    from nacre.messages import AssistantPart


MAX_SESSION_KEY: Final = 256

_INSTRUCTING: Final = ("system", "developer")

Temperature = Annotated[float, Field(ge=0, le=2)]
Share = Annotated[float, Field(ge=0, le=1)]
TokenCount = Annotated[int, Field(ge=1, le=100_000_000)]


class ChatFunctionCall(WireModel):
    """Which function, and its arguments as JSON text."""

    name: str
    arguments: str = ""


class ChatToolCall(WireModel):
    """A call that the assistant made."""

    id: str
    type: str = "function"
    function: ChatFunctionCall | None = None


class ChatMessage(WireModel):
    """Who said what."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Content = None
    tool_calls: list[ChatToolCall] | None = None
    tool_call_id: str | None = None


class ChatFunction(WireModel):
    """A function of the client."""

    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None


class ChatTool(WireModel):
    """A tool of the client."""

    type: str
    function: ChatFunction | None = None


class ResponseFormat(WireModel):
    """Only plain text can be asked for."""

    type: str


class StreamOptions(WireModel):
    """What a stream tells besides."""

    include_usage: bool | None = None


class ChatRequest(WireModel):
    """The body of `POST /v1/chat/completions`."""

    model: str = Field(examples=["nacre", "nacre/main", "openai/gpt-6"])
    messages: list[ChatMessage] = Field(min_length=1)
    tools: list[ChatTool] | None = None
    tool_choice: Any = None
    parallel_tool_calls: bool | None = None
    max_tokens: TokenCount | None = None
    max_completion_tokens: TokenCount | None = None
    temperature: Temperature | None = None
    top_p: Share | None = None
    stop: str | list[str] | None = None
    store: bool | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: int | None = None
    response_format: ResponseFormat | None = None
    user: str | None = None
    functions: Any = None
    function_call: Any = None


def chat_ask(request: ChatRequest, choice: ModelChoice, *, session_key: str) -> Ask:
    """Raises ApiError for what cannot be done; says which member it is."""
    _refuse_unknown(request)
    key = session_key or request.user or ""
    if len(key) > MAX_SESSION_KEY:
        where = "x-nacre-session-key" if session_key else "user"
        raise refused(where, f"has {len(key)} characters; at most {MAX_SESSION_KEY} are allowed")
    return Ask(
        conversation=_conversation(request.messages),
        choice=choice,
        client_tools=offered_tools(
            [_tool(tool, f"tools[{index}]") for index, tool in enumerate(request.tools or ())],
            request.tool_choice,
        ),
        settings=_settings(request),
        instructions=_instructions(request.messages),
        session_key=key,
        is_kept=bool(request.store),
    )


def _refuse_unknown(request: ChatRequest) -> None:
    if request.n not in (None, 1):
        raise refused("n", f"is {request.n}; an agent gives one answer")
    if request.response_format is not None and request.response_format.type != "text":
        kind = shown_value(request.response_format.type)
        raise refused("response_format.type", f'is {kind}; only "text" can be asked for')
    if request.functions or request.function_call:
        raise refused("functions", "is the old form; use `tools`")
    said = [message.role for message in request.messages if message.role not in _INSTRUCTING]
    if not said:
        raise refused("messages", "hold nothing that a person said")
    if said[-1] == "assistant":
        raise refused("messages", "end with what the assistant said; there is nothing to answer")


def _settings(request: ChatRequest) -> ModelSettings:
    stop = request.stop
    return ModelSettings(
        max_tokens=request.max_completion_tokens or request.max_tokens,
        temperature=request.temperature,
        top_p=request.top_p,
        stop=(stop,) if isinstance(stop, str) else tuple(stop or ()),
        is_parallel=request.parallel_tool_calls,
    )


def _instructions(messages: list[ChatMessage]) -> str:
    texts = [
        text_of(message.content, f"messages[{index}].content")
        for index, message in enumerate(messages)
        if message.role in _INSTRUCTING
    ]
    return "\n\n".join(text for text in texts if text.strip())


def _conversation(messages: list[ChatMessage]) -> Conversation:
    builder = ConversationBuilder()
    for index, message in enumerate(messages):
        path = f"messages[{index}]"
        match message.role:
            case "user":
                builder.user(user_parts(message.content, f"{path}.content"))
            case "assistant":
                builder.assistant(_answer(message, path))
                builder.end_answer()
            case "tool":
                if not message.tool_call_id:
                    raise refused(f"{path}.tool_call_id", "is missing: whose result is it?")
                text = text_of(message.content, f"{path}.content")
                builder.result(message.tool_call_id, text)
            case "system" | "developer":
                # They are instructions, wherever they stand.
                continue
    return builder.built()


def _answer(message: ChatMessage, path: str) -> list[AssistantPart]:
    text = text_of(message.content, f"{path}.content")
    parts: list[AssistantPart] = [TextPart(text=text)] if text else []
    for index, call in enumerate(message.tool_calls or ()):
        refuse_kind(f"{path}.tool_calls[{index}].type", call.type)
        if call.function is None:
            raise refused(f"{path}.tool_calls[{index}].function", "is missing")
        parts.append(
            ToolCallPart(
                call_id=call.id, name=call.function.name, arguments=call.function.arguments
            )
        )
    return parts


def _tool(tool: ChatTool, path: str) -> ClientTool:
    refuse_kind(f"{path}.type", tool.type)
    function = tool.function
    if function is None:
        raise refused(f"{path}.function", "is missing")
    return client_tool(
        name=function.name, description=function.description, parameters=function.parameters
    )
