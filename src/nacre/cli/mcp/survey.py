"""What is found out about MCP servers by starting them, all at once."""

from __future__ import annotations

import gc
import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Literal

import anyio

from nacre.cli.mcp.sources import NO_SERVERS
from nacre.cli.output import STOP_SIGNALS, ExitStatus, count_text, errors_are_on_terminal, say, warn
from nacre.errors import ToolServerError
from nacre.mcp_client import McpConnections
from nacre.tools.tool_servers import OPERATION_MARK

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, Awaitable, Callable, Sequence
    from signal import Signals

    from nacre.cli.mcp.sources import ConfiguredServer, ConfiguredServers
    from nacre.config.mcp_server_config import McpServerConfig
    from nacre.mcp_client import McpServer
    from nacre.tools.definition import Tool

SurveyState = Literal["ready", "broken", "disabled"]


@dataclass(frozen=True, kw_only=True, slots=True)
class ServerSurvey:
    """One server as it answered, or did not."""

    name: str
    state: SurveyState
    tools: tuple[Tool, ...] = ()
    """What its `tools/list` names; not the resources and prompts it may have besides."""
    all_tools: tuple[Tool, ...] = ()
    """The same, and the operations on resources and prompts."""
    listed_bytes: int = 0
    """What its own list of tools takes as compact JSON."""
    version: str = ""
    problem: str = ""
    wall_ms: float = 0.0


def ask_servers(
    configured: ConfiguredServers, *, timeout_seconds: float
) -> list[ServerSurvey] | ExitStatus:
    """Start every server that is not switched off, ask it for its tools, and stop it again.

    One that has not answered after `timeout_seconds` is broken. A signal ends it all: then the
    result is what to exit with.
    """
    found = {server.name: _survey_unstarted(server) for server in configured.servers}
    is_shown = errors_are_on_terminal()

    def note(survey: ServerSurvey) -> None:
        found[survey.name] = survey
        if is_shown:
            say(_progress_text(survey))

    if not configured.servers:
        warn(NO_SERVERS)
    asked = [config for config in configured.configs if not config.is_disabled]
    if asked and is_shown:
        say(f"starting {count_text(len(asked), 'server')}")
    gc.enable()
    status = anyio.run(_until_signal, partial(_ask_all, asked, timeout_seconds, note))
    return list(found.values()) if status is None else status


async def _ask_all(
    configs: Sequence[McpServerConfig],
    timeout_seconds: float,
    note: Callable[[ServerSurvey], None],
) -> None:
    async def ask(server: McpServer) -> None:
        note(await survey_of(server, timeout_seconds))

    async with McpConnections(configs) as connections, anyio.create_task_group() as tasks:
        for server in connections.servers():
            tasks.start_soon(ask, server)


async def _until_signal(work: Callable[[], Awaitable[None]]) -> ExitStatus | None:
    """Do the work; if a signal ends it first, then what to exit with, after its clean-up."""
    stopped_by: Signals | None = None

    async def stop_at(signals: AsyncIterable[Signals], scope: anyio.CancelScope) -> None:
        nonlocal stopped_by
        async for number in signals:
            stopped_by = number
            scope.cancel()

    with anyio.open_signal_receiver(*STOP_SIGNALS) as signals:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(stop_at, signals, tasks.cancel_scope)
            await work()
            tasks.cancel_scope.cancel()
    return None if stopped_by is None else ExitStatus(128 + stopped_by)


def _survey_unstarted(server: ConfiguredServer) -> ServerSurvey:
    if server.is_disabled:
        return ServerSurvey(name=server.name, state="disabled")
    return ServerSurvey(name=server.name, state="broken", problem=server.problem)


def _progress_text(survey: ServerSurvey) -> str:
    seconds = survey.wall_ms / 1000
    if survey.state == "broken":
        return f"{survey.name}: broken after {seconds:.1f} s"
    return f"{survey.name}: {count_text(len(survey.tools), 'tool')} after {seconds:.1f} s"


async def survey_of(server: McpServer, timeout_seconds: float) -> ServerSurvey:
    """What one server answers; it is left running."""
    started = time.monotonic()
    tools: tuple[Tool, ...] = ()
    problem = silence = f"no answer within {timeout_seconds:g} seconds"
    try:
        with anyio.move_on_after(timeout_seconds):
            tools = tuple(await server.tools())
            problem = ""
    except ToolServerError as error:
        problem = error.message
    status = server.status()
    if problem == silence and status.last_output:
        problem = f"{silence}; its last line was: {status.last_output[-1]}"
    return ServerSurvey(
        name=server.name,
        state="broken" if problem else "ready",
        tools=tuple(tool for tool in tools if not tool.name.startswith(OPERATION_MARK)),
        all_tools=tools,
        listed_bytes=status.listed_bytes,
        version=status.version,
        # Of a server that works, what is wrong with single tools.
        problem=problem or status.problem,
        wall_ms=(time.monotonic() - started) * 1000,
    )
