"""Chat Completions: the answer in chunks, as it comes."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING, Final, assert_never, cast

from nacre.gateway.errors import ApiError, openai_shape
from nacre.gateway.openai.chat_responses import (
    call_to_json,
    chat_reason,
    chat_usage,
    joined_text,
)
from nacre.gateway.openai.run_answers import CallsAsked, MessageOver, RunOver, Said
from nacre.gateway.openai.streaming import data_event

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterator, Sequence

    from nacre.gateway.openai.chat_responses import ChatHead
    from nacre.gateway.openai.parked_runs import ShownCall
    from nacre.gateway.openai.run_answers import RunAnswer
    from nacre.json_types import JsonObject, JsonValue

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
        return data_event({"error": openai_shape(error)}) + _DONE

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
        return data_event(chunk)
