"""Values and errors as the model reads them."""

import pytest

from nacre.agent.tool_surface import CallResult, format_result, unknown_tool
from nacre.json_types import JsonValue


@pytest.mark.parametrize(
    ("value", "text"),
    [("plain", "plain"), ({"a": [1, "ä"]}, '{"a":[1,"ä"]}'), (None, "null"), ("", "")],
)
def test_text_stays_text_and_everything_else_is_json(value: JsonValue, text: str) -> None:
    assert format_result(value) == CallResult(content=text)


def test_half_a_surrogate_pair_does_not_break_the_request() -> None:
    assert format_result("a\ud800b").content.encode().decode() == "a?b"


def test_an_mcp_result_is_its_parts() -> None:
    value: JsonValue = {
        "content": [
            {"type": "text", "text": "one"},
            {"type": "image", "data": "QUJD", "mimeType": "image/png"},
        ],
        "isError": True,
    }
    assert format_result(value, is_mcp=True) == CallResult(
        content="one\n[image image/png, 3 bytes]", is_error=True
    )
    assert format_result(value).content.startswith('{"content"')


def test_an_mcp_result_without_parts_is_its_structure() -> None:
    value: JsonValue = {"content": [], "structuredContent": {"a": 1}}
    assert format_result(value, is_mcp=True).content == '{"a":1}'


def test_of_many_tools_only_some_are_named() -> None:
    text = unknown_tool("x" * 1000, [f"tool_{number}" for number in range(1000)]).content
    assert text.endswith("tool_39 and 960 more")
    assert len(text) < 1000
