"""The output of a command is kept within a limit, and gaps are reported."""

from hypothesis import given
from hypothesis import strategies as st

from nacre.tools.core.shell_process import CommandOutput, OutputPart


def test_output_that_fits_stays_whole() -> None:
    output = CommandOutput(10)
    output.add(b"hello")
    output.add(b"world")
    assert output.part(is_final=True) == OutputPart(
        text="helloworld", left_out_bytes=0, next_position=10
    )
    assert not output.is_full


def test_the_middle_is_left_out_and_the_gap_is_told() -> None:
    output = CommandOutput(10)
    for digit in b"0123456789abcdefghij":
        output.add(bytes([digit]))
    assert output.part(is_final=True) == OutputPart(
        text="01234\n[... 10 bytes left out ...]\nfghij", left_out_bytes=10, next_position=20
    )
    assert output.is_full


def test_a_reader_gets_what_came_since() -> None:
    output = CommandOutput(10)
    output.add(b"abc")
    first = output.part(is_final=False)
    output.add(b"def")
    assert output.part(first.next_position, is_final=False).text == "def"
    output.add(b"0" * 20)
    late = output.part(first.next_position, is_final=False)
    assert (late.text, late.left_out_bytes) == ("de\n[... 16 bytes left out ...]\n00000", 16)
    assert output.part(15, is_final=True).text == "\n[... 6 bytes left out ...]\n00000"
    assert output.part(99, is_final=True) == OutputPart(text="", left_out_bytes=0, next_position=26)


def test_half_a_character_waits_for_its_other_half() -> None:
    output = CommandOutput(100)
    snowman = "☃".encode()
    output.add(b"a" + snowman[:2])
    first = output.part(is_final=False)
    assert (first.text, first.next_position) == ("a", 1)
    output.add(snowman[2:])
    assert output.part(first.next_position, is_final=False).text == "☃"


def test_the_gap_cuts_no_character_in_two() -> None:
    output = CommandOutput(10)
    output.add("☃".encode() * 10)
    part = output.part(is_final=True)
    assert part == OutputPart(
        text="☃\n[... 24 bytes left out ...]\n☃", left_out_bytes=24, next_position=30
    )


@given(st.lists(st.binary(max_size=50), max_size=30), st.integers(2, 64), st.integers(0, 500))
def test_nothing_is_lost_unsaid(chunks: list[bytes], most_bytes: int, position: int) -> None:
    output = CommandOutput(most_bytes)
    for chunk in chunks:
        output.add(chunk)
    whole = b"".join(chunks)
    part = output.part(position, is_final=True)
    assert output.total_bytes == part.next_position == len(whole)
    if part.left_out_bytes == 0:
        assert part.text == whole[position:].decode(errors="replace")
    else:
        assert f"[... {part.left_out_bytes} bytes left out ...]" in part.text
        assert len(whole) > most_bytes
