"""A tool's definition in the shapes that model providers and MCP clients take."""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Literal, get_args

if TYPE_CHECKING:
    from nacre.json_types import JsonObject
    from nacre.tools.definition import Tool

DefinitionFormat = Literal["openai", "openai-responses", "anthropic", "mcp"]


def definition_of(tool: Tool, format: DefinitionFormat) -> JsonObject:
    """A tool as the model sees it where nothing stands before it."""
    return definition(
        tool.name, tool.description, tool.parameters, format, output_schema=tool.output_schema
    )


def definition(
    name: str,
    description: str,
    parameters: JsonObject,
    format: DefinitionFormat,
    *,
    output_schema: JsonObject | None = None,
) -> JsonObject:
    """`openai` is the shape of chat completions. Only `mcp` has a place for an output schema."""
    # SDKs rewrite schemas in place; the tool keeps its own.
    schema = deepcopy(parameters)
    shown: JsonObject = {"name": name, "description": description}
    match format:
        case "openai":
            return {"type": "function", "function": {**shown, "parameters": schema}}
        case "openai-responses":
            # Strict, the default there, would make every optional parameter a required one.
            return {"type": "function", **shown, "parameters": schema, "strict": False}
        case "anthropic":
            return {**shown, "input_schema": schema}
        case "mcp":
            output: JsonObject = (
                {} if output_schema is None else {"outputSchema": deepcopy(output_schema)}
            )
            return {**shown, "inputSchema": schema, **output}
        case _:  # pyright: ignore[reportUnnecessaryComparison]
            allowed = ", ".join(get_args(DefinitionFormat))
            raise ValueError(f"format is {format!r}; allowed: {allowed}")
