"""Responses: the request schema and its conversion to a turn."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from pydantic import Field

from nacre.gateway.openai.chat import (
    MAX_SESSION_KEY,
    ResponseFormat,
    Share,
    Temperature,
    TokenCount,
)
from nacre.gateway.openai.turn_input import (
    Content,
    ConversationBuilder,
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
from nacre.messages import AssistantMessage, TextPart, ToolCallPart
from nacre.providers import ModelSettings

if TYPE_CHECKING:
    from nacre.agent import ClientTool
    from nacre.gateway.openai.turn_input import Conversation, ModelChoice


_RESPONSE_ID: Final = re.compile(r"resp_([0-9a-f]{24})(?:_\d{1,6})?", re.ASCII)
_MAX_METADATA: Final = 16
# Reasoning belongs to the provider that created it; our own answers have none.
_IGNORED_TYPES: Final = frozenset(("reasoning", "compaction"))


class InputItem(WireModel):
    """An item of the input: a message, a call, or the result of a call."""

    type: str = "message"
    role: str | None = None
    content: Content = None
    call_id: str | None = None
    name: str | None = None
    arguments: str | None = None
    output: Content = None


class ResponsesTool(WireModel):
    """A tool of the client."""

    type: str
    name: str | None = None
    description: str | None = None
    parameters: dict[str, Any] | None = None


class TextSettings(WireModel):
    """Settings of the answer's text."""

    format: ResponseFormat | None = None


class ResponsesRequest(WireModel):
    """The body of `POST /v1/responses`."""

    model: str = Field(examples=["nacre", "nacre/main", "openai/gpt-6"])
    input: str | list[InputItem]
    instructions: str | None = None
    previous_response_id: str | None = None
    store: bool | None = None
    stream: bool | None = None
    tools: list[ResponsesTool] | None = None
    tool_choice: Any = None
    parallel_tool_calls: bool | None = None
    max_output_tokens: TokenCount | None = None
    temperature: Temperature | None = None
    top_p: Share | None = None
    metadata: dict[str, str] | None = Field(default=None, max_length=_MAX_METADATA)
    text: TextSettings | None = None
    background: bool | None = None
    conversation: Any = None
    prompt: Any = None
    user: str | None = None

    @property
    def is_kept(self) -> bool:
        return self.store is not False


def run_id_of(response_id: str) -> str:
    """The run of this response; empty for an unknown id."""
    found = _RESPONSE_ID.fullmatch(response_id)
    return f"run_{found[1]}" if found else ""


def response_id_of(run_id: str, answer_number: int) -> str:
    """The id of a response. A run gives one more each time the client sends results."""
    more = f"_{answer_number}" if answer_number > 1 else ""
    return f"resp_{run_id.removeprefix('run_')}{more}"


def responses_turn_input(
    request: ResponsesRequest, choice: ModelChoice, *, session_key: str
) -> TurnInput:
    """Convert the request. Raises ApiError with the member that is invalid or not supported."""
    _check_supported(request, session_key)
    conversation = _conversation(request.input)
    if not conversation.messages and not conversation.results:
        raise invalid("input", "is empty; there is nothing to answer")
    last = conversation.messages[-1] if conversation.messages else None
    if isinstance(last, AssistantMessage):
        raise invalid("input", "ends with a message of the assistant; there is nothing to answer")
    return TurnInput(
        conversation=conversation,
        choice=choice,
        client_tools=select_client_tools(
            [
                _client_tool(tool, f"tools[{index}]")
                for index, tool in enumerate(request.tools or ())
            ],
            request.tool_choice,
        ),
        settings=ModelSettings(
            max_tokens=request.max_output_tokens,
            temperature=request.temperature,
            top_p=request.top_p,
            is_parallel=request.parallel_tool_calls,
        ),
        instructions=request.instructions or "",
        session_key=session_key,
        previous_run_id=_previous_run_id(request),
        is_kept=request.is_kept,
    )


def _check_supported(request: ResponsesRequest, session_key: str) -> None:
    if isinstance(request.input, list):
        check_message_count("input", len(request.input))
    if request.background:
        raise invalid("background", "is not supported; use POST /api/runs")
    if request.conversation is not None:
        raise invalid(
            "conversation",
            "is not supported; use `previous_response_id`, or the header x-nacre-session-key",
        )
    if request.prompt is not None:
        raise invalid("prompt", "is not supported; use `instructions`")
    kind = request.text.format.type if request.text and request.text.format else "text"
    if kind != "text":
        raise invalid("text.format.type", f'is {format_value(kind)}; only "text" is supported')
    if len(session_key) > MAX_SESSION_KEY:
        raise invalid(
            "x-nacre-session-key",
            f"has {len(session_key)} characters; at most {MAX_SESSION_KEY} are allowed",
        )
    if session_key and request.previous_response_id:
        raise invalid(
            "previous_response_id", "and x-nacre-session-key both name a session; use one"
        )


def _previous_run_id(request: ResponsesRequest) -> str:
    if not request.previous_response_id:
        return ""
    run_id = run_id_of(request.previous_response_id)
    if not run_id:
        raise invalid(
            "previous_response_id",
            f"is {format_value(request.previous_response_id)}, which is not a response id",
            code="previous_response_not_found",
        )
    return run_id


def _conversation(given: str | list[InputItem]) -> Conversation:
    builder = ConversationBuilder()
    if isinstance(given, str):
        builder.user([TextPart(text=given)])
        return builder.build()
    for index, item in enumerate(given):
        _add_item(builder, item, f"input[{index}]")
    return builder.build()


def _add_item(builder: ConversationBuilder, item: InputItem, path: str) -> None:
    match item.type:
        case "message":
            _add_message(builder, item, path)
        case "function_call":
            if not item.call_id or not item.name:
                raise invalid(path, "is a call without `call_id` or `name`")
            call = ToolCallPart(
                call_id=item.call_id, name=item.name, arguments=item.arguments or ""
            )
            builder.assistant([call])
        case "function_call_output":
            if not item.call_id:
                raise invalid(f"{path}.call_id", "is missing; name the call of this result")
            builder.result(item.call_id, text_of(item.output, f"{path}.output"))
        case kind if kind in _IGNORED_TYPES:
            pass
        case _:
            raise invalid(
                f"{path}.type",
                f"is {format_value(item.type)}; known: message, function_call and "
                "function_call_output",
            )


def _add_message(builder: ConversationBuilder, item: InputItem, path: str) -> None:
    match item.role:
        case "user":
            builder.user(user_parts(item.content, f"{path}.content"))
        case "assistant":
            builder.assistant([TextPart(text=text_of(item.content, f"{path}.content"))])
        case "system" | "developer":
            builder.system(text_of(item.content, f"{path}.content"))
        case _:
            raise invalid(
                f"{path}.role",
                f"is {format_value(item.role)}; known: user, assistant, system, developer",
            )


def _client_tool(tool: ResponsesTool, path: str) -> ClientTool:
    check_tool_type(f"{path}.type", tool.type)
    if not tool.name:
        raise invalid(f"{path}.name", "is missing")
    return client_tool(name=tool.name, description=tool.description, parameters=tool.parameters)
