"""What one call of the model does in the catalog: search, describe, call; and what it met there.

Programs and structured tools both come here, so both find the same and are refused the same.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import anyio.lowlevel

from nacre.errors import ToolDeniedError, ToolServerError, UnknownToolError
from nacre.tools import InvalidCall

if TYPE_CHECKING:
    from nacre.config import ToolSearchConfig
    from nacre.json_types import JsonObject, JsonValue
    from nacre.tool_search.live_catalog import LiveCatalog
    from nacre.tools import CallSite, CatalogCounters, CatalogEntry, Tool, ToolExecutor

# Finding the nearest ids costs milliseconds; a program that guesses in a loop gets them no more.
_MAX_SUGGESTIONS: Final = 20
_MAX_BLOCKED_CALLS: Final = 16
_MAX_SHOWN_ID: Final = 120
# What a search finds goes into a prompt; who provides a tool may write without end.
_MAX_DESCRIPTION: Final = 400
_MAX_LABEL: Final = 100
_MAX_PROBLEM: Final = 400


@dataclass(frozen=True, kw_only=True, slots=True)
class RunTools:
    """What all calls of one run share."""

    catalog: LiveCatalog
    executor: ToolExecutor
    counters: CatalogCounters
    config: ToolSearchConfig


@dataclass(frozen=True, kw_only=True, slots=True)
class BlockedCall:
    """A call that policy, a hook or a person refused."""

    tool_id: str
    code: str
    error: str

    def to_json(self) -> JsonObject:
        return {"toolId": self.tool_id, "code": self.code, "error": self.error}


class CatalogAccess:
    """Raises ToolError, and InvalidCall for arguments that are none; all may be hostile."""

    def __init__(self, tools: RunTools) -> None:
        self._tools = tools
        self._suggestions_left = _MAX_SUGGESTIONS
        self.unavailable_servers: dict[str, str] = {}
        """Servers that could not be searched, and why: what they have was not found."""
        self.blocked: list[BlockedCall] = []

    async def search(self, query: JsonValue, limit: JsonValue = None) -> list[JsonValue]:
        """Compact entries of what fits, best first."""
        if not isinstance(query, str):
            raise InvalidCall("a search needs a query as text")
        most = self._limit_from(limit)
        self._tools.counters.searches += 1
        # Many searches at once must leave the event loop some air.
        await anyio.lowlevel.checkpoint()
        listing, problems = await self._tools.catalog.started_listing()
        self._note_problems(problems)
        return [_compact(entry) for entry in await listing.index.search(query, most)]

    async def describe(self, tool_id: JsonValue) -> JsonObject:
        """All there is to know of one tool, its input schema included."""
        self._tools.counters.describes += 1
        entry = await self._entry_of(tool_id)
        described: JsonObject = {**entry.to_json(), "parameters": entry.tool.parameters}
        if entry.tool.output_schema is not None:
            described["outputSchema"] = entry.tool.output_schema
        return described

    async def call(self, tool_id: JsonValue, args: JsonValue, *, site: CallSite) -> JsonValue:
        """The value of a tool, called as any other."""
        tool = await self._tool_to_call(tool_id)
        try:
            return await self._tools.executor.call(tool, args, site=site)
        except ToolDeniedError as error:
            if len(self.blocked) < _MAX_BLOCKED_CALLS:
                self.blocked.append(
                    BlockedCall(tool_id=error.tool_id, code=error.code, error=error.message)
                )
            raise

    async def _tool_to_call(self, tool_id: JsonValue) -> Tool:
        try:
            entry = await self._entry_of(tool_id)
        except UnknownToolError:
            denied = self._tools.catalog.find_denied(str(tool_id))
            if denied is None:
                raise
            # The executor refuses it, and the record says so.
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

    async def _entry_of(self, tool_id: JsonValue) -> CatalogEntry:
        if not isinstance(tool_id, str):
            raise InvalidCall("a tool is named by its id, as text")
        listing, problem = await self._tools.catalog.listing_for(tool_id)
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
    """An entry on one line, however much there is to say."""
    shown: JsonObject = {
        **entry.to_json(),
        "description": _line(entry.description, _MAX_DESCRIPTION),
    }
    if entry.label is not None:
        shown["label"] = _line(entry.label, _MAX_LABEL)
    return shown


def _line(text: str, most: int) -> str:
    # Cut before it is split: it may be megabytes.
    line = " ".join(text[: most * 2].split())
    return line if len(line) <= most and len(text) <= most * 2 else f"{line[:most]}…"
