"""Responses: requests as turns, response objects, their events, and the log of past responses."""

from __future__ import annotations

import re
import time
from collections import OrderedDict
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, assert_never, cast

from pydantic import Field

from nacre.gateway.errors import ApiError, quote_id
from nacre.gateway.events import encode_event
from nacre.gateway.openai.chat import (
    MAX_SESSION_KEY,
    ResponseFormat,
    Share,
    Temperature,
    TokenCount,
)
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
from nacre.gateway.routes.sessions import turn_reply
from nacre.json_types import decode_json, encode_json
from nacre.messages import AssistantMessage, TextPart, ToolCallPart, Usage
from nacre.providers import ModelSettings

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterator, Sequence

    from nacre.agent import ClientTool, RunFinish
    from nacre.gateway.openai.run_starter import ClientCall
    from nacre.gateway.openai.turns import AnswerPart, AnswerStream, Conversation, ModelChoice
    from nacre.json_types import JsonObject, JsonValue
    from nacre.messages import Message
    from nacre.storage import Store, TurnRecord

_RESPONSE_ID: Final = re.compile(r"resp_([0-9a-f]{24})(?:_\d{1,6})?", re.ASCII)
_MAX_METADATA: Final = 16
# Reasoning belongs to the provider that created it; our own answers have none.
_IGNORED_TYPES: Final = frozenset(("reasoning", "compaction"))

ResponseStatus = Literal["in_progress", "completed", "incomplete", "failed", "cancelled"]

_INCOMPLETE: Final = {"length": "max_output_tokens", "content_filter": "content_filter"}
_TURN_STATUSES: Final[dict[str, ResponseStatus]] = {
    "running": "in_progress",
    "completed": "completed",
    "failed": "failed",
    "interrupted": "failed",
    "aborted": "cancelled",
}
_MAX_RESPONSES: Final = 256
_MAX_BYTES: Final = 32 * 1024 * 1024


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


@dataclass(frozen=True, kw_only=True, slots=True)
class ResponseHead:
    """The members of a response that are known at its start."""

    id: str
    created_at: int
    echoed: JsonObject
    """The settings of the request, which the response repeats."""

    def to_json(
        self,
        *,
        status: ResponseStatus,
        output: Sequence[JsonObject],
        usage: Usage | None = None,
        error: str = "",
        reason: RunFinish = "stop",
    ) -> JsonObject:
        why = _INCOMPLETE.get(reason) if status == "incomplete" else None
        return {
            "id": self.id,
            "object": "response",
            "created_at": self.created_at,
            "status": status,
            "background": False,
            "error": {"code": "server_error", "message": error} if error else None,
            "incomplete_details": {"reason": why} if why else None,
            "output": cast("list[JsonValue]", list(output)),
            "usage": _usage_to_json(usage) if usage is not None else None,
            **self.echoed,
        }


def create_response_head(answer: AnswerStream, request: ResponsesRequest) -> ResponseHead:
    tools = [tool.model_dump(exclude_none=True) for tool in request.tools or ()]
    return ResponseHead(
        id=response_id_of(answer.run.id, answer.number),
        created_at=int(time.time()),
        echoed=_echo(
            instructions=request.instructions,
            max_output_tokens=request.max_output_tokens,
            metadata=cast("JsonObject", request.metadata or {}),
            model=request.model,
            parallel_tool_calls=request.parallel_tool_calls is not False,
            previous_response_id=request.previous_response_id,
            store=request.is_kept,
            temperature=request.temperature,
            tool_choice=cast("JsonValue", request.tool_choice or "auto"),
            tools=cast("list[JsonValue]", tools),
            top_p=request.top_p,
            user=request.user,
        ),
    )


def final_status(reason: RunFinish) -> ResponseStatus:
    return "incomplete" if reason in _INCOMPLETE else "completed"


def message_item(item_id: str, text: str, *, is_whole: bool = True) -> JsonObject:
    return {
        "id": item_id,
        "type": "message",
        "role": "assistant",
        "status": "completed" if is_whole else "incomplete",
        "content": [text_content(text)],
    }


