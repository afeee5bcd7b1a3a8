"""The limit on the parts of one message."""

import pytest

from nacre.mcp_client.transport import MAX_MESSAGE_PARTS, PartCounter, has_too_many_parts

MESSAGE = rb'{"a[,": [1, {"b": "\",[{\\", "c": [{}, "\\\\\"{"]}]}'


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1_000])
def test_parts_are_counted_outside_of_texts_wherever_chunks_are_cut(size: int) -> None:
    counter = PartCounter()
    for start in range(0, len(MESSAGE), size):
        counter.feed(MESSAGE[start : start + size])
    assert counter.count == 8


def test_a_quote_in_another_line_hides_nothing() -> None:
    counter = PartCounter()
    for chunk in (b': comment "\n', b"data: [[", b'"\r', b"[,"):
        counter.feed(chunk)
    assert counter.count == 4


@pytest.mark.parametrize("part", [b"[", b"{", b",", b'"",'])
def test_a_message_may_have_so_many_parts_and_no_more(part: bytes) -> None:
    assert not has_too_many_parts(part * MAX_MESSAGE_PARTS)
    assert has_too_many_parts(part * (MAX_MESSAGE_PARTS + 1))


def test_brackets_in_a_text_are_no_parts() -> None:
    assert not has_too_many_parts(b'["' + b"[{," * MAX_MESSAGE_PARTS + b'"]')
