"""Tool definitions in the formats of providers, and their digests."""

import gc
from dataclasses import replace

import pytest

from nacre.json_types import JsonObject, encode_json
from nacre.tools import definition
from nacre.tools.definition import (
    DefinitionFormat,
    Tool,
    ToolCall,
    definition_bytes,
    format_definition,
    format_tool,
    tool_digest,
)

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


async def nothing(input: dict[str, object], call: ToolCall) -> object:
    return None


def tool(description: str = "") -> Tool:
    return Tool(name="t", description=description, execute=nothing)


def test_tools_that_say_the_same_have_equal_digests() -> None:
    one, same = tool("a"), tool("a")
    assert tool_digest(one) == tool_digest(same) == tool_digest(one)


@pytest.mark.parametrize(
    "other",
    [
        replace(tool(), name="u"),
        replace(tool(), label="T"),
        replace(tool(), description="d"),
        replace(tool(), owner="o"),
        replace(tool(), source="client"),
        replace(tool(), parameters={"type": "object", "description": "d"}),
    ],
)
def test_a_tool_that_says_anything_else_has_another_digest(other: Tool) -> None:
    assert tool_digest(other) != tool_digest(tool())


def test_what_one_text_ends_with_is_not_what_the_next_begins_with() -> None:
    one, other = replace(tool("bc"), label="a"), replace(tool("c"), label="ab")
    assert tool_digest(one) != tool_digest(other)


def test_nothing_is_kept_of_a_tool_that_is_gone() -> None:
    kept = definition._MEASURED  # pyright: ignore[reportPrivateUsage]
    gc.collect()
    before = len(kept)
    mortal = tool("mortal")
    tool_digest(mortal)
    assert len(kept) == before + 1
    del mortal
    gc.collect()
    assert len(kept) == before


def test_the_size_of_a_definition_is_what_a_request_carries() -> None:
    labelled = Tool(name="a-name", label="a label", description="x" * 500, execute=nothing)
    for one in (tool(), tool(description='"quoted" ünïcode\n'), labelled):
        assert definition_bytes(one) == len(encode_json(format_tool(one, "openai")))
