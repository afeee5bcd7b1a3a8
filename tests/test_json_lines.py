"""Lines of JSON-RPC messages, and the ids of messages that cannot be read."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nacre.json_lines import (
    EDGE_BYTES,
    EndlessLineError,
    Line,
    LineReader,
    LongLine,
    encode_line,
    read_edges,
    request_id,
    response_id,
)
from nacre.json_types import JsonValue


def read_all(reader: LineReader, *chunks: bytes) -> list[Line]:
    return [*(line for chunk in chunks for line in reader.feed(chunk)), *reader.finish()]


@given(st.lists(st.binary(max_size=20), max_size=20))
def test_lines_do_not_depend_on_where_chunks_are_cut(chunks: list[bytes]) -> None:
    whole = b"".join(chunks)
    expected = [line for line in whole.split(b"\n") if line.strip()]
    assert read_all(LineReader(max_bytes=1_000), *chunks) == expected


def test_blank_lines_are_skipped_and_the_last_line_needs_no_end() -> None:
    found = read_all(LineReader(max_bytes=1_000), b"a\n\n  \nb\r\nc")
    assert found == [b"a", b"b\r", b"c"]


def test_a_line_of_the_limit_is_read() -> None:
    longest = b"x" * 5_000
    assert read_all(LineReader(max_bytes=5_000), longest + b"\na") == [longest, b"a"]


@pytest.mark.parametrize("size", [1_500, 100_000])
def test_of_a_line_over_the_limit_the_ends_are_kept_and_the_next_line_is_read(size: int) -> None:
    line = b"s" * EDGE_BYTES + b"x" * 5_000 + b"e" * EDGE_BYTES
    data = line + b"\nnext\n" + line
    chunks = [data[start : start + size] for start in range(0, len(data), size)]
    long_line = LongLine(size_bytes=len(line), start=b"s" * EDGE_BYTES, end=b"e" * EDGE_BYTES)
    assert read_all(LineReader(max_bytes=5_000), *chunks) == [long_line, b"next", long_line]


def test_a_line_that_does_not_end_is_an_error() -> None:
    reader = LineReader(max_bytes=1_000, max_skipped_bytes=16_000)
    with pytest.raises(EndlessLineError):
        read_all(reader, *[b"x" * 500] * 100)


def test_a_message_is_written_as_one_line() -> None:
    assert encode_line({"a": "b\nc", "half": "\ud800"}) == b'{"a":"b\\nc","half":"\xef\xbf\xbd"}\n'


@pytest.mark.parametrize(
    ("start", "end", "found"),
    [
        (b'{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"a', b'b"}}', 7),
        (b' { "method" : "x" , "id" : "seven" , "params":{', b"}}", "seven"),
        (b'{"method":"tools/call","params":{"a', b'b"},"jsonrpc":"2.0","id":7}', 7),
        (b'{"method":"tools/call","params":{"a', b'b"}, "jsonrpc": "2.0", "id": 7 } \r', 7),
        (b'{"params":{"a', b'"},"jsonrpc":"2.0","method":"x","id":"a\\"b"}', 'a"b'),
        # A response to a request of this side.
        (b'{"jsonrpc":"2.0","id":7,"result":{"a', b'b"}}', None),
        # The id of something inside.
        (b'{"method":"x","params":{"a', b'b","id":7}}', None),
        (b'{"method":"x","params":{"id":7,"a', b'b"}}', None),
        (b'{"method":"x","params":{"a', b'\\",\\"id\\":7}', None),
        (b'{"jsonrpc":"2.0","id":true,"method":"x"', b"}", None),
        (b'{"jsonrpc":"2.0","id":%s,"method":"x"' % (b"9" * 500), b"}", None),
        (b"", b"", None),
        (b"\xff" * 1024, b"[" * 1024, None),
    ],
)
def test_the_id_of_a_request_is_found_at_the_ends(
    start: bytes, end: bytes, found: JsonValue
) -> None:
    assert request_id(read_edges(start, end)) == found


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (b'{"jsonrpc":"2.0","id":3,"result":{}}', 3),
        (b'{"result":{"id":9,"x":[1]},"jsonrpc":"2.0","id":4}', 4),
        (b'{"id" : 5 , "error":{}}', 5),
        (b'{"jsonrpc":"2.0","id":6,"method":"ping"}', None),
        (b'{"method":"ping","jsonrpc":"2.0","id":6}', None),
        (b'{"result":{"id":9}}', None),
        (b'{"id":"text","result":{}}', None),
        (b"plain text", None),
    ],
)
def test_the_id_of_a_response_is_found_at_the_ends(line: bytes, expected: int | None) -> None:
    assert response_id(read_edges(line, line)) == expected


@pytest.mark.parametrize(
    ("message", "of_request", "of_response"),
    [
        ({"method": 5, "id": 7}, 7, None),
        ({"method": "x", "id": "a"}, "a", None),
        ({"method": "x", "id": True}, None, None),
        ({"method": "x", "id": [1]}, None, None),
        ({"method": "x"}, None, None),
        ({"id": 7, "result": 5}, None, 7),
        ({"id": True, "result": 5}, None, None),
        ([], None, None),
    ],
)
def test_a_request_and_a_response_are_told_apart(
    message: JsonValue, of_request: JsonValue, of_response: JsonValue
) -> None:
    assert (request_id(message), response_id(message)) == (of_request, of_response)
