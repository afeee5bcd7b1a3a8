"""The Chat Completions API of OpenAI and of compatible servers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from nacre.testing.script import Call, Say, Think
from nacre.testing.wire.base import (
    CREATED_AT,
    Role,
    SeenMessage,
    arguments_text,
    data_event,
    objects_in,
    openai_failure,
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

_ROLES: Final[dict[JsonValue, Role]] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
}


class ChatWire:
    """`POST /v1/chat/completions`."""

    def messages(self, body: JsonObject) -> list[SeenMessage]:
        return [
            SeenMessage(
                role=_ROLES[message["role"]],
                text=text_in(message.get("content")),
                call_id=str(message.get("tool_call_id", "")),
            )
            for message in objects_in(body.get("messages"))
            if message.get("role") in _ROLES
        ]

    def tool_names(self, body: JsonObject) -> list[str]:
        functions = [tool.get("function") for tool in objects_in(body.get("tools"))]
        return [str(function.get("name")) for function in functions if isinstance(function, dict)]

    def stream(self, answer: Answer) -> ChatStream:
        return ChatStream(answer)

    def whole(self, answer: Answer) -> JsonObject:
        text = "".join(part.text for part in answer.spoken if isinstance(part, Say))
        thought = "".join(part.text for part in answer.spoken if isinstance(part, Think))
        calls = [_call(part) for part in answer.spoken if isinstance(part, Call)]
        message: JsonObject = {"role": "assistant", "content": text or None, "refusal": None}
        if thought:
            message["reasoning_content"] = thought
        if calls:
            message["tool_calls"] = cast("list[JsonValue]", calls)
        choice: JsonObject = {
            "index": 0,
            "message": message,
            "finish_reason": answer.reason,
            "logprobs": None,
        }
        return {
            "id": f"chatcmpl-{answer.number}",
            "object": "chat.completion",
            "created": CREATED_AT,
            "model": answer.model,
            "choices": [choice],
            "usage": _usage(answer.usage),
        }

    def failure(self, failure: Fail) -> JsonObject:
        return openai_failure(failure)

    def call_id(self, number: int, index: int) -> str:
        return f"call_{number}_{index}"


class ChatStream:
    """The chunks of one response. The usage is sent in a separate chunk if requested."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._call_count = 0
        options = answer.request.get("stream_options")
        self._tells_usage = isinstance(options, dict) and options.get("include_usage") is True

    def begin(self) -> Iterator[bytes]:
        yield self._delta({"role": "assistant", "content": "", "refusal": None})

    def speak(self, part: Spoken) -> Iterator[bytes]:
        match part:
            case Say(text):
                yield from (self._delta({"content": word}) for word in words_of(text))
            case Think(text):
                yield from (self._delta({"reasoning_content": word}) for word in words_of(text))
            case Call():
                yield from self._call(part)

    def fail(self, failure: Fail) -> Iterator[bytes]:
        yield data_event(openai_failure(failure))

    def end(self) -> Iterator[bytes]:
        yield self._delta({}, reason=self._answer.reason)
        if self._tells_usage:
            yield self._chunk([], usage=_usage(self._answer.usage))
        yield b"data: [DONE]\n\n"

    def _call(self, call: Call) -> Iterator[bytes]:
        index = self._call_count
        self._call_count += 1
        first: JsonObject = {**_call(call), "index": index}
        first["function"] = {"name": call.name, "arguments": ""}
        yield self._delta({"tool_calls": [first]})
        for piece in pieces_of(arguments_text(call)):
            yield self._delta({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})

    def _delta(self, delta: JsonObject, *, reason: str | None = None) -> bytes:
        choice: JsonObject = {
            "index": 0,
            "delta": delta,
            "finish_reason": reason,
            "logprobs": None,
        }
        return self._chunk([choice])

    def _chunk(self, choices: list[JsonValue], *, usage: JsonObject | None = None) -> bytes:
        chunk: JsonObject = {
            "id": f"chatcmpl-{self._answer.number}",
            "object": "chat.completion.chunk",
            "created": CREATED_AT,
            "model": self._answer.model,
            "choices": choices,
        }
        if self._tells_usage:
            chunk["usage"] = usage
        return data_event(chunk)


def _call(call: Call) -> JsonObject:
    function: JsonObject = {"name": call.name, "arguments": arguments_text(call)}
    return {"id": call.call_id, "type": "function", "function": function}


def _usage(usage: Usage) -> JsonObject:
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.total_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
        "completion_tokens_details": {"reasoning_tokens": 0},
    }
