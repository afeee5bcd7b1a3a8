"""The catalog of a run with Tool Search: its own tools and those of its servers, which change.

Programs and structured tools both search, describe and call through `CatalogAccess`, so the same
rules apply to both.
"""

from __future__ import annotations

import math
from collections import Counter
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final

import anyio.lowlevel
import anyio.to_thread

from nacre.errors import CatalogError, ToolDeniedError, ToolError, ToolServerError, UnknownToolError
from nacre.json_types import encode_json
from nacre.tools import (
    SOURCES,
    Catalog,
    CatalogEntry,
    InvalidCall,
    NearestNames,
    RunIndex,
    ServerStarts,
    Tool,
    ToolPolicy,
    ToolServer,
    build_catalog,
    effective_tools,
    list_known_tools,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nacre.config import ToolSearchConfig
    from nacre.json_types import JsonObject, JsonValue
    from nacre.tools import CallSite, CatalogCounters, PauseClock, ToolExecutor


_ID_STARTS: Final = tuple(f"{source}:" for source in SOURCES)
_MAX_NEAREST: Final = 3
# Measuring or comparing one tool takes about 10 us.
_MAX_ON_EVENT_LOOP: Final = 500
_MAX_NEAREST_CHARACTERS: Final = 200
# Finding similar ids takes milliseconds, so a program that guesses in a loop stops getting them.
_MAX_SUGGESTIONS: Final = 20
_MAX_BLOCKED_CALLS: Final = 16
_MAX_SHOWN_ID: Final = 120
# Search results go into a prompt, and descriptions may be very long.
_MAX_DESCRIPTION: Final = 400
_MAX_LABEL: Final = 100
_MAX_PROBLEM: Final = 400


class Listing:
    """The catalog at one moment; immutable."""

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog
        self.index = RunIndex(catalog, sources=SOURCES)

    def resolve(self, id_or_name: str) -> CatalogEntry | None:
        """Find a tool by its id, or by a unique name."""
        entry = self.catalog.by_id(id_or_name)
        # A tool may have a name that looks like the id of a denied tool.
        if entry is not None or id_or_name.startswith(_ID_STARTS):
            return entry
        same_name = self._by_name.get(id_or_name, ())
        return same_name[0] if len(same_name) == 1 else None

    def nearest(self, id_or_name: str) -> list[str]:
        """The most similar ids for an unknown id or name."""
        id_or_name = id_or_name[:_MAX_NEAREST_CHARACTERS]
        is_id = id_or_name.startswith(_ID_STARTS)
        name = id_or_name.split(":", 2)[-1] if is_id else id_or_name
        near = self._near_names.nearest(name, _MAX_NEAREST)
        return [entry.id for each in near for entry in self._by_name[each]][:_MAX_NEAREST]

    async def prepare_nearest(self) -> None:
        """Prepare `nearest` without blocking the event loop."""
        if self.catalog.size > _MAX_ON_EVENT_LOOP:
            await anyio.to_thread.run_sync(lambda: self._near_names)

    async def measure(self) -> None:
        """Prepare `direct_bytes` without blocking the event loop."""
        if self.catalog.size > _MAX_ON_EVENT_LOOP:
            await anyio.to_thread.run_sync(lambda: self.direct_bytes)

    @cached_property
    def direct_bytes(self) -> int:
        """The size of the definitions of all tools, if the model saw them."""
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
    """The tools of a run and of its servers, whose tools may change; policy applies to both.

    Raises CatalogError for tools or servers that cannot be in one catalog.
    """

    def __init__(
        self, tools: Sequence[Tool], *, servers: Sequence[ToolServer], policy: ToolPolicy
    ) -> None:
        self._own = tuple(effective_tools(tools, policy))
        self._own_denied = {tool.id: tool for tool in tools if not policy.permits(tool)}
        self._servers = {server.name: server for server in servers}
        self._starts = ServerStarts(servers)
        self._policy = policy
        _refuse_equal_names(self._own, servers)
        self._unusable: dict[str, str] = {}
        self._made_of: list[Sequence[Tool] | None] = []
        self._denied = self._own_denied
        self._listing = Listing(build_catalog(self._own))

    def listing(self) -> Listing:
        """The current tools; starts no server."""
        lists = [server.known_tools for server in self._servers.values()]
        is_same = len(lists) == len(self._made_of) and all(
            now is before for now, before in zip(lists, self._made_of, strict=True)
        )
        if not is_same:
            self._listing = Listing(build_catalog([*self._own, *self._tools_of_servers()]))
            self._made_of = lists
        return self._listing

    @property
    def unusable(self) -> dict[str, str]:
        """Why the listed tools of a server are not in the catalog, by server."""
        self.listing()
        return self._unusable

    async def started_listing(
        self, pause_clock: PauseClock = nullcontext
    ) -> tuple[Listing, dict[str, str]]:
        """The tools that are known for a search, which starts all servers; and why the tools of
        some servers are missing."""
        problems = await self._starts.start_all(pause_clock)
        return self.listing(), {**self.unusable, **problems}

    async def listing_for(
        self, tool_id: str, pause_clock: PauseClock = nullcontext
    ) -> tuple[Listing, str]:
        """The tools after the server of this tool has listed its own, and its error."""
        server = self._server_of(tool_id)
        if server is not None and server.known_tools is None:
            try:
                await self._starts.start(server, pause_clock)
            except ToolError as error:
                return self.listing(), error.message
        return self.listing(), ""

    def find_denied(self, tool_id: str) -> Tool | None:
        """A tool that policy denies. It cannot be found or described, but a call of it gets the
        reason."""
        self.listing()
        return self._denied.get(tool_id)

    def _server_of(self, tool_id: str) -> ToolServer | None:
        source, _, rest = tool_id.partition(":")
        return self._servers.get(rest.partition(":")[0]) if source == "mcp" else None

    def _tools_of_servers(self) -> list[Tool]:
        found: list[Tool] = []
        self._unusable, self._denied = {}, dict(self._own_denied)
        for server in self._servers.values():
            # Resources and prompts are not tools for a search.
            offered = list_known_tools([server])
            permitted = effective_tools(offered, self._policy)
            self._denied |= {tool.id: tool for tool in offered if not self._policy.permits(tool)}
            problem = _problem_with(server.name, offered)
            if problem:
                # One faulty server must not break a search in the others.
                self._unusable[server.name] = problem
            else:
                found += permitted
        return found


def _problem_with(server_name: str, tools: Sequence[Tool]) -> str:
    """Why the tools of a server cannot be in the catalog; empty if they can."""
    if any(tool.source != "mcp" or tool.owner != server_name for tool in tools):
        return "it lists tools that are not its own"
    try:
        build_catalog(tools)
    except CatalogError as error:
        return str(error)
    return ""


def _refuse_equal_names(tools: Sequence[Tool], servers: Sequence[ToolServer]) -> None:
    counts = Counter(server.name for server in servers)
    counts.update({tool.owner for tool in tools if tool.source == "mcp"})
    twice = [name for name, count in counts.items() if count > 1]
    if twice:
        raise CatalogError(f"two MCP servers are named {twice[0]!r}; rename one, or leave one out")


@dataclass(frozen=True, kw_only=True, slots=True)
class RunTools:
    """Everything that the calls of one run share."""

    catalog: LiveCatalog
    executor: ToolExecutor
    counters: CatalogCounters
    config: ToolSearchConfig


@dataclass(frozen=True, kw_only=True, slots=True)
class BlockedCall:
    """A call that policy, a hook or a person denied."""

    tool_id: str
    code: str
    error: str

    def to_json(self) -> JsonObject:
        return {"toolId": self.tool_id, "code": self.code, "error": self.error}


class CatalogAccess:
    """Searches, describes and calls tools. Raises ToolError and InvalidCall."""

    def __init__(self, tools: RunTools) -> None:
        self._tools = tools
        self._suggestions_left = _MAX_SUGGESTIONS
        self.unavailable_servers: dict[str, str] = {}
        """The servers that could not be searched, and why."""
        self.blocked: list[BlockedCall] = []

    async def search(
        self, query: JsonValue, limit: JsonValue = None, *, pause_clock: PauseClock = nullcontext
    ) -> list[JsonValue]:
        """Return compact entries of the tools that match, best first."""
        if not isinstance(query, str):
            raise InvalidCall("a search needs a query as text")
        most = self._limit_from(limit)
        self._tools.counters.searches += 1
        # Many searches at once must not block the event loop.
        await anyio.lowlevel.checkpoint()
        listing, problems = await self._tools.catalog.started_listing(pause_clock)
        self._note_problems(problems)
        return [_compact(entry) for entry in await listing.index.search(query, most)]

    async def describe(
        self, tool_id: JsonValue, *, pause_clock: PauseClock = nullcontext
    ) -> JsonObject:
        """Return everything about one tool, with its input schema."""
        self._tools.counters.describes += 1
        entry = await self._entry_of(tool_id, pause_clock)
        described: JsonObject = {**entry.to_json(), "parameters": entry.tool.parameters}
        if entry.tool.output_schema is not None:
            described["outputSchema"] = entry.tool.output_schema
        return described

    async def call(
        self,
        tool_id: JsonValue,
        args: JsonValue,
        *,
        site: CallSite,
        pause_clock: PauseClock = nullcontext,
    ) -> JsonValue:
        """Call a tool and return its value."""
        tool = await self._tool_to_call(tool_id, pause_clock)
        try:
            return await self._tools.executor.call(tool, args, site=site)
        except ToolDeniedError as error:
            if len(self.blocked) < _MAX_BLOCKED_CALLS:
                self.blocked.append(
                    BlockedCall(tool_id=error.tool_id, code=error.code, error=error.message)
                )
            raise

    async def _tool_to_call(self, tool_id: JsonValue, pause_clock: PauseClock) -> Tool:
        try:
            entry = await self._entry_of(tool_id, pause_clock)
        except UnknownToolError:
            denied = self._tools.catalog.find_denied(str(tool_id))
            if denied is None:
                raise
            # The executor denies the call and records that.
            return denied
        self._tools.counters.count_call(entry.id)
        return entry.tool

    def _limit_from(self, limit: JsonValue) -> int:
        config = self._tools.config
        if limit is None:
            return config.search_default_limit
        if isinstance(limit, bool) or not isinstance(limit, int | float) or math.isnan(limit):
            raise InvalidCall(
                f"a search takes limit as a number from 1 to {config.max_search_limit}"
            )
        return int(max(1, min(limit, config.max_search_limit)))

    def _note_problems(self, problems: dict[str, str]) -> None:
        for server, problem in problems.items():
            self.unavailable_servers[server] = problem[:_MAX_PROBLEM]

    async def _entry_of(self, tool_id: JsonValue, pause_clock: PauseClock) -> CatalogEntry:
        if not isinstance(tool_id, str):
            raise InvalidCall("a tool is named by its id, as text")
        listing, problem = await self._tools.catalog.listing_for(tool_id, pause_clock)
        entry = listing.resolve(tool_id)
        if entry is not None:
            return entry
        if problem:
            raise ToolServerError(problem, server=tool_id.split(":", 2)[1])
        shown = tool_id if len(tool_id) <= _MAX_SHOWN_ID else f"{tool_id[:_MAX_SHOWN_ID]}…"
        nearest: list[str] = []
        if self._suggestions_left > 0:
            self._suggestions_left -= 1
            await listing.prepare_nearest()
            nearest = listing.nearest(tool_id)
        hint = f"; nearest: {', '.join(nearest)}" if nearest else ""
        raise UnknownToolError(
            f"no tool of this run has the id {shown!r}{hint}; search for what there is",
            tool_id=shown,
            nearest=nearest,
        )


def _compact(entry: CatalogEntry) -> JsonObject:
    """Shorten an entry to one line."""
    shown: JsonObject = {
        **entry.to_json(),
        "description": _line(entry.description, _MAX_DESCRIPTION),
    }
    if entry.label is not None:
        shown["label"] = _line(entry.label, _MAX_LABEL)
    return shown


def _line(text: str, most: int) -> str:
    # Truncate before splitting, since it may have megabytes.
    line = " ".join(text[: most * 2].split())
    return line if len(line) <= most and len(text) <= most * 2 else f"{line[:most]}…"
