"""The Messages API of Anthropic."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from nacre.json_types import NotJsonError, decode_json
from nacre.testing.script import Call, Say, Think
from nacre.testing.wire.base import (
    SeenMessage,
    arguments_text,
    named_event,
    objects_in,
    pieces_of,
    text_in,
    words_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nacre.json_types import JsonObject, JsonValue
    from nacre.messages import Usage
    from nacre.testing.script import Fail, Spoken
    from nacre.testing.wire.base import Answer

_STOP_REASONS: Final = {
    "stop": "end_turn",
    "tool_calls": "tool_use",
    "length": "max_tokens",
    "content_filter": "refusal",
}
_FAILURES: Final = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    529: "overloaded_error",
}


class MessagesWire:
    """`POST /v1/messages`."""

    def messages(self, body: JsonObject) -> list[SeenMessage]:
        system = text_in(body.get("system"))
        seen = [SeenMessage(role="system", text=system)] if system else []
        for message in objects_in(body.get("messages")):
            seen.extend(_read_message(message))
        return seen

    def tool_names(self, body: JsonObject) -> list[str]:
        return [str(tool.get("name")) for tool in objects_in(body.get("tools"))]

    def stream(self, answer: Answer) -> MessagesStream:
        return MessagesStream(answer)

    def whole(self, answer: Answer) -> JsonObject:
        blocks = [_block(part) for part in answer.spoken]
        return _message(answer, content=blocks, usage=_usage(answer.usage), is_over=True)

    def failure(self, failure: Fail) -> JsonObject:
        kind = _FAILURES.get(failure.status, "api_error")
        error: JsonObject = {"type": kind, "message": failure.message}
        return {"type": "error", "error": error, "request_id": "req_scripted"}

    def call_id(self, number: int, index: int) -> str:
        return f"toolu_{number}_{index}"


class MessagesStream:
    """The events of one response: the content blocks, then the end."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._block_count = 0

    def begin(self) -> Iterator[bytes]:
        usage: JsonObject = {**_usage(self._answer.usage), "output_tokens": 1}
        message = _message(self._answer, content=[], usage=usage, is_over=False)
        yield named_event({"type": "message_start", "message": message})
        yield named_event({"type": "ping"})

    def speak(self, part: Spoken) -> Iterator[bytes]:
        index = self._block_count
        self._block_count += 1
        begun = _empty_block(part)
        yield named_event({"type": "content_block_start", "index": index, "content_block": begun})
        for delta in _deltas(part):
            yield named_event({"type": "content_block_delta", "index": index, "delta": delta})
        yield named_event({"type": "content_block_stop", "index": index})

    def fail(self, failure: Fail) -> Iterator[bytes]:
        yield named_event(MessagesWire().failure(failure))

    def end(self) -> Iterator[bytes]:
        delta: JsonObject = {
            "stop_reason": _STOP_REASONS[self._answer.reason],
            "stop_sequence": None,
        }
        usage = _usage(self._answer.usage)
        yield named_event({"type": "message_delta", "delta": delta, "usage": usage})
        yield named_event({"type": "message_stop"})


def _read_message(message: JsonObject) -> Iterator[SeenMessage]:
    """A user message contains text, tool results, or both."""
    content = message.get("content")
    for block in objects_in(content):
        if block.get("type") == "tool_result":
            text = text_in(block.get("content"))
            yield SeenMessage(role="tool", text=text, call_id=str(block.get("tool_use_id")))
    text = text_in(content)
    if text:
        role = "assistant" if message.get("role") == "assistant" else "user"
        yield SeenMessage(role=role, text=text)


def _empty_block(part: Spoken) -> JsonObject:
    match part:
        case Say():
            return {"type": "text", "text": ""}
        case Think():
            return {"type": "thinking", "thinking": "", "signature": ""}
        case Call(name, _, call_id):
            return {"type": "tool_use", "id": call_id, "name": name, "input": {}}


def _deltas(part: Spoken) -> Iterator[JsonObject]:
    match part:
        case Say(text):
            for word in words_of(text):
                yield {"type": "text_delta", "text": word}
        case Think(text, signature):
            for word in words_of(text):
                yield {"type": "thinking_delta", "thinking": word}
            yield {"type": "signature_delta", "signature": signature}
        case Call():
            for piece in ["", *pieces_of(arguments_text(part))]:
                yield {"type": "input_json_delta", "partial_json": piece}


def _block(part: Spoken) -> JsonObject:
    match part:
        case Say(text):
            return {"type": "text", "text": text}
        case Think(text, signature):
            return {"type": "thinking", "thinking": text, "signature": signature}
        case Call():
            return {**_empty_block(part), "input": _input(part)}


def _input(call: Call) -> JsonObject:
    if not isinstance(call.arguments, str):
        return call.arguments
    try:
        given = decode_json(call.arguments.encode(errors="replace"))
    except NotJsonError:
        given = None
    if not isinstance(given, dict):
        raise ValueError(
            f"the arguments of {call.name} are no JSON object; this format can only stream such"
        )
    return given


def _message(
    answer: Answer, *, content: list[JsonObject], usage: JsonObject, is_over: bool
) -> JsonObject:
    return {
        "id": f"msg_{answer.number}",
        "type": "message",
        "role": "assistant",
        "model": answer.model,
        "content": cast("list[JsonValue]", content),
        "stop_reason": _STOP_REASONS[answer.reason] if is_over else None,
        "stop_sequence": None,
        "usage": usage,
    }


def _usage(usage: Usage) -> JsonObject:
    """The usage; in this format, input tokens do not include cached tokens."""
    return {
        "input_tokens": usage.input_tokens - usage.cached_tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": usage.cached_tokens,
        "output_tokens": usage.output_tokens,
    }
