"""JSON values: what is JSON comes back unchanged, what is not is refused with its place."""

import json
import math
from collections import OrderedDict
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from decimal import Decimal
from enum import IntEnum, StrEnum

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nacre.json_types import (
    MAX_JSON_DEPTH,
    MAX_PARTS,
    JsonValue,
    NotJsonError,
    PartCounter,
    TooLargeError,
    decode_json,
    encode_json,
    has_too_many_parts,
)


class Colour(StrEnum):
    """A string that is not exactly `str`."""

    RED = "red"


class Level(IntEnum):
    """A number that is not exactly `int`."""

    HIGH = 3


class Opaque:
    """Nothing that JSON knows."""


def json_values(text: st.SearchStrategy[str]) -> st.SearchStrategy[JsonValue]:
    scalars = (
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    )
    return st.recursive(
        scalars | text,
        lambda inner: st.lists(inner) | st.dictionaries(text, inner),
        max_leaves=25,
    )


whole_text = st.text()
# Hypothesis leaves surrogates out of `text()`; guests and careless tools do not.
torn_text = st.text(
    alphabet=st.characters(min_codepoint=0xD7F0, max_codepoint=0xE010) | st.just("a")
)
torn_text |= st.text(alphabet=st.sampled_from(["\ud83d", "\ude00", '"', "\\", "é"]))


def nested_lists(depth: int) -> JsonValue:
    value: JsonValue = []
    for _ in range(depth - 1):
        value = [value]
    return value


def nested_objects(depth: int) -> JsonValue:
    value: JsonValue = {}
    for _ in range(depth - 1):
        value = {"a": value}
    return value


def wide_list_with(value: JsonValue) -> JsonValue:
    return [*([[]] * 1000), value]


@given(json_values(whole_text))
def test_a_value_survives_the_round_trip(value: JsonValue) -> None:
    assert decode_json(encode_json(value)) == value


@given(json_values(torn_text))
def test_what_was_encoded_is_utf8_that_decodes_and_encodes_to_the_same_bytes(
    value: JsonValue,
) -> None:
    encoded = encode_json(value)
    assert json.loads(encoded.decode("utf-8")) == decode_json(encoded)
    # Keys that differ only in torn halves may become one, so the second time is the fixed point.
    settled = encode_json(decode_json(encoded))
    assert encode_json(decode_json(settled)) == settled


@given(st.binary() | st.text(alphabet='[]{}",:\\u0dDeE+-.1NaInfity \ufeff').map(str.encode))
def test_whatever_decodes_can_be_encoded_and_nothing_else_is_raised(data: bytes) -> None:
    try:
        value = decode_json(data)
    except NotJsonError:
        return
    assert decode_json(encode_json(value)) == value


def test_encoding_is_compact_and_keeps_letters_as_they_are() -> None:
    assert encode_json({"a": [1, 2.5, None, True], "é": "😀"}) == (
        '{"a":[1,2.5,null,true],"é":"😀"}'.encode()
    )


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ((1, (2,)), b"[1,[2]]"),
        (OrderedDict({"b": 1, "a": 2}), b'{"b":1,"a":2}'),
        ([Colour.RED, Level.HIGH], b'["red",3]'),
        ({1: "a", False: "b", None: "c"}, b'{"1":"a","false":"b","null":"c"}'),
    ],
)
def test_near_relatives_of_json_types_are_written_as_their_relative(
    value: object, expected: bytes
) -> None:
    assert encode_json(value) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("a\ud800b", '"a\ufffdb"'),
        ("\udc00", '"\ufffd"'),
        ("\ud83d\ude00", '"😀"'),
        ("\ude00\ud83d", '"\ufffd\ufffd"'),
        ({"\ud800": ["x", "\udfff"]}, '{"\ufffd":["x","\ufffd"]}'),
    ],
)
def test_half_a_surrogate_pair_becomes_a_replacement_character(
    value: object, expected: str
) -> None:
    assert encode_json(value) == expected.encode()


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (rb'"\ud800"', "\ufffd"),
        (rb'"\uD83D\uDE00"', "😀"),
        (rb'["\\ud800"]', ["\\ud800"]),
        (rb'{"\udc00": 1}', {"\ufffd": 1}),
    ],
)
def test_half_a_surrogate_pair_is_decoded_to_a_replacement_character(
    data: bytes, expected: JsonValue
) -> None:
    assert decode_json(data) == expected


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (
            {"items": [0, 1, 2, {"when": datetime(2026, 1, 1, tzinfo=UTC)}]},
            "$.items[3].when is of type datetime.datetime, which JSON does not have",
        ),
        (b"raw", "$ is of type bytes, which JSON does not have"),
        ([{1, 2}], "$[0] is of type set, which JSON does not have"),
        ({"a b": Decimal(1)}, '$["a b"] is of type decimal.Decimal, which JSON does not have'),
        ({'"': {"": 1j}}, '$["\\""][""] is of type complex, which JSON does not have'),
        ({7: Opaque}, '$["7"] is of type type, which JSON does not have'),
        ({"x": {(1, 2): 3}}, "$.x has a key that is of type tuple, which JSON does not have"),
        ({"x": {math.inf: 3}}, "$.x has a key that is inf, which is not a JSON number"),
        ((1, math.nan), "$[1] is nan, which is not a JSON number"),
        ({"low": -math.inf}, "$.low is -inf, which is not a JSON number"),
        ({"k" * 70: b""}, f'$["{"k" * 60}\\u2026"] is of type bytes, which JSON does not have'),
    ],
)
def test_a_value_that_is_not_json_is_refused_with_its_path_and_type(
    value: object, message: str
) -> None:
    with pytest.raises(NotJsonError) as refusal:
        encode_json(value)
    assert str(refusal.value) == message


