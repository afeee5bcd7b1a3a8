"""The MCP servers of a run: their listings, the tool behind a call, and requests to `MCP`.

A server starts when a program first uses it. Until then programs know only its name, and calls are
resolved here when the server has listed its tools. A server that is broken or slow delays only the
programs that use it.
"""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, cast

import anyio
import anyio.to_thread

from nacre.errors import CatalogError, ToolError, ToolServerError, UnknownToolError
from nacre.json_types import encode_json
from nacre.tools import (
    OPERATION_MARK,
    DeclaredServer,
    DeclaredTool,
    NearestNames,
    RunIndex,
    Tool,
    ToolPolicy,
    ToolServer,
    assign_guest_names,
    build_catalog,
    function_declaration,
    mcp_file_path,
    mcp_server_file,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from nacre.json_types import JsonObject, JsonValue

    Path = tuple[str, ...]

logger = logging.getLogger(__name__)


_RESOURCES: Final = "resources"
_PROMPTS: Final = "prompts"
# The file of a server with this name would replace `mcp/index.d.ts`.
_TAKEN_SERVER_NAMES: Final = ("index",)
_OPERATION_STARTS: Final = tuple(f"{OPERATION_MARK}{group}." for group in (_RESOURCES, _PROMPTS))
# Above this number, names and declarations are made in a thread.
_MAX_ON_EVENT_LOOP: Final = 20
# How long a search waits for servers that are still starting.
_LISTING_SECONDS: Final = 5.0
_MAX_SHOWN: Final = 80
_MAX_SUGGESTIONS: Final = 3


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class McpListing:
    """The tools of a server that a run may call, by the path below `MCP.<server>`."""

    guest_name: str
    description: str
    tools: Mapping[str, Tool]
    """By their names in programs."""
    operations: Mapping[Path, Tool]
    """Operations besides tools, such as ("resources", "read")."""
    declarations: str
    near_names: NearestNames
    """Cached, since building it takes longer than a search."""
    size_bytes: int
    """The size of names and declarations."""

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
    """The names of all servers below `MCP`. They depend on each other."""
    return assign_guest_names(server_names, taken=_TAKEN_SERVER_NAMES)


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
    """Any other name with the mark is the name of a tool."""
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
    names = assign_guest_names(list(by_name))
    return {names[name]: tool for name, tool in by_name.items()}


class McpServers:
    """The servers of a run, with the tools that its policy permits."""

    def __init__(self, servers: Sequence[ToolServer], policy: ToolPolicy) -> None:
        self._policy = policy
        _refuse_equal_names(servers)
        names = server_guest_names([server.name for server in servers])
        self._servers = {names[server.name]: server for server in servers}
        self._listings: dict[str, tuple[Sequence[Tool], McpListing]] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the servers in programs."""
        return tuple(self._servers)

    @property
    def tool_count(self) -> int:
        """The number of tools that are listed so far."""
        return sum(len(listing.tools) for _, listing in self._listings.values())

    async def listings(self) -> dict[str, McpListing | None]:
        """Every server with its listing, if it has one; starts none."""
        return {name: await self._current_listing(name) for name in self._servers}

    async def start_all(self) -> dict[str, McpListing | ToolServerError]:
        """Start every server; returns its listing, or its error after a few seconds."""
        found: dict[str, McpListing | ToolServerError] = {}

        async def start(name: str) -> None:
            try:
                with anyio.move_on_after(_LISTING_SECONDS):
                    found[name] = await self.listing(name)
            except ToolServerError as error:
                found[name] = error

        async with anyio.create_task_group() as tasks:
            for name in self._servers:
                tasks.start_soon(start, name)
        return {
            name: found.get(name) or _still_starting(server.name)
            for name, server in self._servers.items()
        }

    async def listing(self, name: str) -> McpListing:
        """Start a server and return its listing. Raises ToolError."""
        server = self._servers.get(name)
        if server is None:
            shown = name[:_MAX_SHOWN]
            raise UnknownToolError(
                f"there is no MCP server {shown!r}; there are: {', '.join(self.names) or 'none'}",
                tool_id=f"mcp:{shown}:*",
            )
        await _start(server)
        listed = await self._current_listing(name)
        if listed is None:
            raise _still_starting(server.name)
        return listed

    async def tool(self, name: str, path: tuple[str, ...]) -> Tool:
        """Return the tool `MCP.<name>.<path>`. Raises ToolError."""
        listing = await self.listing(name)
        tool = listing.find(path)
        if tool is not None:
            return tool
        wanted = ".".join(path)[:_MAX_SHOWN]
        near = listing.near_names.nearest(wanted, _MAX_SUGGESTIONS)
        hint = f"; nearest: {', '.join(f'MCP.{name}.{found}' for found in near)}" if near else ""
        raise UnknownToolError(
            f"MCP.{name}.{wanted} does not exist{hint}; MCP.{name}.$api() shows what does",
            tool_id=f"mcp:{self._servers[name].name}:{wanted}",
            nearest=near,
        )

    async def _current_listing(self, name: str) -> McpListing | None:
        server = self._servers[name]
        known = server.known_tools
        if known is None:
            return None
        kept = self._listings.get(name)
        if kept is not None and kept[0] is known:
            return kept[1]
        permitted = [tool for tool in known if self._policy.permits(tool)]
        if len(permitted) <= _MAX_ON_EVENT_LOOP:
            listing = list_server(name, server.description, permitted)
        else:
            listing = await anyio.to_thread.run_sync(
                list_server, name, server.description, permitted
            )
        self._listings[name] = (known, listing)
        return listing


async def _start(server: ToolServer) -> None:
    try:
        await server.tools()
    except ToolError:
        raise
    except Exception as error:
        # One faulty server must not break a search in the others.
        logger.exception("the MCP server %s could not be asked for its tools", server.name)
        raise ToolServerError(
            f"the MCP server {server.name} could not be asked for its tools: {error}",
            server=server.name,
        ) from error


def _refuse_equal_names(servers: Sequence[ToolServer]) -> None:
    counts = Counter(server.name for server in servers)
    twice = [name for name, count in counts.items() if count > 1]
    if twice:
        raise CatalogError(f"two MCP servers are named {twice[0]!r}; rename one, or leave one out")


def _still_starting(server_name: str) -> ToolServerError:
    return ToolServerError(
        f"the MCP server {server_name} has not answered yet; try again", server=server_name
    )


class McpRequests:
    """Answers the `MCP` requests of one run. Every field of a payload may be anything."""

    def __init__(self, servers: McpServers) -> None:
        self.servers = servers
        self._index: tuple[tuple[McpListing, ...], RunIndex] | None = None

    async def tool_to_call(self, payload: JsonObject) -> tuple[Tool, JsonValue]:
        """The tool of a call, and its input with the defaults of the schema. Raises ToolError."""
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
        """Search the tools, best first; then list servers that could not be searched, and why."""
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
    """Add the defaults of missing members to an input.

    A default of null is not added: many servers declare it for types that refuse null.
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
    """Programs may also use the original name of a tool."""
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
