"""What a server asks a person: its words are cleaned, and its names and values are not changed."""

import pytest

from nacre.json_types import JsonObject, JsonValue
from nacre.mcp_client.upstream import UpstreamRefusal
from nacre.mcp_server.upstream import clean_question


def form(name: str, schema: JsonObject) -> JsonObject:
    properties: JsonObject = {name: schema}
    return {"message": "m", "requestedSchema": {"type": "object", "properties": properties}}


def test_words_lose_what_nobody_sees() -> None:
    city: JsonObject = {
        "type": "string",
        "title": "Ci\u200bty",
        "description": "two\r\nlines\x07",
        "enum": ["a"],
        "enumNames": ["A\u202e"],
    }
    shown = clean_question({**form("city", city), "message": "\x1b[2JWhere?\nNow"})
    assert shown == {
        **form(
            "city",
            {
                "type": "string",
                "title": "City",
                "description": "two\nlines",
                "enum": ["a"],
                "enumNames": ["A"],
            },
        ),
        "message": "[2JWhere?\nNow",
    }


@pytest.mark.parametrize(
    "params",
    [
        form("ci\u200bty", {"type": "string"}),
        form("city", {"enum": ["a\x1b"]}),
        form("title", {"oneOf": [{"const": "\u202ea", "title": "a"}]}),
        {"mode": "url", "message": "m", "url": "https://a\u202e.example"},
    ],
)
def test_a_name_or_value_that_cannot_be_seen_is_refused(params: JsonObject) -> None:
    with pytest.raises(UpstreamRefusal, match="cannot be seen"):
        clean_question(params)


def test_a_default_of_several_lines_is_kept() -> None:
    params = form("text", {"type": "string", "default": "a\n\tb"})
    assert clean_question(params) == params


def test_a_question_that_is_too_long_or_too_deep_is_refused() -> None:
    with pytest.raises(UpstreamRefusal, match="the most is 65536"):
        clean_question({"message": "x" * 100_000})
    deep: JsonValue = 1
    for _ in range(20):
        deep = [deep]
    with pytest.raises(UpstreamRefusal, match="16 levels"):
        clean_question({"message": "m", "requestedSchema": deep})
