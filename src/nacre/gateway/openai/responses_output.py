"""Responses: the response object, its stream of events, and the log of past responses."""

from __future__ import annotations

import time
from collections import OrderedDict
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, assert_never, cast

from nacre.gateway.errors import ApiError, quote_id
from nacre.gateway.events import encode_event
from nacre.gateway.openai.answer_stream import ClientCalls, MessageEnd, RunEnd, TextDelta
from nacre.gateway.openai.responses_request import response_id_of, run_id_of
from nacre.gateway.routes.sessions import turn_reply
from nacre.json_types import decode_json, encode_json
from nacre.messages import AssistantMessage, TextPart, Usage

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterator, Sequence

    from nacre.agent import RunFinish
    from nacre.gateway.openai.answer_stream import AnswerPart, AnswerStream
    from nacre.gateway.openai.responses_request import ResponsesRequest
    from nacre.gateway.openai.run_starter import ClientCall
    from nacre.json_types import JsonObject, JsonValue
    from nacre.messages import Message
    from nacre.storage import Store, TurnRecord


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
