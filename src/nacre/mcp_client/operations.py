"""What a server offers besides its tools, as tools: its resources and its prompts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from nacre.mcp_client.calls import execute_with
from nacre.mcp_client.tool_patterns import ToolPermissions
from nacre.tools.definition import Tool
from nacre.tools.tool_servers import OPERATION_MARK

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nacre.config.mcp_entry import McpServerConfig
    from nacre.json_types import JsonObject
    from nacre.mcp_client.calls import Ask
    from nacre.mcp_client.handshake import ServerFacts

_CURSOR: Final[JsonObject] = {
    "type": "object",
    "properties": {
        "cursor": {"type": "string", "description": "`nextCursor` of the page before"},
    },
}
_URI: Final[JsonObject] = {
    "type": "object",
    "properties": {"uri": {"type": "string"}},
    "required": ["uri"],
}
_PROMPT: Final[JsonObject] = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "arguments": {"type": "object", "additionalProperties": {"type": "string"}},
    },
    "required": ["name"],
}


@dataclass(frozen=True, kw_only=True, slots=True)
class _Operation:
    name: str
    capability: str
    method: str
    description: str
    parameters: JsonObject


_OPERATIONS: Final = (
    _Operation(
        name="resources.list",
        capability="resources",
        method="resources/list",
        description="List the resources of this server, a page at a time.",
        parameters=_CURSOR,
    ),
    _Operation(
        name="resources.read",
        capability="resources",
        method="resources/read",
        description="Read a resource of this server.",
        parameters=_URI,
    ),
    _Operation(
        name="resources.templates",
        capability="resources",
        method="resources/templates/list",
        description="List the templates for addresses of resources, a page at a time.",
        parameters=_CURSOR,
    ),
    _Operation(
        name="prompts.list",
        capability="prompts",
        method="prompts/list",
        description="List the prompts of this server, a page at a time.",
        parameters=_CURSOR,
    ),
    _Operation(
        name="prompts.get",
        capability="prompts",
        method="prompts/get",
        description="Get a prompt of this server, filled in.",
        parameters=_PROMPT,
    ),
)

OPERATION_NAMES: Final = tuple(f"{OPERATION_MARK}{operation.name}" for operation in _OPERATIONS)


def build_operations(facts: ServerFacts, config: McpServerConfig, ask: Ask) -> Iterator[Tool]:
    """Only what the server says it has and the configuration permits, as with tools."""
    permissions = ToolPermissions(config)
    for operation in _OPERATIONS:
        name = f"{OPERATION_MARK}{operation.name}"
        if not facts.has(operation.capability) or not permissions.permits(name):
            continue
        yield Tool(
            name=name,
            source="mcp",
            owner=config.name,
            description=operation.description,
            parameters=operation.parameters,
            needs_approval=permissions.approval_for(name),
            execute=execute_with(
                ask,
                config,
                tool_id=f"mcp:{config.name}:{name}",
                method=operation.method,
                params_from=dict,
            ),
        )
