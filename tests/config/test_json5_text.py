"""Reading JSON5: what is taken, what is refused, and that no value shows in a refusal."""

import pytest

from nacre.config.json5 import parse_json5
from nacre.errors import ConfigError


def refusal_of(text: str) -> str:
    with pytest.raises(ConfigError) as refusal:
        parse_json5(text, path="nacre.json5")
    return str(refusal.value)


@pytest.mark.parametrize(
    "text",
    [
        '{"a": [1, "x"]}',
        '\ufeff{"a": [1, "x"]}',
        '\ufeff// note\n{"a": [1, "x",],}',
        "{a: [0x1, 'x'], /* two\nlines */}",
        '{\r\n  "a": [1, "x"] // note\r\n}',
    ],
)
def test_json_with_or_without_comments_has_the_same_value(text: str) -> None:
    assert parse_json5(text, path="nacre.json5") == {"a": [1, "x"]}


def test_a_refusal_names_the_file_and_the_place_but_no_value() -> None:
    text = '{\n  "token": "hunter2" "other": 1\n}'
    assert refusal_of(text) == '`nacre.json5` is not JSON5: line 2, column 22: unexpected """'


@pytest.mark.parametrize("text", ['{"a": 1, "a": 2}', "{a: 1, 'a': 2} // note"])
def test_a_key_that_stands_twice_is_refused(text: str) -> None:
    assert refusal_of(text) == '`nacre.json5` is not JSON5: duplicate key "a" found in object'


@pytest.mark.parametrize("text", ["[" * 100_000, "// note\n" + "[" * 10_000])
def test_what_is_nested_too_deep_is_refused(text: str) -> None:
    assert refusal_of(text) == "`nacre.json5` is nested too deep to be a configuration"


def test_a_huge_file_is_read_if_it_is_strict_json_and_refused_if_not() -> None:
    text = '{"a": "' + "x" * 1_000_000 + '"}'
    assert parse_json5(text, path="nacre.json5") == {"a": "x" * 1_000_000}
    assert "is not strict JSON and has 1000021 characters" in refusal_of(f"{text} // note :-)")
