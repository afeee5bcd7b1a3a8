"""Events of a stream, however it is cut into pieces."""

import pytest

from nacre.providers.http_client import SeenEvent, SseWatch

STREAM = (
    b": a comment\n\n"
    b'data: {"object":"chunk","n":1}\n\n'
    b'event: message_start\r\ndata: {"type":"x"}\r\n\r\n'
    b"data: [DONE]\n\n"
    b"data: one\ndata: two\n\n"
    b"data: never ended\n"
)


def events_in(stream: bytes, *, piece_bytes: int) -> list[SeenEvent]:
    watch = SseWatch()
    pieces = (stream[at : at + piece_bytes] for at in range(0, len(stream), piece_bytes))
    return [event for piece in pieces for event in watch.feed(piece)]


@pytest.mark.parametrize("piece_bytes", [1, 2, 3, 7, 1000])
def test_events_are_told_apart_in_pieces_of_any_size(piece_bytes: int) -> None:
    events = events_in(STREAM, piece_bytes=piece_bytes)

    assert [event.kind for event in events] == ["chunk", "message_start", "[DONE]", "one\ntwo"]
    assert events[0].data == {"object": "chunk", "n": 1}
    assert events[2].data == "[DONE]"
    assert events[3].size_bytes == len(b"data: one\ndata: two\n\n")


@pytest.mark.parametrize("piece_bytes", [1000, 100_000, 1_000_000])
def test_a_huge_event_is_counted_and_not_kept(piece_bytes: int) -> None:
    huge = b"data: %b\n\n" % (b"x" * 300_000)
    events = events_in(huge + b"data: 1\n\n", piece_bytes=piece_bytes)

    assert [event.size_bytes for event in events] == [len(huge), len(b"data: 1\n\n")]
    assert len(str(events[0].data)) < 100_000
    assert events[1].data == 1
