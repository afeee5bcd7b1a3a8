"""What programs ask of `MCP`: calls, headers and search."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from nacre.code_mode.mcp_listing import McpListing, declared_tool
from nacre.errors import ToolError, UnknownToolError
from nacre.tools import build_catalog
from nacre.tools.catalog_search.run_index import RunIndex
from nacre.tools.declarations import function_declaration

if TYPE_CHECKING:
    from nacre.code_mode.mcp_servers import McpServers
    from nacre.json_types import JsonObject, JsonValue
    from nacre.tools import Tool


class McpRequests:
    """Answers for one run. Every field of a payload may be anything."""

    def __init__(self, servers: McpServers) -> None:
        self.servers = servers
        self._index: tuple[tuple[McpListing, ...], RunIndex] | None = None

    async def tool_to_call(self, payload: JsonObject) -> tuple[Tool, JsonValue]:
        """The tool behind a call, and its input with the schema's defaults; raises ToolError."""
        tool = await self.servers.tool(
            _require_text(payload, "server"), _require_path(payload.get("path"))
        )
        return tool, with_defaults(tool.parameters, payload.get("input"))

    async def header(self, payload: JsonObject) -> JsonObject:
        """`MCP.$api()`, `MCP.<server>.$api()` and `MCP.<server>.$api(tool, {schema})`."""
        if payload.get("server") is None:
            return await self._all_servers()
        listing = await self.servers.listing(_require_text(payload, "server"))
        if payload.get("tool") is None:
            return {
                "server": listing.guest_name,
                "file": listing.file_path,
                "tools": list(listing.tools),
                "declaration": listing.declarations,
            }
        name = _require_text(payload, "tool")
        tool = await self.servers.tool(listing.guest_name, (_guest_name(listing, name),))
        return _tool_header(listing, name, tool, has_schema=payload.get("schema") is True)

    async def search(self, query: str, limit: int) -> list[JsonValue]:
        """What fits, best first; behind it, the servers that could not be searched, and why."""
        started = await self.servers.start_all()
        listings = tuple(each for each in started.values() if isinstance(each, McpListing))
        best = await self._index_of(listings).search(query, limit)
        names = {
            tool.id: (listing, name) for listing in listings for name, tool in listing.tools.items()
        }
        found: list[JsonValue] = [
            {
                "path": f"MCP.{names[entry.id][0].guest_name}.{names[entry.id][1]}",
                "description": entry.description,
                "server": names[entry.id][0].guest_name,
                "file": names[entry.id][0].file_path,
            }
            for entry in best
        ]
        problems: list[JsonValue] = [
            {"server": name, "problem": each.message}
            for name, each in started.items()
            if isinstance(each, ToolError)
        ]
        return found + problems

    def _index_of(self, listings: tuple[McpListing, ...]) -> RunIndex:
        if self._index is None or self._index[0] != listings:
            tools = [tool for listing in listings for tool in listing.tools.values()]
            self._index = (listings, RunIndex(build_catalog(tools), sources=("mcp",)))
        return self._index[1]

    async def _all_servers(self) -> JsonObject:
        known = await self.servers.listings()
        return {
            "servers": [
                {"server": name, "tools": len(listing.tools), "file": listing.file_path}
                if listing is not None
                else {"server": name, "tools": None, "note": "not started yet; ask it for $api()"}
                for name, listing in known.items()
            ]
        }


def with_defaults(schema: JsonObject, given: JsonValue) -> JsonValue:
    """The input with the defaults of members that it leaves out.

    A default of null is the server's to apply: many write it beside a type that refuses null.
    """
    if given is None:
        given = {}
    properties = schema.get("properties")
    if not isinstance(given, dict) or not isinstance(properties, dict):
        return given
    defaults: JsonObject = {
        name: member["default"]
        for name, member in properties.items()
        if name not in given and isinstance(member, dict) and member.get("default") is not None
    }
    return {**given, **defaults} if defaults else given


def _tool_header(listing: McpListing, name: str, tool: Tool, *, has_schema: bool) -> JsonObject:
    guest_name = _guest_name(listing, name)
    declared = declared_tool(guest_name, tool)
    header: JsonObject = {
        "server": listing.guest_name,
        "tool": guest_name,
        "name": tool.name,
        "description": tool.description,
        "declaration": function_declaration(
            declared.name,
            description=declared.description,
            parameters=declared.parameters,
            output_schema=declared.output_schema,
        ),
    }
    if has_schema:
        header["inputSchema"] = tool.parameters
        if tool.output_schema is not None:
            header["outputSchema"] = tool.output_schema
    return header


def _guest_name(listing: McpListing, name: str) -> str:
    """Programs may ask by the server's own name of a tool as well."""
    if name in listing.tools:
        return name
    return next((guest for guest, tool in listing.tools.items() if tool.name == name), name)


def _require_text(payload: JsonObject, key: str) -> str:
    value = payload.get(key)
    if not isinstance(value, str):
        raise UnknownToolError(f"MCP needs the {key} as text", tool_id="mcp")
    return value


def _require_path(value: JsonValue) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(segment, str) for segment in value):
        raise UnknownToolError("MCP needs the path of a function", tool_id="mcp")
    return tuple(cast("list[str]", value))
