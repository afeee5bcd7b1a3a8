"""What of a configuration may be shown."""

import pytest

from nacre.json_types import JsonValue
from nacre.telemetry.config_redaction import redact_secrets


def shown(value: JsonValue) -> JsonValue:
    return redact_secrets({"x": value})["x"]


@pytest.mark.parametrize(
    "value",
    [
        "${NAME}",
        "Bearer ${NAME}",
        "${env:NAME}",
        "${file:/run/secrets/key}",
        "",
        None,
    ],
)
def test_references_are_shown_as_they_are(value: JsonValue) -> None:
    assert shown({"apiKey": value}) == {"apiKey": value}
    assert shown({"env": {"A": value}}) == {"env": {"A": value}}


@pytest.mark.parametrize(
    "value", ["plain", "${NAME:-plain}", "plain${NAME}", "Bearer plain", "$${NAME}", 1234, ["a"]]
)
def test_anything_else_under_the_name_of_a_secret_is_hidden(value: JsonValue) -> None:
    assert shown({"apiKey": value}) == {"apiKey": "***"}
    assert shown({"headers": {"X-Team": value}}) == {"headers": {"X-Team": "***"}}


@pytest.mark.parametrize("key", ["credentials", "apiKey", "env", "headers"])
def test_all_that_stands_in_an_object_of_secrets_is_hidden(key: str) -> None:
    given: JsonValue = {"user": "ada", "deep": {"pass": "abc"}, "from": "${NAME}", "on": True}
    hidden = {"user": "***", "deep": "***", "from": "${NAME}", "on": True}
    assert shown({key: given}) == {key: hidden}
    assert shown({key: "X-Team: abc"}) == {key: "***"}


def test_settings_about_logging_in_are_shown_without_the_token() -> None:
    hidden = {"auth": {"mode": "token", "token": "***"}}
    assert shown({"auth": {"mode": "token", "token": "abc"}}) == hidden
    named: JsonValue = {"ci": {"token": "abc", "scopes": ["read"]}}
    assert shown({"tokens": named}) == {"tokens": {"ci": {"token": "***", "scopes": ["read"]}}}
    assert shown({"tokens": {"ci": {"value": "abc"}}}) == {"tokens": {"ci": "***"}}


def test_numbers_of_tokens_and_files_with_secrets_are_no_secrets() -> None:
    settings: JsonValue = {
        "maxTokens": 5,
        "maxOutputTokens": 7,
        "tokenFile": "/t",
        "apiKeyFile": "k",
    }
    assert shown(settings) == settings


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("url", "https://x.example/mcp/abc?k=v", "https://x.example/***"),
        ("url", "https://x.example", "https://x.example"),
        ("baseUrl", "https://x.example/v1?key=abc", "https://x.example/v1?key=***"),
        ("baseUrl", "http://ada:abc@x.example/v1", "http://ada:***@x.example/v1"),
        ("baseUrl", "https://abc@x.example/v1", "https://***@x.example/v1"),
        ("url", "https://abc@x.example/mcp", "https://***@x.example/***"),
        ("url", "postgresql://ada:abc@db/nacre", "postgresql://ada:***@db/nacre"),
        # Not escaped, as it should have been.
        ("url", "postgresql://ada:a@b/c#d?e@db/nacre", "postgresql://ada:***@db/nacre"),
        ("url", "postgresql://ada@db/nacre", "postgresql://ada@db/nacre"),
        ("url", "sqlite:////var/nacre.db", "sqlite:////var/nacre.db"),
        ("instructions", "Use sk-abcdefghijklmnopqrstuv.", "Use ***."),
    ],
)
def test_secrets_inside_of_texts_are_hidden(key: str, value: str, expected: str) -> None:
    assert shown({key: value}) == {key: expected}


def test_what_stands_where_it_cannot_is_hidden_but_for_references() -> None:
    document: dict[str, object] = {
        "a": {
            "b": "abc",
            "c": ["abc"],
            "d": {"e": {"x": "abc", "y": True}},
            "f": "${NAME}",
            "g": [{"h": "abc"}],
        },
        "providers": "abc",
        "oauth": "abc",
    }
    misplaced = {"a.b", "a.c", "a.d", "a.f", "a.g[0].h"}
    assert redact_secrets(document, misplaced=misplaced) == {
        "a": {
            "b": "***",
            "c": "***",
            "d": {"e": {"x": "***", "y": True}},
            "f": "${NAME}",
            "g": [{"h": "***"}],
        },
        "providers": "***",
        "oauth": "***",
    }


def test_what_follows_a_secrets_flag_is_hidden() -> None:
    args: JsonValue = ["-y", "--api-key", "abc", "--token=abc", "--token", "${T}", "--port", "1"]
    hidden = ["-y", "--api-key", "***", "--token=***", "--token", "${T}", "--port", "1"]
    assert shown({"args": args}) == {"args": hidden}


def test_secrets_are_found_at_any_depth() -> None:
    deep: JsonValue = {"password": "abc"}
    for _ in range(30):
        deep = [{"a": deep}]
    assert "abc" not in str(shown(deep))
