"""The last lines of a process."""

from nacre.mcp_client.process import OutputTail


def test_only_the_last_lines_are_kept() -> None:
    tail = OutputTail()
    tail.add(b"".join(b"line %d\n" % number for number in range(100)))
    assert tail.lines == tuple(f"line {number}" for number in range(80, 100))


def test_a_line_may_come_in_pieces_and_need_not_end() -> None:
    tail = OutputTail()
    for piece in (b"first ", b"half\nsec", b"ond"):
        tail.add(piece)
    assert tail.lines == ("first half", "second")
    assert tail.last == "second"


def test_long_lines_and_odd_bytes_are_shown_short_and_plain() -> None:
    tail = OutputTail()
    tail.add(b"\x1b[31mred\x00\xff\n" + b"x" * 1_000_000 + b"\n" + b"y" * 1_000_000)
    red, long, open_line = tail.lines
    assert red == "[31mred \N{REPLACEMENT CHARACTER}"
    assert len(long) == len(open_line) == 400


def test_secrets_are_taken_out() -> None:
    tail = OutputTail(lambda line: line.replace("hunter2", "[redacted]"))
    tail.add(b"password hunter2\n")
    assert tail.lines == ("password [redacted]",)
