"""Chat Completions: the response as one object or as a stream of chunks."""

from __future__ import annotations

import time
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, assert_never, cast

from nacre.gateway.errors import ApiError, openai_shape
from nacre.gateway.openai.run_answers import CallsAsked, MessageOver, RunOver, Said
from nacre.gateway.sse import encode_event
from nacre.json_types import encode_json

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterator, Sequence

    from nacre.agent import RunFinish
    from nacre.gateway.openai.parked_runs import ShownCall
    from nacre.gateway.openai.run_answers import RunAnswer
    from nacre.json_types import JsonObject, JsonValue
    from nacre.messages import Usage


# Between what the model said before some calls, and what it said after them.
_BETWEEN_MESSAGES: Final = "\n\n"


@dataclass(frozen=True, kw_only=True, slots=True)
class ChatHead:
    """What is the same in all chunks of an answer."""

    id: str
    model: str
    """As the client asked for it."""
    created: int

    def to_json(self, kind: str) -> JsonObject:
        return {"id": self.id, "object": kind, "created": self.created, "model": self.model}


def chat_head(answer: RunAnswer, model: str) -> ChatHead:
    run_id = answer.run.id.removeprefix("run_")
    return ChatHead(id=f"chatcmpl-{run_id}-{answer.number}", model=model, created=int(time.time()))


async def chat_completion(answer: RunAnswer, head: ChatHead) -> JsonObject:
    """The whole answer; raises ApiError where there is none."""
    texts: list[str] = []
    calls: Sequence[ShownCall] = ()
    reason = "stop"
    async with aclosing(answer.parts()) as parts:
        async for part in parts:
            match part:
                case Said():
                    texts.append(joined_text(part, has_text=bool(texts)))
                case CallsAsked():
                    calls, reason = part.calls, "tool_calls"
                case RunOver():
                    reason = chat_reason(part.result.finish_reason)
                case MessageOver():
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


def joined_text(said: Said, *, has_text: bool) -> str:
    return f"{_BETWEEN_MESSAGES}{said.text}" if said.begins_message and has_text else said.text


def call_to_json(shown: ShownCall) -> JsonObject:
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


_DONE: Final = b"data: [DONE]\n\n"


class ChatStream:
    """The chunks of one answer."""

    def __init__(self, answer: RunAnswer, head: ChatHead, *, tells_usage: bool) -> None:
        self._answer = answer
        self._head = head
        self._tells_usage = tells_usage
        self._is_begun = False
        self._has_text = False

    async def events(self) -> AsyncGenerator[bytes]:
        async with aclosing(self._answer.parts()) as parts:
            async for part in parts:
                match part:
                    case Said():
                        yield self._text_chunk(part)
                    case CallsAsked():
                        for chunk in self._calls(part.calls):
                            yield chunk
                        yield self._end("tool_calls")
                    case RunOver():
                        yield self._end(chat_reason(part.result.finish_reason))
                    case MessageOver():
                        pass
                    case _:
                        assert_never(part)

    def failed(self, error: ApiError) -> bytes:
        return encode_event({"error": openai_shape(error)}) + _DONE

    def _text_chunk(self, said: Said) -> bytes:
        text = joined_text(said, has_text=self._has_text)
        self._has_text = True
        return self._begin() + self._delta({"content": text})

    def _calls(self, calls: Sequence[ShownCall]) -> Iterator[bytes]:
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
        if self._is_begun:
            return b""
        self._is_begun = True
        return self._delta({"role": "assistant", "content": "", "refusal": None})

    def _end(self, reason: str) -> bytes:
        end = self._begin() + self._delta({}, reason=reason)
        if self._tells_usage:
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
        if self._tells_usage:
            chunk["usage"] = usage
        return encode_event(chunk)
