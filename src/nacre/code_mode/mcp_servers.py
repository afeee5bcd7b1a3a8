"""The MCP servers of one run: what is listed of them by now, and the tool behind a call.

A server is started when a program first asks something of it. Until then programs know its name
alone, and whatever they call on it is resolved here, once it is listed. A server that is broken or
slow holds up only the programs that ask for it.
"""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING, Final

import anyio
import anyio.to_thread

from nacre.code_mode.mcp_listing import McpListing, list_server, server_guest_names
from nacre.errors import CatalogError, ToolError, ToolServerError, UnknownToolError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nacre.tools import Tool, ToolPolicy
    from nacre.tools.tool_servers import ToolServer

logger = logging.getLogger(__name__)

# Making names and declarations of more tools than these would hold up the event loop.
_MAX_ON_EVENT_LOOP: Final = 20
# How long a search waits for servers that are still starting.
_LISTING_SECONDS: Final = 5.0
_MAX_SHOWN: Final = 80
_MAX_SUGGESTIONS: Final = 3


class McpServers:
    """What a run may call through `MCP`: only tools that its policy permits."""

    def __init__(self, servers: Sequence[ToolServer], policy: ToolPolicy) -> None:
        self._policy = policy
        _refuse_equal_names(servers)
        names = server_guest_names([server.name for server in servers])
        self._servers = {names[server.name]: server for server in servers}
        self._listings: dict[str, tuple[Sequence[Tool], McpListing]] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """The names by which programs call the servers."""
        return tuple(self._servers)

    @property
    def tool_count(self) -> int:
        """How many tools are listed by now."""
        return sum(len(listing.tools) for _, listing in self._listings.values())

    async def listings(self) -> dict[str, McpListing | None]:
        """Every server with what is known of it by now; nothing is started."""
        return {name: await self._current_listing(name) for name in self._servers}

    async def start_all(self) -> dict[str, McpListing | ToolServerError]:
        """Every server, listed if it can be within a few seconds, else with what is wrong."""
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
        """What a program may call of this server, which is started for it; raises ToolError."""
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
        """The tool behind `MCP.<name>.<path>`; raises ToolError."""
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
        # One faulty server must not spoil a search in the others.
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