def test_the_first_of_several_offenders_is_named() -> None:
    with pytest.raises(NotJsonError) as refusal:
        encode_json({"a": [1, {"b": b""}], "c": b""})
    assert refusal.value.path == "$.a[1].b"


def test_an_integer_that_python_will_not_write_is_refused_with_its_path() -> None:
    with pytest.raises(NotJsonError, match=r"^\$\.n is too large an integer: "):
        encode_json({"n": 10**5000})
    with pytest.raises(NotJsonError, match=r"^\$ has a key that is too large an integer: "):
        encode_json({10**5000: "n"})


@pytest.mark.parametrize("nested", [nested_lists, nested_objects])
def test_the_greatest_depth_is_allowed_and_one_more_is_not(
    nested: Callable[[int], JsonValue],
) -> None:
    deepest = nested(MAX_JSON_DEPTH)
    too_deep = nested(MAX_JSON_DEPTH + 1)
    assert decode_json(encode_json(deepest)) == deepest
    with pytest.raises(NotJsonError, match="nested more than 256 levels deep"):
        encode_json(too_deep)
    with pytest.raises(NotJsonError, match="nested more than 256 levels deep"):
        decode_json(json.dumps(too_deep).encode())


def test_depth_is_counted_and_not_the_number_of_brackets() -> None:
    value = wide_list_with(nested_objects(MAX_JSON_DEPTH - 1))
    assert decode_json(encode_json(value)) == value
    assert decode_json(encode_json("[{" * 1000)) == "[{" * 1000
    with pytest.raises(NotJsonError, match="levels deep"):
        encode_json(wide_list_with(nested_objects(MAX_JSON_DEPTH)))


def test_a_depth_that_exhausts_the_stack_is_refused_and_not_a_recursion_error() -> None:
    with pytest.raises(NotJsonError, match="levels deep"):
        encode_json(nested_lists(200_000))
    with pytest.raises(NotJsonError, match="levels deep"):
        decode_json(b"[" * 200_000)


def test_a_value_that_holds_itself_is_refused() -> None:
    loop: dict[str, object] = {"name": "loop"}
    loop["children"] = [loop, loop]
    with pytest.raises(NotJsonError) as refusal:
        encode_json(loop)
    assert str(refusal.value) == "$.children[0] is a part of itself"


def test_a_wide_value_that_holds_itself_is_refused_without_walking_it_at_every_depth() -> None:
    visits = 0

    class Counted(list[object]):
        def __iter__(self) -> Iterator[object]:
            nonlocal visits
            visits += 1
            return super().__iter__()

    loop = Counted([1, 2])
    loop.append(loop)
    with pytest.raises(NotJsonError, match=r"^\$\[2\] is a part of itself$"):
        encode_json(loop)
    assert visits < 10


