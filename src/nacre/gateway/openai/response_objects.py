"""Responses: the object that stands for an answer, and the items that it holds."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, cast

from nacre.gateway.openai.responses_request import response_id_of
from nacre.json_types import encode_json
from nacre.messages import AssistantMessage, Usage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nacre.agent import RunFinish
    from nacre.gateway.openai.parked_runs import ShownCall
    from nacre.gateway.openai.responses_request import ResponsesRequest
    from nacre.gateway.openai.run_answers import RunAnswer
    from nacre.json_types import JsonObject, JsonValue
    from nacre.messages import Message
    from nacre.storage import TurnRecord

ResponseStatus = Literal["in_progress", "completed", "incomplete", "failed", "cancelled"]

_INCOMPLETE: Final = {"length": "max_output_tokens", "content_filter": "content_filter"}
_TURN_STATUSES: Final[dict[str, ResponseStatus]] = {
    "running": "in_progress",
    "completed": "completed",
    "failed": "failed",
    "interrupted": "failed",
    "aborted": "cancelled",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class ResponseHead:
    """What is known of a response before there is anything in it."""

    id: str
    created_at: int
    echoed: JsonObject
    """What the client asked for, which it is told again."""

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


def response_head(answer: RunAnswer, request: ResponsesRequest) -> ResponseHead:
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


def call_item(item_id: str, shown: ShownCall) -> JsonObject:
    return {
        "id": item_id,
        "type": "function_call",
        "call_id": shown.id,
        "name": shown.call.name,
        "arguments": encode_json(shown.call.arguments).decode(),
        "status": "completed",
    }


def stored_response(response_id: str, turn: TurnRecord, messages: Sequence[Message]) -> JsonObject:
    """As far as the session has it: what was said, and how the turn ended."""
    said = [each.text for each in messages if isinstance(each, AssistantMessage) and each.text]
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


def _echo(**asked: JsonValue) -> JsonObject:
    unsaid: JsonObject = {
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
    return {**unsaid, **asked}


def _usage_to_json(usage: Usage) -> JsonObject:
    return {
        "input_tokens": usage.input_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens, "cache_write_tokens": 0},
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": usage.total_tokens,
    }
