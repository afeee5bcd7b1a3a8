"""Messages as JSON and back."""

from __future__ import annotations

import base64
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from nacre.errors import StorageError
from nacre.json_types import decode_json, encode_json
from nacre.messages import (
    FINISH_REASONS,
    AssistantMessage,
    ImagePart,
    InvalidImage,
    Message,
    MessageFormatError,
    SystemMessage,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolMessage,
    Usage,
    UserMessage,
    check_image,
    message_from_json,
    message_to_json,
    user_message,
)
from nacre.storage import open_store

if TYPE_CHECKING:
    from pathlib import Path

    from nacre.json_types import JsonValue

MESSAGES: list[Message] = [
    SystemMessage(text="a summary"),
    UserMessage(parts=()),
    UserMessage(
        parts=(
            TextPart(text="look", details={"cache": True}),
            ImagePart(url="data:image/png;base64,AAAA"),
        )
    ),
    AssistantMessage(
        parts=(
            ThinkingPart(text="hm", details={"signature": "abc", "nested": {"__proto__": [1]}}),
            TextPart(text="so", details={"id": "t1"}),
            ToolCallPart(
                call_id="c", name="exec", arguments="not JSON", details={"item": ["x", None, 1.5]}
            ),
        ),
        model="openai/gpt-6",
        usage=Usage(input_tokens=10**12, output_tokens=2, cached_tokens=1),
        finish_reason="tool_calls",
    ),
    *(AssistantMessage(parts=(), finish_reason=reason) for reason in FINISH_REASONS),
    ToolMessage(call_id="c", name="exec", content="\0 and \x1b", is_error=True),
    ToolMessage(
        call_id="c",
        name="exec",
        content="{}",
        images=(ImagePart(url="data:image/png;base64,AAAA"), ImagePart(url="data:,")),
    ),
]


@pytest.mark.parametrize("message", MESSAGES)
def test_a_message_comes_back_as_it_was(message: Message) -> None:
    assert message_from_json(decode_json(encode_json(message_to_json(message)))) == message


def base64_of(content: bytes) -> str:
    return base64.b64encode(content).decode()


@pytest.mark.parametrize(
    ("media_type", "content"),
    [
        ("image/png", b"\x89PNG\r\n\x1a\nrest"),
        ("image/jpeg", b"\xff\xd8\xff\xe0"),
        ("image/gif", b"GIF89a"),
        ("image/webp", b"RIFF\0\0\0\0WEBP"),
    ],
)
def test_an_image_of_a_known_type_is_a_data_url(media_type: str, content: bytes) -> None:
    data = base64_of(content)
    assert check_image(media_type, data) == ImagePart(url=f"data:{media_type};base64,{data}")


@pytest.mark.parametrize(
    ("media_type", "data", "problem"),
    [
        ("image/svg+xml", base64_of(b"<svg/>"), "its type is 'image/svg+xml'; known: image/png"),
        ("text/html\n" * 100, "", "its type is 'text/html"),
        ("image/png", base64_of(b"GIF89a"), "its data is not image/png"),
        ("image/webp", base64_of(b"RIFF\0\0\0\0WAVE"), "its data is not image/webp"),
        ("image/png", "", "its data is not image/png"),
        ("image/png", "iVBORw0KGgo", "its data is not base64"),
        ("image/png", "iVBO Rw0K", "its data is not base64"),
        ("image/png", "ü", "its data is not base64"),
        ("image/gif", base64_of(b"GIF89a".ljust(5_000_001)), "it has 5000001 bytes; the limit is"),
    ],
)
def test_an_image_that_providers_refuse_is_refused(
    media_type: str, data: str, problem: str
) -> None:
    with pytest.raises(InvalidImage) as caught:
        check_image(media_type, data)
    assert str(caught.value).startswith(problem)
    assert len(str(caught.value)) < 200


def test_the_form_on_disk_is_what_older_versions_wrote() -> None:
    call = ToolCallPart(call_id="c", name="exec", arguments="{}")
    assert message_to_json(AssistantMessage(parts=(call,), model="m")) == {
        "version": 1,
        "role": "assistant",
        "parts": [{"type": "toolCall", "callId": "c", "name": "exec", "arguments": "{}"}],
        "model": "m",
        "usage": {"inputTokens": 0, "outputTokens": 0, "cachedTokens": 0},
        "finishReason": "stop",
    }


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ({"version": 2, "role": "user", "parts": []}, "message version 2; this Nacre reads 1"),
        ({"version": "x" * 500, "role": "user"}, "message version 'xxx"),
        ({"role": "user", "parts": []}, "is not a message"),
        ({"version": 1, "role": "wizard"}, "is not a message"),
        ({"version": 1, "role": "system", "text": 5}, "is not a message"),
        ({"version": 1, "role": "user", "parts": [{"type": "video"}]}, "unknown type: 'video'"),
        ({"version": 1, "role": "user", "parts": [7]}, "unknown type: 7"),
        ({"version": 1, "role": "assistant", "parts": []}, "is not a valid assistant message"),
        (
            {"version": 1, "role": "user", "parts": [{"type": "text", "text": "", "details": 1}]},
            "`details` are not an object",
        ),
        ([], "is not a message"),
        (None, "is not a message"),
    ],
)
def test_what_is_no_message_is_refused(value: JsonValue, problem: str) -> None:
    with pytest.raises(MessageFormatError, match=problem) as caught:
        message_from_json(value)

    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ('{"version": 9, "role": "user"}', "it has the message version 9; this Nacre reads 1"),
        ('{"version": 1', r"\$ is not JSON"),
    ],
)
async def test_a_row_that_cannot_be_read_is_named(
    tmp_path: Path, content: str, problem: str
) -> None:
    path = tmp_path / "nacre.db"
    async with open_store(f"sqlite:///{path}") as store:
        await store.add_session(id="s", agent_id="main")
        await store.begin_turn(run_id="r", session_id="s", prompt=None, model="", surface="")
        said = [user_message("hi"), user_message("there")]
        await store.end_turn("r", status="completed", messages=said, usage=Usage())
        with closing(sqlite3.connect(path)) as connection:
            connection.execute(
                "UPDATE nacre_messages SET content = ? WHERE sequence = 1", [content]
            )
            connection.commit()

        with pytest.raises(StorageError, match=f"the message 1 of session 's' cannot .*{problem}"):
            await store.messages("s")
