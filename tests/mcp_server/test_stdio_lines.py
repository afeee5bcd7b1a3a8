"""Lines of a wire, and what is kept of those that are too long."""

import tempfile

from nacre.mcp_server.stdio import EDGE_BYTES, MAX_LINE_BYTES, TooLongLine, read_lines


def lines_in(data: bytes) -> list[object]:
    with tempfile.TemporaryFile() as file:
        file.write(data)
        file.seek(0)
        return list(read_lines(file.fileno()))


def test_lines_are_split_and_empty_ones_left_out() -> None:
    assert lines_in(b"a\n\n  \nb\r\nc") == [b"a", b"b\r", b"c"]


def test_the_longest_line_is_read() -> None:
    longest = b"x" * MAX_LINE_BYTES
    assert lines_in(longest + b"\na") == [longest, b"a"]


def test_of_a_line_that_is_too_long_the_edges_are_kept() -> None:
    start, end = b"s" * EDGE_BYTES, b"e" * EDGE_BYTES
    data = start + b"x" * MAX_LINE_BYTES + end
    too_long = TooLongLine(start=start, end=end)
    assert lines_in(data + b"\na\n") == [too_long, b"a"]
    assert lines_in(data) == [too_long]
