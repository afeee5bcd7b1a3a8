"""The tools that a server lists: page by page, and never without end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from nacre.json_types import JsonObject, JsonValue

    Request: TypeAlias = Callable[[str, JsonObject], Awaitable[JsonObject]]

MAX_TOOLS: Final = 10_000
_MAX_PAGES: Final = 1_000
_MAX_CURSOR_CHARACTERS: Final = 64 * 1024


@dataclass(frozen=True, kw_only=True, slots=True)
class RawListing:
    """Tools as the server sent them, and what was wrong with the list as a whole."""

    tools: Sequence[JsonValue]
    notes: tuple[str, ...] = ()


async def list_raw_tools(request: Request) -> RawListing:
    """Every page of `tools/list`, within bounds; raises what `request` raises."""
    found: list[JsonValue] = []
    cursors: set[str] = set()
    params: JsonObject = {}
    for _ in range(_MAX_PAGES):
        page = await request("tools/list", params)
        tools = page.get("tools")
        if not isinstance(tools, list):
            return RawListing(tools=found, notes=("a page of its list has no tools",))
        found.extend(tools)
        cursor = page.get("nextCursor")
        if cursor is None or cursor == "":
            return _truncate_listing(found)
        if not isinstance(cursor, str) or len(cursor) > _MAX_CURSOR_CHARACTERS:
            return RawListing(tools=found, notes=("its list goes on at what is no cursor",))
        if cursor in cursors:
            return RawListing(tools=found, notes=("its list goes on in a circle",))
        if len(found) >= MAX_TOOLS:
            return _truncate_listing(found, has_more=True)
        cursors.add(cursor)
        params = {"cursor": cursor}
    return RawListing(tools=found, notes=(f"its list has more than {_MAX_PAGES:,} pages",))


def _truncate_listing(found: list[JsonValue], *, has_more: bool = False) -> RawListing:
    if len(found) <= MAX_TOOLS and not has_more:
        return RawListing(tools=found)
    note = f"it lists more than {MAX_TOOLS:,} tools; the others are left out"
    return RawListing(tools=found[:MAX_TOOLS], notes=(note,))
