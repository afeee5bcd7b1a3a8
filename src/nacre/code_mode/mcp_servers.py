"""The MCP servers of a run: their listings, the tool behind a call, and requests to `MCP`.

A server starts when a program first uses it. Until then programs know only its name, and calls are
resolved here when the server has listed its tools. A server that is broken or slow delays only the
programs that use it.
"""

from __future__ import annotations

from collections import Counter
from contextlib import nullcontext
from functools import cached_property, partial
from typing import TYPE_CHECKING, Final, cast

import anyio.to_thread

from nacre.errors import CatalogError, ToolError, ToolServerError, UnknownToolError
from nacre.json_types import encode_json
from nacre.lazy_dataclasses import dataclass
from nacre.tools import (
    OPERATION_MARK,
    NearestNames,
    ServerStarts,
    Tool,
    ToolPolicy,
    ToolServer,
    assign_guest_names,
    build_catalog,
    describe_missing_start,
    refresh_server,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from nacre.json_types import JsonObject, JsonValue
    from nacre.tools import DeclaredServer, DeclaredTool, PauseClock, RunIndex

    Path = tuple[str, ...]


_RESOURCES: Final = "resources"
_PROMPTS: Final = "prompts"
# The file of a server with this name would replace `mcp/index.d.ts`.
_TAKEN_SERVER_NAMES: Final = ("index",)
_OPERATION_STARTS: Final = tuple(f"{OPERATION_MARK}{group}." for group in (_RESOURCES, _PROMPTS))
# Above this number, names and declarations are made in a thread.
_MAX_ON_EVENT_LOOP: Final = 20
_MAX_SHOWN: Final = 80
_MAX_SUGGESTIONS: Final = 3
_MAX_LEFT_OUT: Final = 20


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
    left_out: tuple[str, ...]
    """Notes on tools that cannot be called."""
    near_names: NearestNames
    """Cached, since building it takes longer than a search."""
    size_bytes: int
    """The size of names and declarations."""

    @property
    def file_path(self) -> str:
        from nacre.tools import mcp_file_path

        return mcp_file_path(self.guest_name)

    def find(self, path: Path) -> Tool | None:
        if len(path) == 1:
            return self.tools.get(path[0])
        return self.operations.get(path)

    def declared_server(self) -> DeclaredServer:
        from nacre.tools import DeclaredServer

        return DeclaredServer(
            name=self.guest_name, description=self.description, tool_names=tuple(self.tools)
        )


def server_guest_names(server_names: Sequence[str]) -> dict[str, str]:
    """The names of all servers below `MCP`. They depend on each other."""
    return assign_guest_names(server_names, taken=_TAKEN_SERVER_NAMES)


def list_server(
    guest_name: str, description: str, tools: Sequence[Tool], *, left_out: Sequence[str] = ()
) -> McpListing:
    """Takes about half a millisecond per tool; may be called in a thread."""
    # Imported on first use, as elsewhere in this module: many runs have no servers.
    from nacre.tools import mcp_server_file

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
        left_out=left_out[:_MAX_LEFT_OUT],
    )
    return McpListing(
        guest_name=guest_name,
        description=description,
        tools=named,
        operations=operations,
        declarations=declarations,
        left_out=tuple(left_out[:_MAX_LEFT_OUT]),
        near_names=NearestNames(named),
        size_bytes=len(encode_json([list(named), declarations])),
    )


def _is_operation(tool: Tool) -> bool:
    """Any other name with the mark is the name of a tool."""
    return tool.name.startswith(_OPERATION_STARTS)