def text_content(text: str) -> JsonObject:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def call_item(item_id: str, shown: ClientCall) -> JsonObject:
    return {
        "id": item_id,
        "type": "function_call",
        "call_id": shown.id,
        "name": shown.call.name,
        "arguments": encode_json(shown.call.arguments).decode(),
        "status": "completed",
    }


def stored_response(response_id: str, turn: TurnRecord, messages: Sequence[Message]) -> JsonObject:
    """The response as far as the session stores it: the text and the status."""
    said = [each.text for each in messages if isinstance(each, AssistantMessage) and each.text]
    if turn.visibility != "visible":
        said = list(turn.sent)
    output = [
        message_item(f"msg_{response_id.removeprefix('resp_')}_{index}", text)
        for index, text in enumerate(said)
    ]
    head = ResponseHead(
        id=response_id, created_at=int(turn.started), echoed=_echo(model=turn.model)
    )
    return head.to_json(
        status=_TURN_STATUSES[turn.status], output=output, usage=turn.usage, error=turn.error
    )


def _echo(**given: JsonValue) -> JsonObject:
    defaults: JsonObject = {
        "instructions": None,
        "max_output_tokens": None,
        "metadata": {},
        "parallel_tool_calls": True,
        "previous_response_id": None,
        "store": True,
        "temperature": None,
        "text": {"format": {"type": "text"}},
        "tool_choice": "auto",
        "tools": [],
        "top_p": None,
        "truncation": "disabled",
        "user": None,
    }
    return {**defaults, **given}


def _usage_to_json(usage: Usage) -> JsonObject:
    return {
        "input_tokens": usage.input_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens, "cache_write_tokens": 0},
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": usage.total_tokens,
    }


