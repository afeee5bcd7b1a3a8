"""Untrusted text and tool input for a person: nothing is hidden or pushed out of view."""

import pytest

from nacre.display import (
    MAX_SHOWN_CHARACTERS,
    UnshowableInputError,
    escape,
    escape_start,
    format_input,
    one_line,
    visible_lines,
)
from nacre.json_types import JsonObject, JsonValue

INVISIBLE = [
    "\x00", "\x1b", "\x7f", "\x9b", "\u00ad", "\u034f", "\u061c", "\u115f", "\u1160", "\u180e",
    "\u200b", "\u200d", "\u202e", "\u2066", "\u2800", "\u3164", "\ufe0f", "\ufeff", "\uffa0",
    "\ufff9", "\ud800", "\ue000", "\U000e0041", "\U000e0100", "\U0001d173",
]  # fmt: skip


@pytest.mark.parametrize("character", INVISIBLE, ids=ascii)
def test_what_is_not_seen_is_spelled_out_or_left_out(character: str) -> None:
    code = f"{ord(character):x}"
    spelled_out = f"\\u{code:0>4}" if len(code) <= 4 else f"\\u{{{code}}}"
    assert escape(f"a{character}b") == f"a{spelled_out}b"
    assert one_line(f"a{character}b", most_characters=10) == "ab"
    assert visible_lines(f"a{character}b") == "ab"


@pytest.mark.parametrize("character", ["\n", "\u2028", "\u00a0", "\u3000", "\u2003"], ids=ascii)
def test_a_space_that_is_not_the_plain_one_is_spelled_out_or_becomes_one(character: str) -> None:
    assert escape(f"a{character}b") == f"a\\u{ord(character):04x}b"
    assert one_line(f"a{character}{character}b", most_characters=10) == "a b"


def test_other_text_stays_as_it_is() -> None:
    text = "Grüße, 世界, שלום, नमस्ते 😀 ~"
    assert (escape(text), one_line(text, most_characters=99), visible_lines(text)) == (text,) * 3


def test_lines_stay_lines_however_they_end() -> None:
    assert visible_lines("a\r\nb\rc\u2028\td\x1b[31m") == "a\nb\nc\n\td[31m"


def test_what_is_cut_says_so() -> None:
    assert escape_start("x" * 20, most_characters=3) == "xxx… (cut: 20 characters in all)"
    assert escape_start("xxx", most_characters=3) == "xxx"
    assert one_line("x" * 20, most_characters=3) == "xxx…"
    assert one_line(" " * 100, most_characters=3) == "…"


def nested(levels: int) -> JsonValue:
    value: JsonValue = 1
    for _ in range(levels):
        value = [value]
    return value


def test_a_short_input_is_shown_as_it_is() -> None:
    assert format_input({"b": {"c": True}, "a": [1, None, "x"]}) == (
        '{"b":{"c":true},"a":[1,null,"x"]}'
    )


def test_short_members_come_before_long_ones() -> None:
    shown = format_input({"note": "x" * 3000, "force": True, "options": {"y": "z" * 50, "all": 1}})
    assert shown.startswith('{"force":true,"options":{"all":1,"y":"zz')


def test_a_long_text_hides_none_of_the_others_and_says_how_long_it_is() -> None:
    shown = format_input({"a": "x" * 1_000_000, "path": "/etc/passwd", "recursive": True})
    assert shown.startswith('{"recursive":true,"path":"/etc/passwd","a":"xxx')
    assert shown.endswith('x"… (cut: 1000000 characters in all)}')
    assert len(shown) <= MAX_SHOWN_CHARACTERS


def test_a_long_text_deep_inside_hides_none_of_the_others() -> None:
    shown = format_input({"a": {"pad": "x" * 10_000, "rest": ["y" * 10_000, {"force": True}]}})
    assert '"force":true' in shown
    assert shown.count("(cut: 10000 characters in all)") == 2


def test_a_text_that_pretends_to_be_cut_is_in_quotes() -> None:
    assert format_input("x… (cut: 9 characters in all)") == '"x… (cut: 9 characters in all)"'


def test_many_texts_share_what_can_be_shown() -> None:
    value: JsonObject = {f"key{number}": "x" * 100_000 for number in range(40)}
    shown = format_input(value)
    assert len(shown) <= MAX_SHOWN_CHARACTERS
    assert all(f'"{key}":"xxx' in shown for key in value)


def test_what_is_not_seen_is_spelled_out_in_keys_and_values() -> None:
    assert format_input({"a\u202e": "b\u200b\n\\u200b\ud800"}) == (
        r'{"a\u202e":"b\u200b\n\\u200b' + '\ufffd"}'
    )


def test_a_text_that_grows_when_it_is_spelled_out_still_fits() -> None:
    shown = format_input({"a": "\u202e" * 3000, "force": True})
    assert len(shown) <= MAX_SHOWN_CHARACTERS
    assert shown.startswith('{"force":true,')


EMPTY: JsonValue = []


@pytest.mark.parametrize(
    "value",
    [
        {"k" * 5000: 1},
        {f"key{number}": 1 for number in range(1000)},
        list(range(10_000)),
        [EMPTY] * 1_000_000,
        ["x" * 100] * 1500,
        nested(33),
        nested(5000),
        {"n": 10**4200},
    ],
    ids=["long-key", "keys", "numbers", "million", "texts", "deep", "deeper", "digits"],
)
def test_what_cannot_be_shown_in_full_is_refused(value: JsonValue) -> None:
    with pytest.raises(UnshowableInputError, match="split it over several calls"):
        format_input(value)
