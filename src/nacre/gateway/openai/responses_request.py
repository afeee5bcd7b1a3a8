"""Responses: the request schema and its conversion to a turn."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from pydantic import Field

from nacre.gateway.openai.chat_request import (
    MAX_SESSION_KEY,
    ResponseFormat,
    Share,
    Temperature,
    TokenCount,
)
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
from nacre.messages import AssistantMessage, TextPart, ToolCallPart
from nacre.providers import ModelSettings

if TYPE_CHECKING:
    from nacre.agent import ClientTool
    from nacre.gateway.openai.models import ModelChoice
    from nacre.gateway.openai.turn_input import Conversation


_RESPONSE_ID: Final = re.compile(r"resp_([0-9a-f]{24})(?:_\d{1,6})?", re.ASCII)
_MAX_METADATA: Final = 16
# What a model thought is for the provider that it came from; our own answers hold none.
_LEFT_ASIDE: Final = frozenset(("reasoning", "compaction"))


class InputItem(WireModel):
    """One item of the input: a message, a call or the result of one."""

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
    """What kind of text is asked for."""

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
    """The run that gave this response; empty for what is no id of ours."""
    found = _RESPONSE_ID.fullmatch(response_id)
    return f"run_{found[1]}" if found else ""


def response_id_of(run_id: str, answer_number: int) -> str:
    """A run gives one response more each time that its client has sent results."""
    more = f"_{answer_number}" if answer_number > 1 else ""
    return f"resp_{run_id.removeprefix('run_')}{more}"


def responses_ask(request: ResponsesRequest, choice: ModelChoice, *, session_key: str) -> Ask:
    """Raises ApiError for what cannot be done; says which member it is."""
    _refuse_unknown(request, session_key)
    conversation = _conversation(request.input)
    if not conversation.messages and not conversation.results:
        raise refused("input", "is empty; there is nothing to answer")
    last = conversation.messages[-1] if conversation.messages else None
    if isinstance(last, AssistantMessage):
        raise refused("input", "ends with what the assistant said; there is nothing to answer")
    return Ask(
        conversation=conversation,
        choice=choice,
        client_tools=offered_tools(
            [_tool(tool, f"tools[{index}]") for index, tool in enumerate(request.tools or ())],
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


def _refuse_unknown(request: ResponsesRequest, session_key: str) -> None:
    if request.background:
        raise refused("background", "is true; start such runs with POST /api/runs")
    if request.conversation is not None:
        raise refused(
            "conversation",
            "is not known here; use `previous_response_id`, or the header x-nacre-session-key",
        )
    if request.prompt is not None:
        raise refused("prompt", "names a template, of which there are none; use `instructions`")
    kind = request.text.format.type if request.text and request.text.format else "text"
    if kind != "text":
        raise refused("text.format.type", f'is {shown_value(kind)}; only "text" can be asked for')
    if len(session_key) > MAX_SESSION_KEY:
        raise refused(
            "x-nacre-session-key",
            f"has {len(session_key)} characters; at most {MAX_SESSION_KEY} are allowed",
        )
    if session_key and request.previous_response_id:
        raise refused("previous_response_id", "and x-nacre-session-key each name a session")


def _previous_run_id(request: ResponsesRequest) -> str:
    if not request.previous_response_id:
        return ""
    run_id = run_id_of(request.previous_response_id)
    if not run_id:
        raise refused(
            "previous_response_id",
            f"is {shown_value(request.previous_response_id)}, which is no id of a response here",
            code="previous_response_not_found",
        )
    return run_id


def _conversation(given: str | list[InputItem]) -> Conversation:
    builder = ConversationBuilder()
    if isinstance(given, str):
        builder.user([TextPart(text=given)])
        return builder.built()
    for index, item in enumerate(given):
        _take_item(builder, item, f"input[{index}]")
    return builder.built()


def _take_item(builder: ConversationBuilder, item: InputItem, path: str) -> None:
    match item.type:
        case "message":
            _take_message(builder, item, path)
        case "function_call":
            if not item.call_id or not item.name:
                raise refused(path, "is a call without `call_id` or `name`")
            call = ToolCallPart(
                call_id=item.call_id, name=item.name, arguments=item.arguments or ""
            )
            builder.assistant([call])
        case "function_call_output":
            if not item.call_id:
                raise refused(f"{path}.call_id", "is missing: whose result is it?")
            builder.result(item.call_id, text_of(item.output, f"{path}.output"))
        case kind if kind in _LEFT_ASIDE:
            pass
        case _:
            raise refused(
                f"{path}.type",
                f"is {shown_value(item.type)}; known: message, function_call and "
                "function_call_output",
            )


def _take_message(builder: ConversationBuilder, item: InputItem, path: str) -> None:
    match item.role:
        case "user":
            builder.user(user_parts(item.content, f"{path}.content"))
        case "assistant":
            builder.assistant([TextPart(text=text_of(item.content, f"{path}.content"))])
        case "system" | "developer":
            builder.system(text_of(item.content, f"{path}.content"))
        case _:
            raise refused(
                f"{path}.role",
                f"is {shown_value(item.role)}; known: user, assistant, system, developer",
            )


def _tool(tool: ResponsesTool, path: str) -> ClientTool:
    refuse_kind(f"{path}.type", tool.type)
    if not tool.name:
        raise refused(f"{path}.name", "is missing")
    return client_tool(name=tool.name, description=tool.description, parameters=tool.parameters)
