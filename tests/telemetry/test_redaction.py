"""What is kept of a value: no secrets, always JSON, and never more than fits."""

from pathlib import Path
from types import MappingProxyType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nacre.json_types import JsonObject, JsonValue, encode_json
from nacre.telemetry import Redaction

JSON_VALUES: st.SearchStrategy[JsonValue] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=100),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=100), inner),
)


def test_a_plain_value_is_kept_as_it_is_in_a_copy() -> None:
    value: JsonObject = {"title": "Fix it", "labels": ["a", "b"], "n": 1.5, "ok": True, "no": None}
    kept = Redaction().value(value)
    assert kept == value
    assert isinstance(kept, dict)
    assert kept["labels"] is not value["labels"]


def test_members_with_secret_names_are_hidden_at_any_level_whatever_they_hold() -> None:
    value: JsonObject = {
        "user": "ann",
        "auth": {"a": 1},
        "list": [{"apiKey": ["x"], "password": 1234}],
        "clientSecret": "",
    }
    assert Redaction().value(value) == {
        "user": "ann",
        "auth": "[redacted]",
        "list": [{"apiKey": "[redacted]", "password": "[redacted]"}],
        "clientSecret": "[redacted]",
    }


def test_whether_there_is_a_secret_and_how_many_tokens_there_are_is_kept() -> None:
    value: JsonObject = {"token": None, "password": True, "inputTokens": 512}
    assert Redaction().value(value) == value


def test_secrets_in_text_and_in_names_are_replaced() -> None:
    secret = "ghp_abcdefghijklmnopqrst"
    value: JsonObject = {"note": f"use {secret}", secret: 1}
    assert Redaction().value(value) == {"note": "use [redacted]", "[redacted]": 1}


def test_long_text_is_shortened_and_says_how_long_it_was() -> None:
    kept = Redaction(max_text_characters=10).text("x" * 1234)
    assert kept == "xxxxxxxxxx… [1,234 characters]"


def test_text_of_just_the_allowed_length_is_whole() -> None:
    assert Redaction(max_text_characters=10).text("0123456789") == "0123456789"


def test_a_secret_is_not_shown_in_part_where_text_is_cut() -> None:
    text = f"{'x' * 90} ghp_abcdefghijklmnopqrstuvwxyz {'y' * 5000}"
    kept = Redaction(max_text_characters=100).text(text)
    assert "ghp_" not in kept
    assert "abc" not in kept


def test_a_secret_behind_others_that_shrank_is_not_shown_in_part() -> None:
    secrets = " ".join(f"ghp_{letter * 296}" for letter in "abcdefgh")
    for limit in range(50, 400):
        assert "ghp_" not in Redaction(max_text_characters=limit).text(secrets)


def test_a_large_value_says_what_is_missing_on_every_level() -> None:
    value: JsonObject = {"rows": [*range(100)], "after": "x"}
    kept = Redaction(max_items=10).value(value)
    assert kept == {"rows": [*range(8), "[92 more items]"], "…": "[1 more members]"}


def test_much_text_in_small_parts_is_bounded_in_sum() -> None:
    value: JsonValue = ["y" * 100 for _ in range(1_000)]
    kept = Redaction(max_total_characters=1_000).value(value)
    assert isinstance(kept, list)
    assert kept[-1] == "[990 more items]"
    assert len(encode_json(kept)) < 2_000


def test_long_names_are_shortened_and_none_hides_another() -> None:
    value: JsonObject = {f"{'k' * 5_000}{number}": number for number in range(3)}
    kept = Redaction().value(value)
    assert isinstance(kept, dict)
    assert [*kept.values()] == [0, 1, 2]
    assert max(map(len, kept)) < 300


def test_depth_is_bounded_and_says_what_was_there() -> None:
    value: JsonValue = ["bottom"]
    for _ in range(5_000):
        value = [value]
    assert b"[list of 1 items, too deep to be kept]" in encode_json(Redaction().value(value))


def test_a_value_that_is_part_of_itself_ends() -> None:
    value: list[JsonValue] = []
    value.append(value)
    assert b"too deep" in encode_json(Redaction().value(value))


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        (float("nan"), "NaN"),
        (float("-inf"), "-Infinity"),
        pytest.param(1 << 20_000, "[integer of 20,001 bits]", id="a huge integer"),
        (b"abc", "[3 bytes]"),
        (Path("x"), f"[{type(Path('x')).__name__}]"),
        ((1, {2: 3}), [1, {"2": 3}]),
        (MappingProxyType({"password": "x", "a": 1}), {"password": "[redacted]", "a": 1}),
    ],
)
def test_what_json_cannot_hold_is_told_in_words(value: object, kept: JsonValue) -> None:
    assert Redaction().value(value) == kept


def test_inputs_that_are_not_kept_leave_a_note_of_kind_and_size() -> None:
    redaction = Redaction(keep_inputs=False)
    assert redaction.input({"a": 1, "b": 2}) == "[input not kept: object with 2 members]"
    assert redaction.input("hello") == "[input not kept: text of 5 characters]"
    assert redaction.value({"a": 1}) == {"a": 1}


def test_inputs_that_are_kept_are_redacted() -> None:
    assert Redaction().input({"password": "x", "a": 1}) == {"password": "[redacted]", "a": 1}


@given(JSON_VALUES)
def test_what_comes_out_is_always_json(value: JsonValue) -> None:
    encode_json(Redaction(max_items=20, max_total_characters=50).value(value))


@given(JSON_VALUES)
def test_what_was_redacted_stays_the_same_when_redacted_again(value: JsonValue) -> None:
    once = Redaction().value(value)
    assert encode_json(Redaction().value(once)) == encode_json(once)


def test_the_size_grows_with_what_is_kept() -> None:
    redaction = Redaction()
    _, small = redaction.sized_value({"a": 1})
    _, large = redaction.sized_value({"a": "x" * 2_000, "b": [*range(100)]})
    _, bounded = redaction.sized_value(["x" * 2_000] * 100_000)
    assert 0 < small < 500
    assert large > 2_000 + 100 * 50
    assert bounded < 200_000
