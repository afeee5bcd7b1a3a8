"""The Responses API of OpenAI."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from nacre.json_types import decode_json, encode_json
from nacre.testing.script import Call, Say, Think
from nacre.testing.wire.base import (
    CREATED_AT,
    Role,
    SeenMessage,
    arguments_text,
    named_event,
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
}
_ID_PREFIXES: Final = {Say: "msg", Think: "rs", Call: "fc"}
_INCOMPLETE: Final = {"length": "max_output_tokens", "content_filter": "content_filter"}


class ResponsesWire:
    """`POST /v1/responses`."""

    def messages(self, body: JsonObject) -> list[SeenMessage]:
        instructions = body.get("instructions")
        seen: list[SeenMessage] = []
        if isinstance(instructions, str):
            seen.append(SeenMessage(role="system", text=instructions))
        given = body.get("input")
        if isinstance(given, str):
            return [*seen, SeenMessage(role="user", text=given)]
        return [*seen, *filter(None, map(_seen_item, objects_in(given)))]

    def tool_names(self, body: JsonObject) -> list[str]:
        items = [each for each in objects_in(body.get("input")) if "tools" in each]
        added = [each for each in items if each.get("type") == "additional_tools"]
        return [
            name
            for holder in (body, *added)
            for tool in objects_in(holder.get("tools"))
            for name in _names_of(tool)
        ]

    def stream(self, answer: Answer) -> ResponsesStream:
        return ResponsesStream(answer)

    def whole(self, answer: Answer) -> JsonObject:
        items = [
            _item(part, _item_id(answer, index, part)) for index, part in enumerate(answer.spoken)
        ]
        return _response(answer, output=items, is_over=True)

    def failure(self, failure: Fail) -> JsonObject:
        return openai_failure(failure)

    def call_id(self, number: int, index: int) -> str:
        return f"call_{number}_{index}"


class ResponsesStream:
    """The numbered events of one response; each part is one item."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._sequence = 0
        self._items: list[JsonObject] = []

    def begin(self) -> Iterator[bytes]:
        for kind in ("response.created", "response.in_progress"):
            yield self._event(kind, response=_response(self._answer, output=[], is_over=False))

    def speak(self, part: Spoken) -> Iterator[bytes]:
        index = len(self._items)
        item_id = _item_id(self._answer, index, part)
        whole = _item(part, item_id)
        self._items.append(whole)
        yield self._event("response.output_item.added", output_index=index, item=_empty_item(whole))
        match part:
            case Say(text):
                yield from self._text(text, item_id=item_id, output_index=index)
            case Think(text):
                yield from self._summary(text, item_id=item_id, output_index=index)
            case Call(kind="function"):
                text = arguments_text(part)
                yield from self._arguments(text, item_id=item_id, output_index=index)
            case Call():
                pass
        yield self._event("response.output_item.done", output_index=index, item=whole)

    def fail(self, failure: Fail) -> Iterator[bytes]:
        error: JsonObject = {"code": failure.code or "server_error", "message": failure.message}
        response = _response(self._answer, output=self._items, is_over=False)
        yield self._event(
            "response.failed", response={**response, "status": "failed", "error": error}
        )

    def end(self) -> Iterator[bytes]:
        response = _response(self._answer, output=self._items, is_over=True)
        yield self._event(f"response.{response['status']}", response=response)

    def _text(self, text: str, **place: JsonValue) -> Iterator[bytes]:
        place = {**place, "content_index": 0}
        yield self._event("response.content_part.added", **place, part=_text_content(""))
        for word in words_of(text):
            yield self._event("response.output_text.delta", **place, delta=word, logprobs=[])
        yield self._event("response.output_text.done", **place, text=text, logprobs=[])
        yield self._event("response.content_part.done", **place, part=_text_content(text))

    def _summary(self, text: str, **place: JsonValue) -> Iterator[bytes]:
        place = {**place, "summary_index": 0}
        kind = "response.reasoning_summary"
        yield self._event(f"{kind}_part.added", **place, part=_summary_content(""))
        for word in words_of(text):
            yield self._event(f"{kind}_text.delta", **place, delta=word)
        yield self._event(f"{kind}_text.done", **place, text=text)
        yield self._event(f"{kind}_part.done", **place, part=_summary_content(text))

    def _arguments(self, text: str, **place: JsonValue) -> Iterator[bytes]:
        for piece in pieces_of(text):
            yield self._event("response.function_call_arguments.delta", **place, delta=piece)
        yield self._event("response.function_call_arguments.done", **place, arguments=text)

    def _event(self, kind: str, **members: JsonValue) -> bytes:
        event: JsonObject = {"type": kind, "sequence_number": self._sequence, **members}
        self._sequence += 1
        return named_event(event)


