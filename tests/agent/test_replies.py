"""What the user of a run sees: files by their content and within limits, and which texts."""

from __future__ import annotations

from base64 import b64encode
from typing import TYPE_CHECKING

import pytest

from nacre.agent.replies import ReplyEventLog, RunMedia, add_user_images, detect_media_type
from nacre.agent.run import AgentRun
from nacre.errors import MediaError
from nacre.messages import MAX_MEDIA_BYTES
from nacre.trajectory import RunEventLog

if TYPE_CHECKING:
    from nacre.json_types import JsonObject
    from nacre.storage import Store

PNG = b"\x89PNG\r\n\x1a\n"


@pytest.mark.parametrize(
    ("data", "media_type"),
    [
        (PNG, "image/png"),
        (b"\xff\xd8\xff\xe0", "image/jpeg"),
        (b"RIFF\x10\0\0\0WEBPVP8 ", "image/webp"),
        (b"RIFF\x10\0\0\0WAVEfmt ", "audio/wav"),
        (b"XXXX\x10\0\0\0WEBP", "application/octet-stream"),
        (b"\0\0\0\x20ftypisom", "video/mp4"),
        (b"%PDF-1.7", "application/pdf"),
        (b"<svg onload='alert(1)'/>", "text/plain"),
        ("größer\n".encode(), "text/plain"),
        (b"MZ\x90\0", "application/octet-stream"),
        (b"caf\xe9", "application/octet-stream"),
    ],
)
def test_the_type_follows_from_the_content_and_is_safe_to_show(
    data: bytes, media_type: str
) -> None:
    assert detect_media_type(data) == media_type


async def test_the_same_content_or_item_is_added_once(store: Store) -> None:
    await store.add_session(id="s", agent_id="main")
    events = RunEventLog()
    media = RunMedia(run_id="r", session_id="s", store=store, events=events)

    first = await media.add(PNG, name="one.png")
    again = await media.add(PNG, name="two.png", key="item_1")
    by_item = await media.add(PNG + b"later state of the item", name="one.png", key="item_1")
    other = await media.add(PNG + b"other", name="one.png")

    assert first == again == by_item
    assert media.records == (first, other)
    assert [event.data["id"] for event in events.events] == [first.id, other.id]
    assert await store.media.of_runs(["r"]) == [first, other]


async def test_what_is_empty_too_large_or_too_much_is_refused() -> None:
    media = RunMedia(run_id="r", session_id="s", store=None, events=RunEventLog())
    with pytest.raises(MediaError, match=r"a\.txt is empty"):
        await media.add(b"", name="a.txt")
    with pytest.raises(MediaError, match=f"may have {MAX_MEDIA_BYTES}"):
        await media.add(bytes(MAX_MEDIA_BYTES + 1), name="a.bin")
    for number in range(4):
        await media.add(bytes([number]) * MAX_MEDIA_BYTES, name="a.bin")
    with pytest.raises(MediaError, match="bytes together"):
        await media.add(b"one more", name="a.txt")

    small = RunMedia(run_id="r", session_id="s", store=None, events=RunEventLog())
    for number in range(50):
        await small.add(b"%d" % number, name="a.txt")
    with pytest.raises(MediaError, match="may send 50 files"):
        await small.add(b"51", name="a.txt")


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("/home/me/../a b.png", "a b.png"),
        ("C:\\images\\a.png", "a.png"),
        ("a\r\nSet-Cookie: x.png", "a__Set-Cookie: x.png"),
        ("\u202egnp.exe", "_gnp.exe"),
        ("/", "file"),
        (f"{'x' * 300}.png", f"{'x' * 196}.png"),
    ],
)
async def test_a_name_is_the_last_part_and_shows_what_it_is(given: str, name: str) -> None:
    media = RunMedia(run_id="r", session_id="s", store=None, events=RunEventLog())
    assert (await media.add(PNG, name=given)).name == name


async def test_images_that_a_tool_means_for_the_user_become_media(store: Store) -> None:
    await store.add_session(id="s", agent_id="main")
    run = AgentRun(id="r", session_id="s", agent_id="main", store=store)

    def image(data: bytes, *audience: str) -> JsonObject:
        encoded = b64encode(data).decode()
        part: JsonObject = {"type": "image", "mimeType": "image/png", "data": encoded}
        return {**part, "annotations": {"audience": [*audience]}} if audience else part

    result: JsonObject = {
        "content": [
            image(PNG + b"for both", "user", "assistant"),
            image(PNG + b"for the model", "assistant"),
            image(PNG + b"for anybody"),
            image(b"<script>", "user"),
            {"type": "image", "data": "no base64", "annotations": {"audience": ["user"]}},
            {"type": "text", "text": "two", "annotations": {"audience": ["user"]}},
        ]
    }
    await add_user_images(run, result)
    await add_user_images(run, ["not", "an", "object"])

    [record] = run.media_records
    assert (record.name, record.type) == ("image.png", "image/png")
    assert await store.media.find(record.id) == (record, PNG + b"for both")


def events_of(log: ReplyEventLog) -> list[tuple[str, JsonObject]]:
    return [(event.kind, event.data) for event in log.events]


def answer(log: ReplyEventLog, *pieces: str) -> None:
    for piece in pieces:
        log.add("text.delta", {"text": piece})
    log.add("message.completed", {"text": "".join(pieces), "model": "m"})


def test_text_is_passed_on_as_soon_as_it_is_no_silent_reply() -> None:
    log = ReplyEventLog()
    log.add("text.delta", {"text": "NO_"})
    assert events_of(log) == []
    log.add("text.delta", {"text": "WAY"})
    log.add("text.delta", {"text": " home"})
    assert [data["text"] for _, data in events_of(log)] == ["NO_WAY", " home"]


@pytest.mark.parametrize("pieces", [("NO_REPLY",), ("\n NO", "_RE", "PLY \n"), ("HEARTBEAT_OK",)])
def test_a_silent_reply_is_not_shown(pieces: tuple[str, ...]) -> None:
    log = ReplyEventLog()
    answer(log, *pieces)
    assert events_of(log) == [("message.completed", {"model": "m", "text": "", "isSilent": True})]
    assert log.visibility_of("".join(pieces)) == "silent"


def test_text_that_only_begins_like_a_silent_reply_is_shown_at_its_end() -> None:
    log = ReplyEventLog()
    answer(log, "NO")
    assert events_of(log) == [
        ("text.delta", {"text": "NO"}),
        ("message.completed", {"text": "NO", "model": "m"}),
    ]
    assert log.visibility_of("NO") == "visible"


def test_an_answer_that_repeats_a_sent_message_is_not_shown_again() -> None:
    log = ReplyEventLog()
    log.add("message.sent", {"text": "The build is green.\n"})
    answer(log, "The build", " is green.")
    answer(log, "The build", " is red.")
    assert [kind for kind, _ in events_of(log)] == [
        "message.sent",
        "message.completed",
        "text.delta",
        "message.completed",
    ]
    assert events_of(log)[2][1] == {"text": "The build is red."}


def test_a_private_answer_has_events_of_its_own() -> None:
    log = ReplyEventLog()
    log.is_private = True
    answer(log, "I will ", "tell nobody.")
    assert events_of(log) == [
        ("private.delta", {"text": "I will "}),
        ("private.delta", {"text": "tell nobody."}),
        ("message.completed", {"model": "m", "privateText": "I will tell nobody."}),
    ]
