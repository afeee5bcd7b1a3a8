"""Chat Completions: the request as a turn, and the response as one object or as a stream."""

from __future__ import annotations

import time
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, assert_never, cast

from pydantic import Field

from nacre.gateway.errors import ApiError, openai_format
from nacre.gateway.events import encode_event
from nacre.gateway.openai.turns import (
    ClientCalls,
    Content,
    ConversationBuilder,
    MessageEnd,
    RunEnd,
    TextDelta,
    TurnInput,
    WireModel,
    check_message_count,
    check_tool_type,
    client_tool,
    format_value,
    invalid,
    select_client_tools,
    text_of,
    user_parts,
)
from nacre.json_types import encode_json
from nacre.messages import TextPart, ToolCallPart
from nacre.providers import ModelSettings

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterator, Sequence

    from nacre.agent import ClientTool, RunFinish
    from nacre.gateway.openai.run_starter import ClientCall
    from nacre.gateway.openai.turns import AnswerStream, Conversation, ModelChoice
    from nacre.json_types import JsonObject, JsonValue
    from nacre.messages import AssistantPart, Usage


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
    check_message_count("messages", len(request.messages))
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


# Between the messages before and after tool calls.
_MESSAGE_SEPARATOR: Final = "\n\n"
_DONE: Final = b"data: [DONE]\n\n"


@dataclass(frozen=True, kw_only=True, slots=True)
class ChatHead:
    """The members that all chunks of an answer share."""

    id: str
    model: str
    """The name in the request."""
    created: int

    def to_json(self, kind: str) -> JsonObject:
        return {"id": self.id, "object": kind, "created": self.created, "model": self.model}


def create_chat_head(answer: AnswerStream, model: str) -> ChatHead:
    run_id = answer.run.id.removeprefix("run_")
    return ChatHead(id=f"chatcmpl-{run_id}-{answer.number}", model=model, created=int(time.time()))


async def chat_completion(answer: AnswerStream, head: ChatHead) -> JsonObject:
    """The complete answer. Raises ApiError if the run fails."""
    texts: list[str] = []
    calls: Sequence[ClientCall] = ()
    reason = "stop"
    async with aclosing(answer.parts()) as parts:
        async for part in parts:
            match part:
                case TextDelta():
                    texts.append(separate_text(part, has_text=bool(texts)))
                case ClientCalls():
                    calls, reason = part.calls, "tool_calls"
                case RunEnd():
                    reason = chat_reason(part.result.finish_reason)
                case MessageEnd():
                    pass
                case _:
                    assert_never(part)
    message: JsonObject = {"role": "assistant", "content": "".join(texts) or None, "refusal": None}
    if calls:
        message["tool_calls"] = [call_to_json(each) for each in calls]
    elif not texts:
        message["content"] = ""
    choice: JsonObject = {
        "index": 0,
        "message": message,
        "finish_reason": reason,
        "logprobs": None,
    }
    wire = head.to_json("chat.completion")
    return {**wire, "choices": [choice], "usage": chat_usage(answer.usage)}


def separate_text(said: TextDelta, *, has_text: bool) -> str:
    return f"{_MESSAGE_SEPARATOR}{said.text}" if said.begins_message and has_text else said.text


def call_to_json(shown: ClientCall) -> JsonObject:
    arguments = encode_json(shown.call.arguments).decode()
    function: JsonObject = {"name": shown.call.name, "arguments": arguments}
    return {"id": shown.id, "type": "function", "function": function}


def chat_reason(reason: RunFinish) -> str:
    return reason if reason in ("length", "content_filter") else "stop"


def chat_usage(usage: Usage) -> JsonObject:
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.total_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
        "completion_tokens_details": {"reasoning_tokens": 0},
    }


class ChatStream:
    """Encodes one answer as chunks."""

    def __init__(self, answer: AnswerStream, head: ChatHead, *, includes_usage: bool) -> None:
        self._answer = answer
        self._head = head
        self._includes_usage = includes_usage
        self._has_started = False
        self._has_text = False

    async def events(self) -> AsyncGenerator[bytes]:
        async with aclosing(self._answer.parts()) as parts:
            async for part in parts:
                match part:
                    case TextDelta():
                        yield self._text_chunk(part)
                    case ClientCalls():
                        for chunk in self._calls(part.calls):
                            yield chunk
                        yield self._end("tool_calls")
                    case RunEnd():
                        yield self._end(chat_reason(part.result.finish_reason))
                    case MessageEnd():
                        pass
                    case _:
                        assert_never(part)

    def encode_error(self, error: ApiError) -> bytes:
        return encode_event({"error": openai_format(error)}) + _DONE

    def _text_chunk(self, said: TextDelta) -> bytes:
        text = separate_text(said, has_text=self._has_text)
        self._has_text = True
        return self._begin() + self._delta({"content": text})

    def _calls(self, calls: Sequence[ClientCall]) -> Iterator[bytes]:
        yield self._begin()
        for index, shown in enumerate(calls):
            whole = call_to_json(shown)
            function = cast("JsonObject", whole["function"])
            start: JsonObject = {**whole, "index": index, "function": {**function, "arguments": ""}}
            rest: JsonObject = {
                "index": index,
                "function": {"arguments": function["arguments"]},
            }
            yield self._delta({"tool_calls": [start]}) + self._delta({"tool_calls": [rest]})

    def _begin(self) -> bytes:
        if self._has_started:
            return b""
        self._has_started = True
        return self._delta({"role": "assistant", "content": "", "refusal": None})

    def _end(self, reason: str) -> bytes:
        end = self._begin() + self._delta({}, reason=reason)
        if self._includes_usage:
            end += self._chunk([], usage=chat_usage(self._answer.usage))
        return end + _DONE

    def _delta(self, delta: JsonObject, *, reason: str | None = None) -> bytes:
        choice: JsonObject = {
            "index": 0,
            "delta": delta,
            "finish_reason": reason,
            "logprobs": None,
        }
        return self._chunk([choice])

    def _chunk(self, choices: list[JsonValue], *, usage: JsonObject | None = None) -> bytes:
        chunk = self._head.to_json("chat.completion.chunk")
        chunk["choices"] = choices
        if self._includes_usage:
            chunk["usage"] = usage
        return encode_event(chunk)
