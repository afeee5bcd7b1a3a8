"""Servers that bring tools of their own: the seam between code mode and MCP connections."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from nacre.tools.definition import Tool

OPERATION_MARK: Final = "$"
"""Starts the names of what a server offers besides its tools, such as `$resources.read`. They are
tools as well, so that every call takes the one call path; no server can name a tool so."""


class ToolServer(Protocol):
    """An MCP server as programs see it: perhaps not started yet, perhaps broken."""

    @property
    def name(self) -> str:
        """Its name in the configuration; the owner of its tools."""
        ...

    @property
    def description(self) -> str:
        """What it says of itself; empty until it was asked."""
        ...

    @property
    def known_tools(self) -> Sequence[Tool] | None:
        """The tools as they were last listed, None before that. A new object when they change."""
        ...

    async def tools(self) -> Sequence[Tool]:
        """Start it and list its tools, if that is not done; raises ToolServerError."""
        ...


class ListedServer:
    """The tools of a server that somebody else looks after."""

    def __init__(self, name: str, tools: Sequence[Tool]) -> None:
        self.name = name
        self.description = ""
        self.known_tools: Sequence[Tool] = tools

    async def tools(self) -> Sequence[Tool]:
        return self.known_tools


def servers_of(tools: Iterable[Tool]) -> list[ToolServer]:
    """The MCP tools among these, by the server that owns them."""
    by_owner: dict[str, list[Tool]] = {}
    for tool in tools:
        if tool.source == "mcp":
            by_owner.setdefault(tool.owner, []).append(tool)
    return [ListedServer(owner, owned) for owner, owned in by_owner.items()]
