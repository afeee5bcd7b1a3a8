"""Chat Completions: the request schema and its conversion to a turn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from pydantic import Field

from nacre.gateway.openai.turn_input import (
    Content,
    ConversationBuilder,
    TurnInput,
    WireModel,
    check_tool_type,
    client_tool,
    format_value,
    invalid,
    select_client_tools,
    text_of,
    user_parts,
)
from nacre.messages import TextPart, ToolCallPart
from nacre.providers import ModelSettings

if TYPE_CHECKING:
    from nacre.agent import ClientTool
    from nacre.gateway.openai.turn_input import Conversation, ModelChoice
    from nacre.messages import AssistantPart


MAX_SESSION_KEY: Final = 256

_INSTRUCTION_ROLES: Final = ("system", "developer")

Temperature = Annotated[float, Field(ge=0, le=2)]
Share = Annotated[float, Field(ge=0, le=1)]
TokenCount = Annotated[int, Field(ge=1, le=100_000_000)]


class ChatFunctionCall(WireModel):
    """The function and its arguments as JSON text."""

    name: str
    arguments: str = ""


class ChatToolCall(WireModel):
    """A tool call of the assistant."""

    id: str
    type: str = "function"
    function: ChatFunctionCall | None = None


class ChatMessage(WireModel):
    """A message of the conversation."""

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
    """The format of the answer. Only `text` is supported."""

    type: str


class StreamOptions(WireModel):
    """Options of a stream."""

    include_usage: bool | None = None


class ChatCompletionRequest(WireModel):
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


def chat_turn_input(
    request: ChatCompletionRequest, choice: ModelChoice, *, session_key: str
) -> TurnInput:
    """Convert the request. Raises ApiError with the member that is invalid or not supported."""
    _check_supported(request)
    key = session_key or request.user or ""
    if len(key) > MAX_SESSION_KEY:
        where = "x-nacre-session-key" if session_key else "user"
        raise invalid(where, f"has {len(key)} characters; at most {MAX_SESSION_KEY} are allowed")
    return TurnInput(
        conversation=_conversation(request.messages),
        choice=choice,
        client_tools=select_client_tools(
            [
                _client_tool(tool, f"tools[{index}]")
                for index, tool in enumerate(request.tools or ())
            ],
            request.tool_choice,
        ),
        settings=_settings(request),
        instructions=_instructions(request.messages),
        session_key=key,
        is_kept=bool(request.store),
    )


def _check_supported(request: ChatCompletionRequest) -> None:
    if request.n not in (None, 1):
        raise invalid("n", f"is {request.n}; only 1 is supported")
    if request.response_format is not None and request.response_format.type != "text":
        kind = format_value(request.response_format.type)
        raise invalid("response_format.type", f'is {kind}; only "text" is supported')
    if request.functions or request.function_call:
        raise invalid("functions", "is deprecated; use `tools`")
    roles = [message.role for message in request.messages if message.role not in _INSTRUCTION_ROLES]
    if not roles:
        raise invalid("messages", "has no message of a user")
    if roles[-1] == "assistant":
        raise invalid(
            "messages", "ends with a message of the assistant; there is nothing to answer"
        )


def _settings(request: ChatCompletionRequest) -> ModelSettings:
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
        if message.role in _INSTRUCTION_ROLES
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
                builder.assistant(_assistant_parts(message, path))
                builder.end_answer()
            case "tool":
                if not message.tool_call_id:
                    raise invalid(
                        f"{path}.tool_call_id", "is missing; name the call of this result"
                    )
                text = text_of(message.content, f"{path}.content")
                builder.result(message.tool_call_id, text)
            case "system" | "developer":
                # They are instructions, at any position.
                continue
    return builder.build()


def _assistant_parts(message: ChatMessage, path: str) -> list[AssistantPart]:
    text = text_of(message.content, f"{path}.content")
    parts: list[AssistantPart] = [TextPart(text=text)] if text else []
    for index, call in enumerate(message.tool_calls or ()):
        check_tool_type(f"{path}.tool_calls[{index}].type", call.type)
        if call.function is None:
            raise invalid(f"{path}.tool_calls[{index}].function", "is missing")
        parts.append(
            ToolCallPart(
                call_id=call.id, name=call.function.name, arguments=call.function.arguments
            )
        )
    return parts


def _client_tool(tool: ChatTool, path: str) -> ClientTool:
    check_tool_type(f"{path}.type", tool.type)
    function = tool.function
    if function is None:
        raise invalid(f"{path}.function", "is missing")
    return client_tool(
        name=function.name, description=function.description, parameters=function.parameters
    )
