"""The protocol of a wire format, and shared helpers."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, Protocol

from nacre.json_types import encode_json

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from nacre.json_types import JsonObject, JsonValue
    from nacre.messages import Usage
    from nacre.testing.script import Call, EndReason, Fail, Spoken

CREATED_AT: Final = 1_767_225_600
"""The time of all responses, so that they are deterministic."""

Role = Literal["system", "user", "assistant", "tool"]

_WORD = re.compile(r"\s*\S+\s*|\s+")
_PIECE_CHARACTERS: Final = 24


@dataclass(frozen=True, kw_only=True, slots=True)
class SeenMessage:
    """A message of a request in any format: its role and its text."""

    role: Role
    text: str
    call_id: str = ""
    """The id of the call, for a tool result."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """The complete response of a turn; every call has an id."""

    number: int
    """The number of the request, for generated ids."""
    model: str
    spoken: Sequence[Spoken]
    reason: EndReason
    usage: Usage
    request: JsonObject


class AnswerStream(Protocol):
    """Writes one response as server-sent events, part by part."""

    def begin(self) -> Iterator[bytes]: ...

    def speak(self, part: Spoken) -> Iterator[bytes]: ...

    def fail(self, failure: Fail) -> Iterator[bytes]: ...

    def end(self) -> Iterator[bytes]: ...


class Wire(Protocol):
    """A wire format. It must accept any request, even an invalid one."""

    def messages(self, body: JsonObject) -> list[SeenMessage]: ...

    def tool_names(self, body: JsonObject) -> list[str]: ...

    def stream(self, answer: Answer) -> AnswerStream: ...

    def whole(self, answer: Answer) -> JsonObject:
        """The response without streaming; raises ValueError if the format does not support it."""
        ...

    def failure(self, failure: Fail) -> JsonObject: ...

    def call_id(self, number: int, index: int) -> str: ...


def words_of(text: str) -> list[str]:
    return _WORD.findall(text)


def arguments_text(call: Call) -> str:
    return (
        call.arguments if isinstance(call.arguments, str) else encode_json(call.arguments).decode()
    )


def pieces_of(text: str) -> list[str]:
    """Split arguments into small chunks at arbitrary positions, as models do."""
    return [text[at : at + _PIECE_CHARACTERS] for at in range(0, len(text), _PIECE_CHARACTERS)]


def data_event(data: JsonObject) -> bytes:
    return b"data: %b\n\n" % encode_json(data)


def named_event(data: JsonObject) -> bytes:
    """An event whose name is the `type` of its data."""
    return b"event: %b\n" % str(data["type"]).encode() + data_event(data)


def objects_in(value: JsonValue) -> list[JsonObject]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def text_in(content: JsonValue) -> str:
    """The text of a content, which is text or a list of blocks."""
    if isinstance(content, str):
        return content
    texts = [each.get("text") for each in objects_in(content)]
    return "\n".join(text for text in texts if isinstance(text, str))


def openai_failure(failure: Fail) -> JsonObject:
    kinds = {400: "invalid_request_error", 401: "authentication_error", 429: "rate_limit_error"}
    error: JsonObject = {
        "message": failure.message,
        "type": kinds.get(failure.status, "server_error"),
        "param": None,
        "code": failure.code or None,
    }
    return {"error": error}