def declared_tool(name: str, tool: Tool) -> DeclaredTool:
    from nacre.tools import DeclaredTool

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
        names = server_guest_names([server.name for server in servers]) if servers else {}
        self._servers = {names[server.name]: server for server in servers}
        self._permitted: dict[str, tuple[Sequence[Tool], list[Tool]]] = {}
        self._listings: dict[str, tuple[Sequence[Tool], McpListing]] = {}

    @cached_property
    def _starts(self) -> ServerStarts:
        return ServerStarts(self._servers.values())

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the servers in programs. A server without a permitted tool has none."""
        return tuple(name for name in self._servers if not self._is_hidden(name))

    @property
    def tool_count(self) -> int:
        """The number of permitted tools that are known so far."""
        permitted = [tool for name in self._servers for tool in self._permitted_tools(name) or ()]
        return sum(not _is_operation(tool) for tool in permitted)

    async def listings(self) -> dict[str, McpListing | None]:
        """Every server with its listing, if it has one; starts none."""
        return {name: await self._current_listing(name) for name in self.names}

    async def start_all(
        self, pause_clock: PauseClock = nullcontext
    ) -> dict[str, McpListing | ToolServerError]:
        """Start every server for a search; returns its listing, or why it has none yet."""
        problems = await self._starts.start_all(pause_clock)
        listings = await self.listings()
        return {
            name: listing or _unavailable(self._servers[name], problems)
            for name, listing in listings.items()
        }

    async def refresh_named(self, code: str) -> None:
        """Refresh the cached listings of servers that a program names, in the background."""
        if "MCP" in code or "API" in code:
            for name, server in self._servers.items():
                if name in code and server.known_tools is not None:
                    await refresh_server(server)

    async def listing(self, name: str, pause_clock: PauseClock = nullcontext) -> McpListing:
        """The listing of a server, which is started if it has none. Raises ToolError."""
        server = self._server_named(name)
        if server.known_tools is None:
            await self._starts.start(server, pause_clock)
        else:
            await refresh_server(server)
        return await self._require_listing(name)

    async def tool(
        self, name: str, path: tuple[str, ...], pause_clock: PauseClock = nullcontext
    ) -> Tool:
        """Return the tool `MCP.<name>.<path>` as its server lists it now. Raises ToolError."""
        await self._starts.start(self._server_named(name), pause_clock)
        return self.find_tool(await self._require_listing(name), path)

    def known_tool(self, name: str, path: tuple[str, ...]) -> Tool | None:
        """Return the tool `MCP.<name>.<path>` as last listed, without asking its server."""
        _, listing = self._listings.get(name, (None, None))
        return listing.find(path) if listing is not None else None

    def find_tool(self, listing: McpListing, path: tuple[str, ...]) -> Tool:
        """Return the tool at a path of a listing. Raises UnknownToolError."""
        tool = listing.find(path)
        if tool is not None:
            return tool
        name, wanted = listing.guest_name, ".".join(path)[:_MAX_SHOWN]
        near = listing.near_names.nearest(wanted, _MAX_SUGGESTIONS)
        hint = f"; nearest: {', '.join(f'MCP.{name}.{found}' for found in near)}" if near else ""
        raise UnknownToolError(
            f"MCP.{name}.{wanted} does not exist{hint}; MCP.{name}.$api() shows what does",
            tool_id=f"mcp:{self._servers[name].name}:{wanted}",
            nearest=near,
        )

    def _server_named(self, name: str) -> ToolServer:
        if name in self.names:
            return self._servers[name]
        shown = name[:_MAX_SHOWN]
        raise UnknownToolError(
            f"there is no MCP server {shown!r}; there are: {', '.join(self.names) or 'none'}",
            tool_id=f"mcp:{shown}:*",
        )

    def _permitted_tools(self, name: str) -> list[Tool] | None:
        """The known tools that policy permits; None if no tools are known yet."""
        known = self._servers[name].known_tools
        if known is None:
            return None
        stored = self._permitted.get(name)
        if stored is None or stored[0] is not known:
            permitted = [tool for tool in known if self._policy.permits(tool)]
            self._permitted[name] = stored = (known, permitted)
        return stored[1]

    def _is_hidden(self, name: str) -> bool:
        return self._permitted_tools(name) == [] and bool(self._servers[name].known_tools)

    async def _require_listing(self, name: str) -> McpListing:
        listing = await self._current_listing(name)
        if listing is None:
            server = self._servers[name]
            raise ToolServerError(describe_missing_start(server), server=server.name)
        return listing

    async def _current_listing(self, name: str) -> McpListing | None:
        server, permitted = self._servers[name], self._permitted_tools(name)
        known = server.known_tools
        if known is None or permitted is None:
            return None
        stored = self._listings.get(name)
        if stored is not None and stored[0] is known:
            return stored[1]
        # Servers of other packages need not tell which tools they leave out.
        left_out: Sequence[str] = getattr(server, "left_out", ())
        build = partial(list_server, name, server.description, permitted, left_out=left_out)
        if len(permitted) <= _MAX_ON_EVENT_LOOP:
            listing = build()
        else:
            listing = await anyio.to_thread.run_sync(build)
        self._listings[name] = (known, listing)
        return listing


def _unavailable(server: ToolServer, problems: Mapping[str, str]) -> ToolServerError:
    problem = problems.get(server.name) or describe_missing_start(server)
    return ToolServerError(problem, server=server.name)


def _refuse_equal_names(servers: Sequence[ToolServer]) -> None:
    counts = Counter(server.name for server in servers)
    twice = [name for name, count in counts.items() if count > 1]
    if twice:
        raise CatalogError(f"two MCP servers are named {twice[0]!r}; rename one, or leave one out")


class McpRequests:
    """Answers the `MCP` requests of one run. Every field of a payload may be anything."""

    def __init__(self, servers: McpServers) -> None:
        self.servers = servers
        self._index: tuple[tuple[McpListing, ...], RunIndex] | None = None

    async def tool_to_call(
        self, payload: JsonObject, pause_clock: PauseClock = nullcontext
    ) -> tuple[Tool, JsonValue]:
        """The tool of a call, and its input with the defaults of the schema. Raises ToolError."""
        server, path = _require_text(payload, "server"), _require_path(payload.get("path"))
        tool = await self.servers.tool(server, path, pause_clock)
        return tool, with_defaults(tool.parameters, payload.get("input"))

    def known_tool(self, payload: JsonObject) -> Tool | None:
        """The tool of a call, if it is known without asking its server."""
        try:
            server, path = _require_text(payload, "server"), _require_path(payload.get("path"))
        except UnknownToolError:
            return None
        return self.servers.known_tool(server, path)

    async def header(
        self, payload: JsonObject, pause_clock: PauseClock = nullcontext
    ) -> JsonObject:
        """`MCP.$api()`, `MCP.<server>.$api()` and `MCP.<server>.$api(tool, {schema})`."""
        if payload.get("server") is None:
            return await self._all_servers()
        listing = await self.servers.listing(_require_text(payload, "server"), pause_clock)
        if payload.get("tool") is None:
            return {
                "server": listing.guest_name,
                "file": listing.file_path,
                "tools": list(listing.tools),
                **({"leftOut": list(listing.left_out)} if listing.left_out else {}),
                "declaration": listing.declarations,
            }
        name = _require_text(payload, "tool")
        tool = self.servers.find_tool(listing, (_guest_name(listing, name),))
        return _tool_header(listing, name, tool, has_schema=payload.get("schema") is True)

    async def search(
        self, query: str, limit: int, pause_clock: PauseClock = nullcontext
    ) -> list[JsonValue]:
        """Search the tools, best first; then list servers that could not be searched, and why."""
        started = await self.servers.start_all(pause_clock)
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
            from nacre.tools import RunIndex

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
    from nacre.tools import function_declaration

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
