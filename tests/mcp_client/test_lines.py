"""Lines out of chunks."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nacre.mcp_client.lines import EndlessLineError, LineSplitter, SkippedLine, answered_id


def lines_of(splitter: LineSplitter, *chunks: bytes) -> list[bytes | SkippedLine]:
    return [line for chunk in chunks for line in splitter.feed(chunk)]


@given(st.lists(st.binary(max_size=20), max_size=20))
def test_lines_do_not_depend_on_where_chunks_are_cut(chunks: list[bytes]) -> None:
    whole = b"".join(chunks)
    assert lines_of(LineSplitter(), *chunks) == whole.split(b"\n")[:-1]


def test_a_line_too_long_is_skipped_and_the_next_one_is_not() -> None:
    splitter = LineSplitter(max_bytes=1_000)
    long = b'{"jsonrpc":"2.0","id":12,"result":{"a":"' + b"x" * 2_000 + b'"}}'
    found = lines_of(splitter, long[:600], long[600:1_500], long[1_500:] + b"\nnext\n")
    assert found == [SkippedLine(size_bytes=len(long), answered_id=12), b"next"]


def test_a_line_without_end_is_an_error() -> None:
    splitter = LineSplitter(max_bytes=1_000)
    with pytest.raises(EndlessLineError):
        lines_of(splitter, *[b"x" * 500] * 100)


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
def test_the_id_of_an_answer_is_read_from_its_ends(line: bytes, expected: int | None) -> None:
    assert answered_id(line) == expected
