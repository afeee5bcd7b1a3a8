"""Which MCP servers a command is about: those of the configuration, or of files that it names."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from nacre.cli.mcp_entries import read_config
from nacre.cli.output import UsageProblem, warn
from nacre.config.documents import object_at
from nacre.config.mcp import mcp_servers_from, server_name_from
from nacre.errors import ConfigError
from nacre.mcp_client.client_files import servers_of_file

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from nacre.config.mcp_server_config import McpServerConfig

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
