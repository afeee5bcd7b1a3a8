"""Paths of settings, as people write them and as errors show them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nacre.config.setting_paths import (
    MISSING,
    Key,
    format_value,
    keys_from,
    path_from_keys,
    value_at,
)
from nacre.errors import ConfigError


@pytest.mark.parametrize(
    ("path", "keys"),
    [
        ("gateway", ("gateway",)),
        ("gateway.auth.token", ("gateway", "auth", "token")),
        ("agents.list[0].tools", ("agents", "list", 0, "tools")),
        ("a[0][12]", ("a", 0, 12)),
        ("models.providers.my-llm", ("models", "providers", "my-llm")),
        ('mcp.servers["my.own \\" server"].env', ("mcp", "servers", 'my.own " server', "env")),
        ('["$odd"].x', ("$odd", "x")),
    ],
)
def test_a_path_has_keys(path: str, keys: tuple[Key, ...]) -> None:
    assert keys_from(path) == keys


@pytest.mark.parametrize(
    "path", ["", ".", "a.", ".a", "a..b", "a[", "a[x]", "a[-1]", "a]b", 'a["x]', 'a["\\q"]', "a[1"]
)
def test_what_is_no_path_is_refused(path: str) -> None:
    with pytest.raises(ConfigError, match="is not the path of a setting; write it like"):
        keys_from(path)


@given(st.lists(st.one_of(st.text(), st.integers(0, 999_999_999)), min_size=1))
def test_every_path_leads_back_to_its_keys(keys: list[Key]) -> None:
    assert list(keys_from(path_from_keys(keys))) == keys


def test_a_value_is_found_or_missing() -> None:
    document = {"a": [{"b": None}, 7]}
    assert value_at(document, ("a", 0, "b")) is None
    assert value_at(document, ("a", 1)) == 7
    for keys in (("b",), ("a", 2), ("a", "0"), ("a", 1, "x"), ("a", 0, 0)):
        assert value_at(document, keys) is MISSING


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (5, "5"),
        ("ä" * 100, f'"{"ä" * 59}…'),
        ("https://ada:pass/word@x.example", '"https://***@x.example"'),
        (["https://token@x.example", "a@b"], '["https://***@x.example", "a@b"]'),
        (object(), "of type object"),
    ],
)
def test_a_value_is_shown_in_short_and_without_the_user_of_a_url(
    value: object, expected: str
) -> None:
    assert format_value(value) == expected
