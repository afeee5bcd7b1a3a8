"""The MCP servers of a command, and a survey that starts them all at once."""

from __future__ import annotations

import gc
import os
import time
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

import anyio

from nacre.cli.mcp_entries import read_config
from nacre.cli.output import (
    STOP_SIGNALS,
    ExitStatus,
    UsageProblem,
    count_text,
    errors_are_on_terminal,
    say,
    warn,
)
from nacre.config import mcp_servers_from, object_at, server_name_from
from nacre.errors import ConfigError, ToolServerError
from nacre.mcp_client import McpConnections
from nacre.mcp_client.client_files import servers_of_file
from nacre.tools import OPERATION_MARK, Tool

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, Awaitable, Callable, Iterator, Mapping, Sequence
    from signal import Signals

    from nacre.config import McpServerConfig
    from nacre.mcp_client import McpServer


NO_SERVERS: Final = "no MCP servers are configured; `nacre mcp add` and `nacre mcp import` add some"


@dataclass(frozen=True, kw_only=True, slots=True)
class ConfiguredServer:
    """An entry, and the server that it describes; if there is none, then why."""

    name: str
    file: Path
    server: McpServerConfig | None
    problem: str = ""

    @property
    def is_disabled(self) -> bool:
        return self.server is not None and self.server.is_disabled


@dataclass(frozen=True, kw_only=True, slots=True)
class ConfiguredServers:
    """All servers of a command, in the order of their files."""

    document: Mapping[str, object]
    """Nacre's configuration, whose other settings hold wherever the servers come from."""
    folder: Path
    """Where the configuration is, or would be."""
    servers: tuple[ConfiguredServer, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all that programs see."""
        return tuple(config.name for config in self.configs if not config.is_disabled)

    @property
    def configs(self) -> list[McpServerConfig]:
        """Those whose entry is sound."""
        return [server.server for server in self.servers if server.server is not None]

    @property
    def broken(self) -> list[ConfiguredServer]:
        """Those whose entry is not."""
        return [server for server in self.servers if server.server is None]

    def code_mode_document(self) -> Mapping[str, object]:
        """The configuration with code mode on: whoever starts `nacre mcp` has asked for it.

        Raises ConfigError.
        """
        tools = object_at(self.document.get("tools"), "tools")
        given = tools.get("codeMode")
        settings: Mapping[str, object] = (
            {} if isinstance(given, bool) else object_at(given, "tools.codeMode")
        )
        return {**self.document, "tools": {**tools, "codeMode": {**settings, "enabled": True}}}

    def only(self, name: str | None) -> ConfiguredServers:
        """The one of this name, or all without one; raises UsageProblem."""
        if name is None:
            return self
        found = tuple(server for server in self.servers if server.name == name)
        if not found:
            names = ", ".join(server.name for server in self.servers) or "none"
            raise UsageProblem(f"there is no server {name!r}; there are: {names}")
        return replace(self, servers=found)


def configured_servers(config: str | None, files: Sequence[str]) -> ConfiguredServers:
    """The servers of the files if some are named, else of the configuration.

    An entry that is wrong costs that server alone. Raises UsageProblem for files that cannot be
    read, and for two servers of one name.
    """
    document = read_config(config)
    found: dict[str, ConfiguredServer] = {}
    sources = [_from_file(Path(file)) for file in files] or [
        (document.file.path, document.section_path, document.entries)
    ]
    for file, path, entries in sources:
        for server in _servers_of(entries, path, file):
            if server.name in found:
                raise UsageProblem(_twice(server, found[server.name]))
            found[server.name] = server
    return ConfiguredServers(
        document=document.members,
        folder=document.file.path.absolute().parent,
        servers=tuple(found.values()),
    )


def _from_file(file: Path) -> tuple[Path, str, Mapping[str, object]]:
    try:
        found = servers_of_file(file, project=Path.cwd())
    except ConfigError as error:
        raise UsageProblem(str(error)) from None
    for note in found.notes:
        warn(note)
    return file, "", found.servers


def _servers_of(entries: Mapping[str, object], path: str, file: Path) -> Iterator[ConfiguredServer]:
    notes: list[str] = []
    for key, entry in entries.items():
        try:
            name = server_name_from(key, path=f"{file}: {key!r}")
        except ConfigError as error:
            raise UsageProblem(str(error)) from None
        yield _server_of(name, entry, path, file, notes)
    for note in notes:
        warn(f"{file}: {note}")


def _server_of(
    name: str, entry: object, path: str, file: Path, notes: list[str]
) -> ConfiguredServer:
    try:
        [server] = mcp_servers_from(
            {name: entry}, path=path, environment=os.environ, warnings=notes
        )
    except ConfigError as error:
        return ConfiguredServer(name=name, file=file, server=None, problem=str(error))
    return ConfiguredServer(name=name, file=file, server=server)


def _twice(server: ConfiguredServer, other: ConfiguredServer) -> str:
    places = {str(other.file): None, str(server.file): None}
    return f"two servers are called {server.name!r} (in {' and '.join(places)}); rename one of them"


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
