"""The MCP servers of a run: which of them policy permits, and how searches start them.

A server that starts slowly must not delay a search. A search uses the tools that are known, waits
for the others once per run and for a short time, and names those that are missing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Final, TypeAlias

import anyio

from nacre.errors import ToolError, ToolServerError
from nacre.tools.definition import OPERATION_MARK

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from nacre.tools.definition import Tool, ToolServer
    from nacre.tools.executor import ToolPolicy

logger = logging.getLogger(__name__)

PauseClock: TypeAlias = Callable[[], AbstractContextManager[None]]
"""Stops the clock of a program while the host waits for a server."""

# How long the first search of a run waits for servers whose tools were never listed.
_FIRST_WAIT_SECONDS: Final = 3.0
# Long enough for a server that is known to fail, which answers at once.
_LATER_WAIT_SECONDS: Final = 0.05
# A server has its own, shorter limit for its start. This is for servers without one.
_MAX_PAUSE_SECONDS: Final = 60.0


def permitted_servers(
    servers: Iterable[ToolServer], policy: ToolPolicy, tools: Iterable[Tool]
) -> list[ToolServer]:
    """The servers of which the policy permits a tool, or may permit one that is not known yet.

    `tools` are the other tools of the run. A pattern that names one of them or its owner is not for
    a server whose tools are not known.
    """
    names = {name for tool in tools for name in (tool.name, tool.owner)}

    def is_permitted(server: ToolServer) -> bool:
        if server.known_tools:
            return any(map(policy.permits, server.known_tools))
        return policy.may_permit_server(server.name, other_names=names)

    return [server for server in servers if is_permitted(server)]


def list_known_tools(servers: Iterable[ToolServer]) -> list[Tool]:
    """The tools that the servers have listed so far, without their resources and prompts."""
    return [
        tool
        for server in servers
        for tool in server.known_tools or ()
        if not tool.name.startswith(OPERATION_MARK)
    ]


def describe_missing_start(server: ToolServer) -> str:
    """Why a server that has not listed its tools in time is missing."""
    return f"the MCP server {server.name} is still starting; try again later"


class ServerStarts:
    """Starts the servers of one run, and remembers which of them could not be started."""

    def __init__(self, servers: Iterable[ToolServer]) -> None:
        self._servers: Sequence[ToolServer] = tuple(servers)
        self._problems: dict[str, str] = {}
        self._wait_ends: float | None = None
        self._awaited: set[str] = set()

    async def start_all(self, pause_clock: PauseClock = nullcontext) -> dict[str, str]:
        """Start all servers for a search. Returns why tools are missing, by the name of the server.

        Only the first call of a run waits. `pause_clock` stops the clock of the program meanwhile.
        """
        unlisted = [server for server in self._servers if server.known_tools is None]
        for server in self._servers:
            if server.known_tools is not None:
                await refresh_server(server)
        if unlisted:
            with pause_clock(), anyio.move_on_after(self._seconds_to_wait()):
                async with anyio.create_task_group() as tasks:
                    for server in unlisted:
                        tasks.start_soon(self._start, server)
        return {
            server.name: self._problems.get(server.name) or describe_missing_start(server)
            for server in unlisted
            if server.known_tools is None
        }

    async def start(self, server: ToolServer, pause_clock: PauseClock = nullcontext) -> None:
        """Wait until a server has listed its tools. Raises ToolError.

        The first listing of a server does not count as time of the program.
        """
        if server.known_tools is None and server.name not in self._awaited:
            self._awaited.add(server.name)
            with pause_clock(), anyio.move_on_after(_MAX_PAUSE_SECONDS) as scope:
                await _list_tools(server)
            if not scope.cancelled_caught:
                return
        await _list_tools(server)

    def _seconds_to_wait(self) -> float:
        now = anyio.current_time()
        if self._wait_ends is None:
            self._wait_ends = now + _FIRST_WAIT_SECONDS
        return max(self._wait_ends - now, _LATER_WAIT_SECONDS)

    async def _start(self, server: ToolServer) -> None:
        try:
            await _list_tools(server)
            self._problems.pop(server.name, None)
        except ToolError as error:
            self._problems[server.name] = error.message


async def refresh_server(server: ToolServer) -> None:
    """Let a server whose tools are known from an earlier listing list them in the background."""
    try:
        # It starts at once. A caller that stops waiting does not stop it.
        with anyio.move_on_after(0):
            await server.tools()
    except Exception as error:
        # Its tools are known, so a call of one of them gets the reason.
        logger.debug("the tools of the MCP server %s are not refreshed: %s", server.name, error)


async def _list_tools(server: ToolServer) -> None:
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
