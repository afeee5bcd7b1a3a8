"""Shared data in a worker."""

import json

import pytest

from nacre.sandbox.worker.vm import SharedParts


def parts_of(**texts: bytes) -> SharedParts:
    sizes = [(name, len(text)) for name, text in texts.items()]
    return SharedParts(sizes, b"".join(texts.values()))


def test_a_part_is_the_text_that_was_given() -> None:
    parts = parts_of(first=b"[1]", empty=b"", last=b'{"a" : 2}')
    assert [parts.text(name) for name in ("first", "empty", "last", "other")] == [
        b"[1]",
        b"",
        b'{"a" : 2}',
        None,
    ]


def test_a_member_is_found_by_its_own_key_only() -> None:
    parts = parts_of(names='{"a": "x", "é": [1, null], "__proto__": {"b": 2}}'.encode())
    assert parts.member("names", b"a") == b'"x"'
    assert json.loads(parts.member("names", "é".encode()) or b"") == [1, None]
    assert parts.member("names", b"__proto__") == b'{"b":2}'
    for key in ("", "b", "A", "constructor", "__class__", "get", "a\0"):
        assert parts.member("names", key.encode()) is None


def test_a_member_that_is_null_is_there() -> None:
    assert parts_of(names=b'{"a": null}').member("names", b"a") == b"null"


def test_a_key_that_is_half_a_surrogate_pair_finds_nothing() -> None:
    parts = parts_of(names='{"\N{REPLACEMENT CHARACTER}": 1}'.encode())
    assert parts.member("names", b"\xed\xa0\x80") is None


def test_a_member_with_half_a_surrogate_pair_stays_as_it_is() -> None:
    assert parts_of(names=b'{"a": "\\ud800"}').member("names", b"a") == b'"\\ud800"'


@pytest.mark.parametrize("text", [b"[1]", b'"a"', b"null", b"1"])
def test_a_part_that_is_no_object_has_no_members(text: bytes) -> None:
    assert parts_of(names=text).member("names", b"0") is None


def test_a_missing_part_has_no_members() -> None:
    assert parts_of().member("names", b"a") is None


def test_a_part_is_not_parsed_before_somebody_looks_into_it() -> None:
    parts = parts_of(names=b"not JSON at all")
    assert parts.text("names") == b"not JSON at all"
    with pytest.raises(ValueError, match="Expecting value"):
        parts.member("names", b"a")
