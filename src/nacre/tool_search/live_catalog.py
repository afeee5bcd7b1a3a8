"""What a run may find and call at this moment: its own tools, and what its servers list by now.

Every question is answered from what is there when it is asked: a tool that a server has taken back
since a search is not there any more.
"""

from __future__ import annotations

import logging
from collections import Counter
from functools import cached_property
from typing import TYPE_CHECKING, Final

import anyio
import anyio.to_thread

from nacre.errors import CatalogError, ToolError
from nacre.json_types import encode_json
from nacre.tools import (
    OPERATION_MARK,
    SOURCES,
    Catalog,
    CatalogEntry,
    NearestNames,
    RunIndex,
    Tool,
    ToolPolicy,
    ToolServer,
    build_catalog,
    effective_tools,
)

if TYPE_CHECKING:
    from collections.abc import Sequence


logger = logging.getLogger(__name__)

# How long a search waits for servers that are still starting.
_LISTING_SECONDS: Final = 5.0
_ID_STARTS: Final = tuple(f"{source}:" for source in SOURCES)
_MAX_SUGGESTIONS: Final = 3
# To measure tools and to compare their names takes about 10 us for each.
_MAX_ON_EVENT_LOOP: Final = 500
_MAX_NEAREST_CHARACTERS: Final = 200


class Listing:
    """The catalog as it was at one moment; never changes."""

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog
        self.index = RunIndex(catalog, sources=SOURCES)

    def resolve(self, id_or_name: str) -> CatalogEntry | None:
        """By its id, or by a name that one tool alone has."""
        entry = self.catalog.by_id(id_or_name)
        # Somebody's tool may be named like an id that this run may not use; it is not meant.
        if entry is not None or id_or_name.startswith(_ID_STARTS):
            return entry
        same_name = self._by_name.get(id_or_name, ())
        return same_name[0] if len(same_name) == 1 else None

    def nearest(self, id_or_name: str) -> list[str]:
        """Ids that a wrong id or name may have meant, likeliest first."""
        id_or_name = id_or_name[:_MAX_NEAREST_CHARACTERS]
        is_id = id_or_name.startswith(_ID_STARTS)
        name = id_or_name.split(":", 2)[-1] if is_id else id_or_name
        near = self._near_names.nearest(name, _MAX_SUGGESTIONS)
        return [entry.id for each in near for entry in self._by_name[each]][:_MAX_SUGGESTIONS]

    async def prepare_nearest(self) -> None:
        """Have `nearest` ready without holding up the event loop."""
        if self.catalog.size > _MAX_ON_EVENT_LOOP:
            await anyio.to_thread.run_sync(lambda: self._near_names)

    async def measure(self) -> None:
        """Have `direct_bytes` ready without holding up the event loop."""
        if self.catalog.size > _MAX_ON_EVENT_LOOP:
            await anyio.to_thread.run_sync(lambda: self.direct_bytes)

    @cached_property
    def direct_bytes(self) -> int:
        """What the definitions of all the tools would take if the model were shown them."""
        return sum(
            len(
                encode_json(
                    {
                        "type": "function",
                        "function": {
                            "name": entry.name,
                            "description": entry.description,
                            "parameters": entry.tool.parameters,
                        },
                    }
                )
            )
            for entry in self.catalog.entries
        )

    @cached_property
    def _by_name(self) -> dict[str, list[CatalogEntry]]:
        by_name: dict[str, list[CatalogEntry]] = {}
        for entry in self.catalog.entries:
            by_name.setdefault(entry.name, []).append(entry)
        return by_name

    @cached_property
    def _near_names(self) -> NearestNames:
        return NearestNames(self._by_name)


