"""The configured tools as a catalog: servers are started and asked, and what policy leaves."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import anyio

from nacre.cli.mcp_servers import survey_of
from nacre.cli.output import ExitStatus, UsageProblem, warn
from nacre.cli.runner import run_abortable
from nacre.cli.tools.agent_tools import open_agent_tools
from nacre.cli.tools.progress import waiting_for_servers
from nacre.errors import CatalogError, ToolAbortedError
from nacre.mcp_client import McpConnections
from nacre.tool_search.live_catalog import LiveCatalog

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from nacre.cli.tools.configured_tools import ConfiguredTools
    from nacre.hooks import Hooks
    from nacre.mcp_client import McpServer
    from nacre.run_context import AbortSignal
    from nacre.tool_search.live_catalog import Listing
    from nacre.tools import Tool


@dataclass(frozen=True, kw_only=True, slots=True)
class OpenCatalog:
    """What the servers that were asked have, and the tools that need none."""

    configured: ConfiguredTools
    listing: Listing
    live: LiveCatalog
    hooks: Hooks
    """Those of the plugins."""
    problems: dict[str, str]
    """By server or plugin, why its tools are missing."""
    notes: dict[str, str]
    """By server, what is wrong with single tools."""

    def warn_of_problems(self) -> None:
        for name, problem in self.problems.items():
            warn(f"the tools of {name} are missing: {problem}")
        for name, note in self.notes.items():
            warn(f"{name}: {note}")


def read_catalog(
    configured: ConfiguredTools, server_names: Sequence[str], *, timeout_seconds: float
) -> OpenCatalog | ExitStatus:
    """The catalog with these servers, which are stopped again; a signal ends it.

    Raises UsageProblem.
    """

    async def read(abort: AbortSignal) -> OpenCatalog | None:
        try:
            async with open_catalog(
                configured, server_names, timeout_seconds=timeout_seconds, abort=abort
            ) as catalog:
                return catalog
        except ToolAbortedError:
            return None

    catalog, status = run_abortable(read)
    if catalog is None or status is not None:
        return status or ExitStatus.INTERRUPTED
    return catalog


@asynccontextmanager
async def open_catalog(
    configured: ConfiguredTools,
    server_names: Sequence[str],
    *,
    timeout_seconds: float,
    abort: AbortSignal,
) -> AsyncGenerator[OpenCatalog]:
    """The catalog with these servers, which run until its end.

    Raises UsageProblem, and ToolAbortedError when it is aborted before it is there.
    """
    problems = configured.server_problems(server_names)
    configs = [
        config
        for config in configured.servers.configs
        if config.name in server_names and config.name not in problems
    ]
    async with (
        open_agent_tools(configured.parts, reserved_ids=configured.servers.names) as agent,
        McpConnections(configs) as connections,
    ):
        ready: list[McpServer] = []
        with abort.cancelling():
            ready = await _ready_servers(
                connections.servers(), problems, timeout_seconds=timeout_seconds
            )
        if abort.is_aborted:
            raise ToolAbortedError(abort.reason, tool_id="")
        notes = {server.name: server.status().problem for server in ready}
        try:
            tools = _join_tools(configured.own_tools, agent.tools)
            live = LiveCatalog(tools, servers=ready, policy=configured.policy)
        except CatalogError as error:
            raise UsageProblem(f"these tools cannot be used together: {error}") from None
        listing, unusable = await live.started_listing()
        yield OpenCatalog(
            configured=configured,
            listing=listing,
            live=live,
            hooks=agent.hooks,
            problems={**agent.problems, **problems, **unusable},
            notes={name: note for name, note in notes.items() if note},
        )


def _join_tools(own: Sequence[Tool], of_agent: Sequence[Tool]) -> list[Tool]:
    """What a command names goes before a tool of the agent with the same id."""
    own_ids = {tool.id for tool in own}
    hidden = [tool.id for tool in of_agent if tool.id in own_ids]
    if hidden:
        warn(f"--tools hides what the agent has as {', '.join(hidden)}")
    return [*(tool for tool in of_agent if tool.id not in own_ids), *own]


async def _ready_servers(
    servers: Sequence[McpServer], problems: dict[str, str], *, timeout_seconds: float
) -> list[McpServer]:
    """Those that answered; why the others did not goes into `problems`."""
    ready: dict[str, McpServer] = {}
    with waiting_for_servers([server.name for server in servers]) as answered:

        async def ask(server: McpServer) -> None:
            survey = await survey_of(server, timeout_seconds)
            if survey.state == "ready":
                ready[server.name] = server
            else:
                problems[server.name] = survey.problem
            answered(server.name)

        async with anyio.create_task_group() as tasks:
            for server in servers:
                tasks.start_soon(ask, server)
    return [server for server in servers if server.name in ready]
