"""The input that somebody has to judge."""

from typing import TYPE_CHECKING

import pytest

from nacre.cli.agent_approvals import format_input_lines
from nacre.display import UnshowableInputError

if TYPE_CHECKING:
    from nacre.json_types import JsonObject, JsonValue


def test_members_are_lines_and_texts_of_several_lines_stand_behind_a_bar() -> None:
    assert format_input_lines({"path": "a", "text": "one\n\ttwo", "more": {"n": [1]}}) == [
        '"path": "a"',
        '"text":',
        "  | one",
        "  |     two",
        '"more": {',
        '  "n": [',
        "    1",
        "  ]",
        "}",
    ]


def test_a_text_cannot_pretend_to_be_another_member() -> None:
    lines = format_input_lines({"text": 'a\n"path": "/etc/passwd"'})
    assert lines == ['"text":', "  | a", '  | "path": "/etc/passwd"']


def test_what_is_not_seen_is_spelled_out_in_keys_and_values() -> None:
    lines = format_input_lines({"a\u202e": "b\u200b", "c": "\x1b[1m\n\x9b"})
    assert lines == ['"a\\u202e": "b\\u200b"', '"c":', "  | \\u001b[1m", "  | \\u009b"]


def test_of_a_long_input_texts_are_cut_and_nothing_else() -> None:
    given: JsonObject = {"long": "x\n" * 5000, "short": "y"}
    lines = format_input_lines(given)
    assert len(lines) == 2
    assert '"short":"y"' in lines[0]
    assert "cut: 10000 characters in all" in lines[0]
    assert "`e` shows all of it" in lines[1]


def test_an_input_of_many_short_lines_is_shown_on_one() -> None:
    lines = format_input_lines({"text": "x\n" * 300})
    assert lines == ['{"text":"' + "x\\n" * 300 + '"}']


def test_an_input_of_too_many_parts_cannot_be_shown() -> None:
    deep: JsonValue = []
    for _ in range(200):
        deep = [deep]
    with pytest.raises(UnshowableInputError):
        format_input_lines({"deep": deep})


def test_no_input_is_said_to_be_none() -> None:
    assert format_input_lines({}) == ["(no input)"]
