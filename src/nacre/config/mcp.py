"""MCP servers in a document: ours, and those of Claude, Cursor and VS Code."""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from nacre.config.json5 import parse_json5
from nacre.config.mcp_entry import McpServerConfig, list_unused_keys, resolve_server
from nacre.config.references import Expander
from nacre.config.setting_paths import is_object, member_path, object_at
from nacre.errors import ConfigError, MissingReferenceError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from nacre.config.document import Document, McpServerSection
    from nacre.config.references import Resolver


logger = logging.getLogger(__name__)

# Where files keep their servers: Claude and Cursor; ours and VS Code's settings; VS Code's own
# file; a development container.
_SECTIONS: Final[Sequence[tuple[str, ...]]] = (
    ("mcpServers",),
    ("mcp", "servers"),
    ("servers",),
    ("customizations", "vscode", "mcp", "servers"),
)

# What the owner of a tool cannot be called: the id of a tool is one word, with colons between.
_NOT_IN_A_NAME = re.compile(r"[\s:\x00-\x1f\x7f-\x9f\ud800-\udfff]+")
_MAX_NAME_CHARACTERS: Final = 128


def mcp_servers_from(
    value: object,
    *,
    path: str = "mcp.servers",
    environment: Mapping[str, str],
    workspace: Path | None = None,
    warnings: list[str] | None = None,
) -> list[McpServerConfig]:
    """Read servers by name; raises ConfigError by path, also for missing variables.

    A warning for each setting that has no effect is added to `warnings`, or logged if it is None.
    References of a disabled server stay as they are. Blocks: files may be read.
    """
    notes: list[str] = [] if warnings is None else warnings
    expander = Expander(environment=environment, workspace=workspace or Path.cwd())
    # Not every program that imports this has servers.
    from nacre.config.validation import validate_servers

    entries, problems = validate_servers({} if value is None else value, path)
    found: dict[str, McpServerConfig] = {}
    for key, entry in entries.items():
        entry_path = member_path(path, key)
        for problem in problems:
            if problem.path == entry_path or problem.path.startswith(
                (f"{entry_path}.", f"{entry_path}[")
            ):
                raise problem
        name = server_name_from(key, path=entry_path)
        if name in found:
            raise _duplicate(entry_path, name)
        found[name] = _resolve_named(key, entry, path, expander, notes)
    for problem in problems:
        raise problem
    if warnings is None:
        for note in notes:
            logger.warning("%s", note)
    return list(found.values())


def _resolve_named(
    key: str, entry: McpServerSection, path: str, expander: Expander, notes: list[str]
) -> McpServerConfig:
    entry_path = member_path(path, key)
    name = server_name_from(key, path=entry_path)
    if name != key:
        notes.append(f"`{entry_path}` is called {name!r}: a name has no spaces and colons")
    return resolve_server(entry, name, entry_path, expander, notes)


def _duplicate(path: str, name: str) -> ConfigError:
    return ConfigError(path, f"would be called {name!r} as another server is")


def server_name_from(key: str, *, path: str) -> str:
    """The name of the server with this key; raises ConfigError if nothing is left of it."""
    name = _NOT_IN_A_NAME.sub("-", key).strip("-")
    if not name or len(name) > _MAX_NAME_CHARACTERS:
        raise ConfigError(
            path, f"is not a server name; allowed: 1 to {_MAX_NAME_CHARACTERS} characters"
        )
    return name


def read_mcp_document(text: str, *, path: str) -> Mapping[str, object]:
    """The servers in a file of Claude, Cursor, VS Code or ours, or in a bare object of servers;
    raises ConfigError for `path`, the file."""
    servers = servers_in(parse_json5(text, path=path), path=path)
    if servers is None:
        raise ConfigError(
            path, "has no MCP servers; they stand under `mcpServers`, `servers` or `mcp.servers`"
        )
    return servers


def servers_in(document: object, *, path: str) -> Mapping[str, object] | None:
    """The servers of a document that has been read; None where it has no place for any."""
    members = object_at(document, path)
    # Entries that are null stay: the error is reported when they are read.
    given = [value for value in members.values() if value is not None]
    if all(map(_is_entry, given)) and (given or not members):
        return members
    found = {
        ".".join(keys): section
        for keys in _SECTIONS
        if (section := _section(members, keys)) is not None
    }
    if len(found) > 1:
        raise ConfigError(path, f"has servers in {' and in '.join(found)}; keep them in one")
    for name, section in found.items():
        return object_at(section, f"{path}: {name}")
    return None


def _section(members: Mapping[str, object], keys: tuple[str, ...]) -> object:
    value: object = members
    for key in keys:
        value = value.get(key) if is_object(value) else None
    return value


def _is_entry(value: object) -> bool:
    keys = ("command", "url", "serverUrl")
    return is_object(value) and any(isinstance(value.get(key), str) for key in keys)


def resolve_servers(document: Document, resolver: Resolver) -> tuple[McpServerConfig, ...]:
    """Resolve `mcp.servers`, or `mcpServers` as in files of other clients; problems are noted."""
    used = [
        (path, entries)
        for path, entries in (
            ("mcp.servers", document.mcp.servers),
            ("mcpServers", document.mcp_servers),
        )
        if entries
    ]
    if len(used) > 1:
        problem = "is beside `mcp.servers`; keep the servers in one of the two"
        resolver.note(ConfigError("mcpServers", problem))
    found: dict[str, McpServerConfig] = {}
    for path, entries in used[:1]:
        for key, entry in entries.items():
            entry_path = member_path(path, key)
            if resolver.has_problem_at(entry_path):
                continue
            # One by one, so that a problem with one does not hide those of the others.
            for server in resolver.attempt(
                lambda key=key, entry=entry, path=path: _resolve_entry(key, entry, path, resolver),
                [],
            ):
                if server.name in found:
                    resolver.note(_duplicate(entry_path, server.name))
                found.setdefault(server.name, server)
    return tuple(found.values())


def _resolve_entry(
    key: str, entry: McpServerSection, path: str, resolver: Resolver
) -> list[McpServerConfig]:
    notes: list[str] = []
    try:
        server = _resolve_named(key, entry, path, resolver.expander, notes)
    except MissingReferenceError as missing:
        resolver.note(missing)
        name = server_name_from(key, path=member_path(path, key))
        # Still there, so that a run that needs it gets the reason.
        server = McpServerConfig(name=name, transport="stdio", missing=str(missing))
    for note in notes:
        resolver.warn(note)
    return [server]


def list_unused_places(document: Document) -> list[str]:
    """The paths of values in entries of MCP servers that Nacre does not read.

    They are no problem, since other clients may read them, but they may be secrets.
    """
    sections = {"mcp.servers": document.mcp.servers, "mcpServers": document.mcp_servers}
    return [
        member_path(member_path(path, name), key)
        for path, servers in sections.items()
        for name, entry in servers.items()
        for key in list_unused_keys(entry)
    ]
