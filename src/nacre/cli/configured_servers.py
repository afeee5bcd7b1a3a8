"""The MCP servers of a command: reads their configuration, and starts them to list their tools."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

import anyio

from nacre.cli.output import (
    ExitStatus,
    UsageError,
    count_text,
    is_stderr_terminal,
    say,
    warn,
)
from nacre.cli.runner import run_abortable
from nacre.config import (
    McpServerConfig,
    find_config_file,
    mcp_servers_from,
    object_at,
    read_config_file,
    remove_config_member,
    server_name_from,
    set_config_member,
)
from nacre.errors import ConfigError, ToolServerError
from nacre.mcp_client import McpConnections
from nacre.mcp_client.client_files import servers_of_file
from nacre.tools import OPERATION_MARK

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from nacre.config import ConfigFile
    from nacre.json_types import JsonObject
    from nacre.mcp_client import McpServer
    from nacre.run_context import AbortSignal
    from nacre.tools import Tool


NO_SERVERS: Final = (
    "no MCP servers are configured; add one with `nacre mcp add` or `nacre mcp import`"
)

# Other clients use `mcpServers`, and such a file may serve as the configuration.
_SECTIONS: Final = (("mcp", "servers"), ("mcpServers",))


@dataclass(frozen=True, kw_only=True, slots=True)
class ServerEntries:
    """The configuration file and the section in it that holds, or will hold, the servers."""

    file: ConfigFile
    members: Mapping[str, object]
    section: tuple[str, ...]
    entries: Mapping[str, object]

    @property
    def section_path(self) -> str:
        return ".".join(self.section)

    def set_entry(self, name: str, entry: JsonObject) -> None:
        """Write the server's entry to the file. Raises UsageError."""
        try:
            set_config_member(self.file.path, (*self.section, name), entry)
        except ConfigError as error:
            raise UsageError(str(error)) from None

    def remove_entry(self, name: str) -> bool:
        """Remove the server's entry from the file; False if there is none. Raises UsageError."""
        try:
            return remove_config_member(self.file.path, (*self.section, name))
        except ConfigError as error:
            raise UsageError(str(error)) from None


def read_server_entries(named: str | None, *, may_be_missing: bool = False) -> ServerEntries:
    """Find and read the configuration. Raises UsageError."""
    file = find_config_file(None if named is None else Path(named), environment=os.environ)
    try:
        is_missing = may_be_missing and not file.path.exists()
        members: Mapping[str, object] = {} if is_missing else read_config_file(file)
        section, entries = _find_section(members, file.path)
    except ConfigError as error:
        raise UsageError(str(error)) from None
    return ServerEntries(file=file, members=members, section=section, entries=entries)


def _find_section(
    members: Mapping[str, object], file: Path
) -> tuple[tuple[str, ...], Mapping[str, object]]:
    found = {section: _object_at(members, section, file) for section in _SECTIONS}
    used = [section for section, entries in found.items() if entries]
    if len(used) > 1:
        names = " and in ".join(f"`{'.'.join(section)}`" for section in used)
        raise ConfigError(str(file), f"has servers in {names}; move them into one section")
    section = used[0] if used else _SECTIONS[0]
    return section, found[section]


def _object_at(
    members: Mapping[str, object], keys: tuple[str, ...], file: Path
) -> Mapping[str, object]:
    value = members
    for count, key in enumerate(keys, 1):
        value = object_at(value.get(key), f"{file}: {'.'.join(keys[:count])}")
    return value


@dataclass(frozen=True, kw_only=True, slots=True)
class ConfiguredServer:
    """A server's entry. With a problem, `server` has only its name, and a use gets the problem."""

    name: str
    file: Path
    server: McpServerConfig
    problem: str = ""

    @property
    def is_disabled(self) -> bool:
        return self.server.is_disabled


