"""One listed MCP server as programs see it: names to call by, and declarations to read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from nacre.json_types import encode_json
from nacre.tools.declarations import (
    DeclaredServer,
    DeclaredTool,
    guest_names,
    mcp_file_path,
    mcp_server_file,
)
from nacre.tools.nearest_names import NearestNames
from nacre.tools.tool_servers import OPERATION_MARK

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from nacre.tools import Tool

    Path = tuple[str, ...]

_RESOURCES: Final = "resources"
_PROMPTS: Final = "prompts"
# The file of a server of this name would stand in the place of `mcp/index.d.ts`.
_TAKEN_SERVER_NAMES: Final = ("index",)
_OPERATION_STARTS: Final = tuple(f"{OPERATION_MARK}{group}." for group in (_RESOURCES, _PROMPTS))


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class McpListing:
    """What a run may call of a server, by the path below `MCP.<server>`."""

    guest_name: str
    description: str
    tools: Mapping[str, Tool]
    """By the name that programs call it by."""
    operations: Mapping[Path, Tool]
    """What a server offers besides tools, such as ("resources", "read")."""
    declarations: str
    near_names: NearestNames
    """Kept, as making it takes longer than asking it."""
    size_bytes: int
    """What names and declarations take."""

    @property
    def file_path(self) -> str:
        return mcp_file_path(self.guest_name)

    def find(self, path: Path) -> Tool | None:
        if len(path) == 1:
            return self.tools.get(path[0])
        return self.operations.get(path)

    def declared_server(self) -> DeclaredServer:
        return DeclaredServer(
            name=self.guest_name, description=self.description, tool_names=tuple(self.tools)
        )


def server_guest_names(server_names: Sequence[str]) -> dict[str, str]:
    """The names below `MCP` of all servers that a program sees: one depends on those beside it."""
    return guest_names(server_names, taken=_TAKEN_SERVER_NAMES)


def list_server(guest_name: str, description: str, tools: Sequence[Tool]) -> McpListing:
    """Takes about half a millisecond per tool; may be called in a thread."""
    named = _by_guest_name(tool for tool in tools if not _is_operation(tool))
    operations = {
        tuple(tool.name.removeprefix(OPERATION_MARK).split(".")): tool
        for tool in tools
        if _is_operation(tool)
    }
    offered = {path[0] for path in operations}
    declarations = mcp_server_file(
        guest_name,
        [declared_tool(name, tool) for name, tool in named.items()],
        has_resources=_RESOURCES in offered,
        has_prompts=_PROMPTS in offered,
    )
    return McpListing(
        guest_name=guest_name,
        description=description,
        tools=named,
        operations=operations,
        declarations=declarations,
        near_names=NearestNames(named),
        size_bytes=len(encode_json([list(named), declarations])),
    )


def _is_operation(tool: Tool) -> bool:
    """Any other name with the mark is a tool's, if somebody gave it one."""
    return tool.name.startswith(_OPERATION_STARTS)


def declared_tool(name: str, tool: Tool) -> DeclaredTool:
    return DeclaredTool(
        name=name,
        description=tool.description,
        parameters=tool.parameters,
        output_schema=tool.output_schema,
    )


def _by_guest_name(tools: Iterable[Tool]) -> dict[str, Tool]:
    by_name = {tool.name: tool for tool in tools}
    names = guest_names(list(by_name))
    return {names[name]: tool for name, tool in by_name.items()}