def test_a_value_that_stands_in_two_places_is_no_loop() -> None:
    shared: list[object] = []
    with pytest.raises(NotJsonError) as refusal:
        encode_json([shared, shared, {"again": shared}, b""])
    assert refusal.value.path == "$[3]"


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "Expecting value"),
        (b"{", "Expecting property name"),
        (b"[1] 2", "Extra data"),
        (b"'a'", "Expecting value"),
        (b'"\xff"', "can't decode byte 0xff"),
        (b'"\xed\xa0\x80"', "can't decode byte 0xed"),
        ('"a"'.encode("utf-16"), "can't decode byte"),
        (b"\xef\xbb\xbf1", "Expecting value"),
        (b"NaN", "NaN is not a JSON number"),
        (b"[-Infinity]", "-Infinity is not a JSON number"),
        (b"[1e999]", "the number 1e999 is too large"),
        (b"9" * 5000, "limit"),
    ],
)
def test_bytes_that_are_not_strict_json_are_refused(data: bytes, problem: str) -> None:
    with pytest.raises(NotJsonError, match=problem):
        decode_json(data)


def test_a_text_full_of_brackets_is_one_value_and_is_not_walked() -> None:
    walks = 0

    class Counted(str):
        def __iter__(self) -> Iterator[str]:
            nonlocal walks
            walks += 1
            return super().__iter__()

    text = "[{" * 5000
    assert decode_json(encode_json(Counted(text))) == text
    assert walks == 0


# More bytes than `json` decodes, so that the faster decoder is tried first.
PADDING = b" " * 70_000


@given(json_values(whole_text) | json_values(torn_text))
def test_the_decoder_of_large_texts_returns_the_same_values(value: JsonValue) -> None:
    for text in (encode_json(value), json.dumps(value).encode()):
        decoded = decode_json(text + PADDING)
        assert repr(decoded) == repr(decode_json(text))


@pytest.mark.parametrize(
    "data",
    [
        b"123456789012345678901234567890",
        b"18446744073709551616",
        b"-0",
        b"-0.0",
        b"1E5",
        b"1.7976931348623157e308",
        b"5e-324",
        b'{"a": 1, "a": 2}',
        rb'["\ud83d\ude00", "\ud83d", "a\ude00"]',
        b"null",
    ],
)
def test_the_decoder_of_large_texts_agrees_about_unusual_values(data: bytes) -> None:
    assert repr(decode_json(data + PADDING)) == repr(decode_json(data))


@pytest.mark.parametrize(
    "data",
    [
        b"NaN",
        b"[-Infinity]",
        b"[1e999]",
        b"9" * 5_000,
        b"[1,]",
        b"01",
        b'"\xff"',
        b'"\xed\xa0\x80"',
        b'"a\x01"',
        b"\xef\xbb\xbf1",
        b"[1] 2",
        b"[" * 257 + b"]" * 257,
        b"[" * 5_000 + b"]" * 5_000,
    ],
)
def test_the_decoder_of_large_texts_refuses_the_same(data: bytes) -> None:
    with pytest.raises(NotJsonError) as of_small:
        decode_json(data)
    with pytest.raises(NotJsonError) as of_large:
        decode_json(data + PADDING)
    assert str(of_large.value) == str(of_small.value)


MESSAGE = rb'{"a[,": [1, {"b": "\",[{\\", "c": [{}, "\\\\\"{"]}]}'


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1_000])
def test_parts_are_counted_outside_of_texts_wherever_chunks_are_cut(size: int) -> None:
    counter = PartCounter()
    for start in range(0, len(MESSAGE), size):
        counter.feed(MESSAGE[start : start + size])
    assert counter.count == 8


def test_a_quote_in_another_line_hides_no_parts() -> None:
    counter = PartCounter()
    for chunk in (b': comment "\n', b"data: [[", b'"\r', b"[,"):
        counter.feed(chunk)
    assert counter.count == 4


@pytest.mark.parametrize("part", [b"[", b"{", b",", b'"",'])
def test_a_text_may_have_so_many_parts_and_no_more(part: bytes) -> None:
    assert not has_too_many_parts(part * MAX_PARTS)
    assert has_too_many_parts(part * (MAX_PARTS + 1))


def test_brackets_in_a_text_are_no_parts() -> None:
    assert not has_too_many_parts(b'["' + b"[{," * MAX_PARTS + b'"]')


def test_a_text_with_too_many_parts_is_refused_before_it_is_decoded() -> None:
    # It is not JSON, which the decoder would say.
    with pytest.raises(TooLargeError, match=r"^\$ has more than 3 parts$"):
        decode_json(b"[,,,,", max_parts=3)
    assert decode_json(b"[1,2]", max_parts=2) == [1, 2]