@dataclass(frozen=True, kw_only=True, slots=True)
class ConfiguredServers:
    """All servers of a command, in the order of their files."""

    document: Mapping[str, object]
    """Nacre's configuration. Its other settings apply even if the servers are from other files."""
    folder: Path
    """The folder of the configuration file, which need not exist."""
    servers: tuple[ConfiguredServer, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the servers that programs can use."""
        return tuple(
            config.name
            for config in self.configs
            if not config.is_disabled and not config.excludes_all_tools
        )

    @property
    def configs(self) -> list[McpServerConfig]:
        """The configurations of all servers."""
        return [server.server for server in self.servers]

    @property
    def broken(self) -> list[ConfiguredServer]:
        """The servers with an invalid entry, or with a missing secret."""
        return [server for server in self.servers if server.problem]

    def code_mode_document(self) -> Mapping[str, object]:
        """The configuration with code mode enabled, as `nacre mcp` needs it.

        Raises ConfigError.
        """
        tools = object_at(self.document.get("tools"), "tools")
        given = tools.get("codeMode")
        settings: Mapping[str, object] = (
            {} if isinstance(given, bool) else object_at(given, "tools.codeMode")
        )
        return {**self.document, "tools": {**tools, "codeMode": {**settings, "enabled": True}}}

    def select(self, name: str | None) -> ConfiguredServers:
        """Only the server with this name; all servers for None. Raises UsageError."""
        if name is None:
            return self
        found = tuple(server for server in self.servers if server.name == name)
        if not found:
            names = ", ".join(server.name for server in self.servers) or "none"
            raise UsageError(f"there is no server {name!r}; configured servers: {names}")
        return replace(self, servers=found)


def configured_servers(config: str | None, files: Sequence[str]) -> ConfiguredServers:
    """Read the servers from the files or, if none are given, from the configuration.

    An invalid entry makes only that server unusable. Raises UsageError for unreadable files and
    for duplicate names.
    """
    document = read_server_entries(config)
    found: dict[str, ConfiguredServer] = {}
    sources = [_read_client_file(Path(file)) for file in files] or [
        (document.file.path, document.section_path, document.entries)
    ]
    for file, path, entries in sources:
        for server in _read_entries(entries, path, file):
            if server.name in found:
                raise UsageError(_duplicate_text(server, found[server.name]))
            found[server.name] = server
    return ConfiguredServers(
        document=document.members,
        folder=document.file.path.absolute().parent,
        servers=tuple(found.values()),
    )


def _read_client_file(file: Path) -> tuple[Path, str, Mapping[str, object]]:
    try:
        found = servers_of_file(file, project=Path.cwd())
    except ConfigError as error:
        raise UsageError(str(error)) from None
    for note in found.notes:
        warn(note)
    return file, "", found.servers


def _read_entries(
    entries: Mapping[str, object], path: str, file: Path
) -> Iterator[ConfiguredServer]:
    notes: list[str] = []
    for key, entry in entries.items():
        try:
            name = server_name_from(key, path=f"{file}: {key!r}")
        except ConfigError as error:
            raise UsageError(str(error)) from None
        yield _read_entry(name, entry, path, file, notes)
    for note in notes:
        warn(f"{file}: {note}")


def _read_entry(
    name: str, entry: object, path: str, file: Path, notes: list[str]
) -> ConfiguredServer:
    try:
        [server] = mcp_servers_from(
            {name: entry}, path=path, environment=os.environ, warnings=notes
        )
    except ConfigError as error:
        stopgap = McpServerConfig(name=name, transport="stdio", missing=str(error))
        return ConfiguredServer(name=name, file=file, server=stopgap, problem=str(error))
    return ConfiguredServer(name=name, file=file, server=server)


def _duplicate_text(server: ConfiguredServer, other: ConfiguredServer) -> str:
    files = {str(other.file): None, str(server.file): None}
    return f"two servers are named {server.name!r} (in {' and '.join(files)}); rename one of them"


@dataclass(frozen=True, kw_only=True, slots=True)
class ServerSurvey:
    """What a server listed when it was started, or why it did not."""

    name: str
    state: Literal["ready", "broken", "disabled"]
    tools: tuple[Tool, ...] = ()
    """The tools of `tools/list`, without the operations on resources and prompts."""
    all_tools: tuple[Tool, ...] = ()
    """The tools and the operations on resources and prompts."""
    listed_bytes: int = 0
    """The size of the server's own list of tools, as compact JSON."""
    version: str = ""
    problem: str = ""
    wall_ms: float = 0.0


def survey_servers(
    configured: ConfiguredServers, *, timeout_seconds: float
) -> list[ServerSurvey] | ExitStatus:
    """Start all enabled servers, list their tools, and stop them.

    A server that does not answer within `timeout_seconds` is broken. Returns the exit status if a
    signal stops the survey.
    """
    found = {server.name: _survey_unstarted(server) for server in configured.servers}
    has_progress = is_stderr_terminal()

    def add(survey: ServerSurvey) -> None:
        found[survey.name] = survey
        if has_progress:
            say(_progress_text(survey))

    if not configured.servers:
        warn(NO_SERVERS)
    started = [it.server for it in configured.servers if not it.problem and not it.is_disabled]
    if started and has_progress:
        say(f"starting {count_text(len(started), 'server')}")

    async def survey(abort: AbortSignal) -> None:
        with abort.cancelling():
            await _survey_all(started, timeout_seconds, add)

    _, status = run_abortable(survey)
    return list(found.values()) if status is None else status


async def _survey_all(
    configs: Sequence[McpServerConfig],
    timeout_seconds: float,
    add: Callable[[ServerSurvey], None],
) -> None:
    async def survey(server: McpServer) -> None:
        add(await survey_server(server, timeout_seconds))

    async with McpConnections(configs) as connections, anyio.create_task_group() as tasks:
        for server in connections.servers(with_emptied=True):
            tasks.start_soon(survey, server)


def _survey_unstarted(server: ConfiguredServer) -> ServerSurvey:
    if server.is_disabled:
        return ServerSurvey(name=server.name, state="disabled")
    return ServerSurvey(name=server.name, state="broken", problem=server.problem)


def _progress_text(survey: ServerSurvey) -> str:
    seconds = survey.wall_ms / 1000
    if survey.state == "broken":
        return f"{survey.name}: broken after {seconds:.1f} s"
    return f"{survey.name}: {count_text(len(survey.tools), 'tool')} after {seconds:.1f} s"


async def survey_server(server: McpServer, timeout_seconds: float) -> ServerSurvey:
    """List the tools of one server, and leave it running."""
    started = time.monotonic()
    tools: tuple[Tool, ...] = ()
    problem = timeout = f"no answer within {timeout_seconds:g} seconds"
    try:
        with anyio.move_on_after(timeout_seconds):
            tools = tuple(await server.tools())
            problem = ""
    except ToolServerError as error:
        problem = error.message
    status = server.status()
    if problem == timeout and status.last_output:
        problem = f"{timeout}; its last line of output was: {status.last_output[-1]}"
    return ServerSurvey(
        name=server.name,
        state="broken" if problem else "ready",
        tools=tuple(tool for tool in tools if not tool.name.startswith(OPERATION_MARK)),
        all_tools=tools,
        listed_bytes=status.listed_bytes,
        version=status.version,
        # A working server may still have a problem with single tools.
        problem=problem or status.problem,
        wall_ms=(time.monotonic() - started) * 1000,
    )
