"""Chat Completions: the response as one object or as a stream of chunks."""

from __future__ import annotations

import time
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, assert_never, cast

from nacre.gateway.errors import ApiError, openai_format
from nacre.gateway.openai.answer_stream import ClientCalls, MessageEnd, RunEnd, TextDelta
from nacre.gateway.sse import encode_event
from nacre.json_types import encode_json

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterator, Sequence

    from nacre.agent import RunFinish
    from nacre.gateway.openai.answer_stream import AnswerStream
    from nacre.gateway.openai.waiting_runs import ClientCall
    from nacre.json_types import JsonObject, JsonValue
    from nacre.messages import Usage


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