class LiveCatalog:
    """A run's tools, which are fixed, and its servers', which come and go; policy holds for both.

    Raises CatalogError for tools or servers that cannot be together.
    """

    def __init__(
        self, tools: Sequence[Tool], *, servers: Sequence[ToolServer], policy: ToolPolicy
    ) -> None:
        self._own = tuple(effective_tools(tools, policy))
        self._own_denied = {tool.id: tool for tool in tools if not policy.permits(tool)}
        self._servers = {server.name: server for server in servers}
        self._policy = policy
        _refuse_equal_names(self._own, servers)
        self._unusable: dict[str, str] = {}
        self._made_of: list[Sequence[Tool] | None] = []
        self._denied = self._own_denied
        self._listing = Listing(build_catalog(self._own))

    def listing(self) -> Listing:
        """What is there now; starts nothing."""
        lists = [server.known_tools for server in self._servers.values()]
        is_same = len(lists) == len(self._made_of) and all(
            now is before for now, before in zip(lists, self._made_of, strict=True)
        )
        if not is_same:
            self._listing = Listing(build_catalog([*self._own, *self._tools_of_servers()]))
            self._made_of = lists
        return self._listing

    async def started_listing(self) -> tuple[Listing, dict[str, str]]:
        """What is there once every server has started or had time to; and, by the name of the
        server, why the tools of one are not among them."""
        problems: dict[str, str] = {}

        async def start(server: ToolServer) -> None:
            with anyio.move_on_after(_LISTING_SECONDS) as scope:
                await _start(server, problems)
            if scope.cancelled_caught:
                problems[server.name] = "it has not answered yet; try again"

        async with anyio.create_task_group() as tasks:
            for server in self._servers.values():
                if server.known_tools is None:
                    tasks.start_soon(start, server)
        return self.listing(), {**self._unusable, **problems}

    async def listing_for(self, tool_id: str) -> tuple[Listing, str]:
        """What is there once the server of this tool has started, and why that failed if it did."""
        problems: dict[str, str] = {}
        server = self._server_of(tool_id)
        if server is not None and server.known_tools is None:
            await _start(server, problems)
        return self.listing(), "" if server is None else problems.get(server.name, "")

    def find_denied(self, tool_id: str) -> Tool | None:
        """A tool that policy keeps out of the listing. It can be neither found nor described; who
        calls it all the same should be told by whom it is refused."""
        self.listing()
        return self._denied.get(tool_id)

    def _server_of(self, tool_id: str) -> ToolServer | None:
        source, _, rest = tool_id.partition(":")
        return self._servers.get(rest.partition(":")[0]) if source == "mcp" else None

    def _tools_of_servers(self) -> list[Tool]:
        found: list[Tool] = []
        self._unusable, self._denied = {}, dict(self._own_denied)
        for server in self._servers.values():
            # Resources and prompts are no tools, though they are called like them.
            offered = [
                tool
                for tool in server.known_tools or ()
                if not tool.name.startswith(OPERATION_MARK)
            ]
            permitted = effective_tools(offered, self._policy)
            self._denied |= {tool.id: tool for tool in offered if not self._policy.permits(tool)}
            problem = _problem_with(server.name, offered)
            if problem:
                # One faulty server must not spoil a search in the others.
                self._unusable[server.name] = problem
            else:
                found += permitted
        return found


def _problem_with(server_name: str, tools: Sequence[Tool]) -> str:
    """Why the tools of a server cannot be in a catalog with those of others; empty if they can."""
    if any(tool.source != "mcp" or tool.owner != server_name for tool in tools):
        return "it lists tools that are not its own"
    try:
        build_catalog(tools)
    except CatalogError as error:
        return str(error)
    return ""


async def _start(server: ToolServer, problems: dict[str, str]) -> None:
    try:
        await server.tools()
    except ToolError as error:
        problems[server.name] = error.message
    except Exception as error:
        logger.exception("the MCP server %s could not be asked for its tools", server.name)
        problems[server.name] = f"it could not be asked for its tools: {error}"


def _refuse_equal_names(tools: Sequence[Tool], servers: Sequence[ToolServer]) -> None:
    counts = Counter(server.name for server in servers)
    counts.update({tool.owner for tool in tools if tool.source == "mcp"})
    twice = [name for name, count in counts.items() if count > 1]
    if twice:
        raise CatalogError(f"two MCP servers are named {twice[0]!r}; rename one, or leave one out")