class ResponseStream:
    """Creates one response. Calls `keep` at its start and at its end."""

    def __init__(
        self, answer: AnswerStream, head: ResponseHead, *, keep: Callable[[JsonObject], None]
    ) -> None:
        self._answer = answer
        self._head = head
        self._keep = keep
        self._sequence = 0
        self._output: list[JsonObject] = []
        self._text: list[str] = []
        self._has_started = False
        self.response: JsonObject = {}
        """The response, once it is complete."""

    async def events(self) -> AsyncGenerator[bytes]:
        try:
            async with aclosing(self._answer.parts()) as parts:
                async for part in parts:
                    for event in self._handle_part(part):
                        yield _encode_event(event)
        except ApiError as error:
            if not self._has_started:
                raise
            for event in self._fail(error):
                yield _encode_event(event)
        finally:
            self._keep_if_interrupted()

    async def complete(self) -> JsonObject:
        """Wait for the complete response. Raises ApiError if the run fails."""
        try:
            async with aclosing(self._answer.parts()) as parts:
                async for part in parts:
                    for _event in self._handle_part(part):
                        pass
        finally:
            self._keep_if_interrupted()
        return self.response

    def encode_error(self, error: ApiError) -> bytes:
        """Encode an error that comes before the first event of the answer."""
        return b"".join(_encode_event(event) for event in (*self._begin(), *self._fail(error)))

    def _handle_part(self, part: AnswerPart) -> Iterator[JsonObject]:
        yield from self._begin()
        match part:
            case TextDelta():
                yield from self._add_text(part.text)
            case MessageEnd():
                yield from self._end_message()
            case ClientCalls():
                for shown in part.calls:
                    yield from self._call(shown)
                yield from self._end("completed")
            case RunEnd():
                reason = part.result.finish_reason
                yield from self._end(final_status(reason), reason=reason)
            case _:
                assert_never(part)

    def _begin(self) -> Iterator[JsonObject]:
        if self._has_started:
            return
        self._has_started = True
        started = self._head.to_json(status="in_progress", output=[])
        self._keep(started)
        yield self._event("response.created", response=started)
        yield self._event("response.in_progress", response=started)

    @property
    def _place(self) -> dict[str, JsonValue]:
        """The position of the current item."""
        index = len(self._output)
        return {"item_id": self._item_id("msg", index), "output_index": index}

    def _add_text(self, text: str) -> Iterator[JsonObject]:
        place = {**self._place, "content_index": 0}
        if not self._text:
            started = {**message_item(str(place["item_id"]), ""), "status": "in_progress"}
            index = len(self._output)
            yield self._event(
                "response.output_item.added", output_index=index, item={**started, "content": []}
            )
            yield self._event("response.content_part.added", **place, part=text_content(""))
        self._text.append(text)
        yield self._event("response.output_text.delta", **place, delta=text, logprobs=[])

    def _end_message(self, *, is_whole: bool = True) -> Iterator[JsonObject]:
        if not self._text:
            return
        place = {**self._place, "content_index": 0}
        text = "".join(self._text)
        self._text = []
        yield self._event("response.output_text.done", **place, text=text, logprobs=[])
        yield self._event("response.content_part.done", **place, part=text_content(text))
        yield self._add(message_item(str(place["item_id"]), text, is_whole=is_whole))

    def _call(self, shown: ClientCall) -> Iterator[JsonObject]:
        index = len(self._output)
        item = call_item(self._item_id("fc", index), shown)
        place: dict[str, JsonValue] = {"item_id": item["id"], "output_index": index}
        started: JsonObject = {**item, "arguments": "", "status": "in_progress"}
        arguments = item["arguments"]
        kind = "response.function_call_arguments"
        yield self._event("response.output_item.added", output_index=index, item=started)
        yield self._event(f"{kind}.delta", **place, delta=arguments)
        yield self._event(f"{kind}.done", **place, name=item["name"], arguments=arguments)
        yield self._add(item)

    def _add(self, item: JsonObject) -> JsonObject:
        index = len(self._output)
        self._output.append(item)
        return self._event("response.output_item.done", output_index=index, item=item)

    def _end(self, status: ResponseStatus, *, reason: RunFinish = "stop") -> Iterator[JsonObject]:
        yield from self._end_message()
        self.response = self._head.to_json(
            status=status, output=self._output, usage=self._answer.usage, reason=reason
        )
        self._keep(self.response)
        yield self._event(f"response.{status}", response=self.response)

    def _fail(self, error: ApiError) -> Iterator[JsonObject]:
        yield from self._end_message(is_whole=False)
        self.response = self._head.to_json(
            status="failed",
            output=self._output,
            usage=self._answer.usage,
            error=error.message,
        )
        status = "cancelled" if self._answer.run.state == "aborted" else "failed"
        self._keep({**self.response, "status": status})
        yield self._event("response.failed", response=self.response)

    def _keep_if_interrupted(self) -> None:
        """Keep a failed response if the client has left."""
        if self._has_started and not self.response:
            for _event in self._fail(ApiError(500, "the client closed the connection")):
                pass

    def _item_id(self, kind: str, index: int) -> str:
        return f"{kind}_{self._head.id.removeprefix('resp_')}_{index}"

    def _event(self, kind: str, **members: JsonValue) -> JsonObject:
        event: JsonObject = {"type": kind, "sequence_number": self._sequence, **members}
        self._sequence += 1
        return event


def _encode_event(event: JsonObject) -> bytes:
    return encode_event(event, kind=str(event["type"]))


class ResponseLog:
    """The responses of requests with `store`, which is the default."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._kept: OrderedDict[str, bytes] = OrderedDict()
        self._bytes = 0

    def keep(self, response: JsonObject) -> None:
        """Keep the response, replacing an earlier state."""
        response_id = str(response["id"])
        self._bytes -= len(self._kept.pop(response_id, b""))
        data = encode_json(response)
        self._kept[response_id] = data
        self._bytes += len(data)
        while len(self._kept) > _MAX_RESPONSES or self._bytes > _MAX_BYTES:
            self._bytes -= len(self._kept.popitem(last=False)[1])

    async def response(self, response_id: str) -> JsonObject:
        """Get a response. Raises ApiError (404)."""
        if (kept := self._kept.get(response_id)) is not None:
            return cast("JsonObject", decode_json(kept))
        run_id = run_id_of(response_id)
        turn = await self._store.turn(run_id) if run_id else None
        if turn is None:
            raise ApiError(
                404,
                f"there is no stored response {quote_id(response_id)}",
                path="response_id",
            )
        stored = await self._store.messages_of_turns(turn.session_id, [turn.run_id])
        messages = [each.message for each in stored]
        if reply := turn_reply(turn):
            messages.append(AssistantMessage(parts=(TextPart(text=reply),)))
        return stored_response(response_id, turn, messages)