def _names_of(tool: JsonObject) -> list[str]:
    name = str(tool.get("name", tool.get("type")))
    if tool.get("type") != "namespace":
        return [name]
    return [f"{name}.{each.get('name')}" for each in objects_in(tool.get("tools"))]


def _seen_item(item: JsonObject) -> SeenMessage | None:
    kind = item.get("type")
    if kind in ("function_call_output", "custom_tool_call_output", "tool_search_output"):
        found = item.get("output") if "output" in item else encode_json(item.get("tools")).decode()
        return SeenMessage(role="tool", text=text_in(found), call_id=str(item.get("call_id")))
    role = _ROLES.get(item.get("role"))
    return SeenMessage(role=role, text=text_in(item.get("content"))) if role else None


def _item_id(answer: Answer, index: int, part: Spoken) -> str:
    return f"{_ID_PREFIXES[type(part)]}_{answer.number}_{index}"


def _item(part: Spoken, item_id: str) -> JsonObject:
    match part:
        case Say(text):
            content: list[JsonValue] = [_text_content(text)]
            return {
                "id": item_id,
                "type": "message",
                "role": "assistant",
                "status": "completed",
                "content": content,
            }
        case Think(text, signature):
            return {
                "id": item_id,
                "type": "reasoning",
                "summary": [_summary_content(text)],
                "encrypted_content": signature,
            }
        case Call(kind="tool_search"):
            return {
                "id": item_id,
                "type": "tool_search_call",
                "call_id": part.call_id,
                "execution": "client",
                "arguments": decode_json(arguments_text(part).encode()),
                "status": "completed",
            }
        case Call(kind="custom"):
            return {
                "id": item_id,
                "type": "custom_tool_call",
                "call_id": part.call_id,
                "name": part.name,
                "input": arguments_text(part),
                "status": "completed",
            }
        case Call():
            called: JsonObject = {
                "id": item_id,
                "type": "function_call",
                "call_id": part.call_id,
                "name": part.name,
                "arguments": arguments_text(part),
                "status": "completed",
            }
            return {**called, "namespace": part.namespace} if part.namespace else called


def _empty_item(item: JsonObject) -> JsonObject:
    """The empty item at the start of a part."""
    empty: JsonObject = {"content": [], "summary": [], "arguments": "", "status": "in_progress"}
    return {key: empty.get(key, value) for key, value in item.items()}


def _text_content(text: str) -> JsonObject:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _summary_content(text: str) -> JsonObject:
    return {"type": "summary_text", "text": text}


def _response(answer: Answer, *, output: list[JsonObject], is_over: bool) -> JsonObject:
    why = _INCOMPLETE.get(answer.reason) if is_over else None
    status = "in_progress" if not is_over else "incomplete" if why else "completed"
    given = answer.request
    return {
        "id": f"resp_{answer.number}",
        "object": "response",
        "created_at": CREATED_AT,
        "status": status,
        "error": None,
        "incomplete_details": {"reason": why} if why else None,
        "instructions": given.get("instructions"),
        "metadata": {},
        "model": answer.model,
        "output": cast("list[JsonValue]", list(output)),
        "parallel_tool_calls": given.get("parallel_tool_calls", True),
        "temperature": given.get("temperature", 1.0),
        "tool_choice": given.get("tool_choice", "auto"),
        "tools": given.get("tools", []),
        "top_p": given.get("top_p", 1.0),
        "usage": _usage(answer.usage) if is_over else None,
    }


def _usage(usage: Usage) -> JsonObject:
    return {
        "input_tokens": usage.input_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens, "cache_write_tokens": 0},
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": usage.total_tokens,
    }
