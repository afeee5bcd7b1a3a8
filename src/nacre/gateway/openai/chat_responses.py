"""Chat Completions: the answer as one object, and what its chunks are made of."""

from __future__ import annotations

import time
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, assert_never

from nacre.gateway.openai.run_answers import CallsAsked, MessageOver, RunOver, Said
from nacre.json_types import encode_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nacre.agent import RunFinish
    from nacre.gateway.openai.parked_runs import ShownCall
    from nacre.gateway.openai.run_answers import RunAnswer
    from nacre.json_types import JsonObject
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
