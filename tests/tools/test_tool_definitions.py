"""Definitions in the shapes that providers take."""

import pytest

from nacre.json_types import JsonObject
from nacre.tools.definition import DefinitionFormat, format_definition

SCHEMA: JsonObject = {"type": "object", "properties": {"x": {"type": "string"}}}
OUTPUT: JsonObject = {"type": "object"}


@pytest.mark.parametrize(
    ("format", "expected"),
    [
        (
            "openai",
            {
                "type": "function",
                "function": {"name": "n", "description": "d", "parameters": SCHEMA},
            },
        ),
        (
            "openai-responses",
            {
                "type": "function",
                "name": "n",
                "description": "d",
                "parameters": SCHEMA,
                "strict": False,
            },
        ),
        ("anthropic", {"name": "n", "description": "d", "input_schema": SCHEMA}),
        (
            "mcp",
            {"name": "n", "description": "d", "inputSchema": SCHEMA, "outputSchema": OUTPUT},
        ),
    ],
)
def test_every_format_has_its_shape(format: DefinitionFormat, expected: JsonObject) -> None:
    assert format_definition("n", "d", SCHEMA, format, output_schema=OUTPUT) == expected


def test_without_an_output_schema_mcp_is_told_of_none() -> None:
    assert "outputSchema" not in format_definition("n", "d", SCHEMA, "mcp")


def test_what_an_sdk_does_to_a_definition_does_not_reach_the_tool() -> None:
    schema: JsonObject = {"type": "object", "properties": {}}
    shown = format_definition("n", "d", schema, "anthropic")["input_schema"]
    assert isinstance(shown, dict)
    properties = shown["properties"]
    assert isinstance(properties, dict)
    properties["injected"] = True
    assert schema == {"type": "object", "properties": {}}
