"""MCP servers in a document: ours, and those of Claude, Cursor and VS Code."""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from nacre.config.expansion import Expander
from nacre.config.fields import is_object, member_path, object_without_showing
from nacre.config.json5 import parse_json5
from nacre.config.mcp_entry import McpServerConfig, mcp_server_from_entry, unused_keys
from nacre.errors import ConfigError, MissingReferenceError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from nacre.config.reading import Reading
    from nacre.config.section import Found, Section


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
    """Read servers by name; raises ConfigError by path for anything wrong, missing variables too.

    What is not wrong but has no effect is added to `warnings`, or logged if there are none.
    References of a disabled server are left as they are. Blocks where files have to be read.
    """
    notes: list[str] = [] if warnings is None else warnings
    expander = Expander(environment=environment, workspace=workspace or Path.cwd())
    found: dict[str, McpServerConfig] = {}
    for key, entry in object_without_showing(value, path).items():
        entry_path = member_path(path, key)
        name = server_name_from(key, path=entry_path)
        if name in found:
            raise ConfigError(entry_path, f"would be called {name!r} as another server is")
        if name != key:
            notes.append(f"`{entry_path}` is called {name!r}: a name has no spaces and colons")
        found[name] = mcp_server_from_entry(entry, name, entry_path, expander, notes)
    if warnings is None:
        for note in notes:
            logger.warning("%s", note)
    return list(found.values())


def server_name_from(key: str, *, path: str) -> str:
    """The name of a server that stands under `key`; raises ConfigError if there is nothing left."""
    name = _NOT_IN_A_NAME.sub("-", key).strip("-")
    if not name or len(name) > _MAX_NAME_CHARACTERS:
        raise ConfigError(
            path, f"is no name of a server; allowed: 1 to {_MAX_NAME_CHARACTERS} characters"
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
    members = object_without_showing(document, path)
    # One that is null stays: whoever reads the entries tells what is wrong with it.
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
        return object_without_showing(section, f"{path}: {name}")
    return None


def _section(members: Mapping[str, object], keys: tuple[str, ...]) -> object:
    value: object = members
    for key in keys:
        value = value.get(key) if is_object(value) else None
    return value


def _is_entry(value: object) -> bool:
    keys = ("command", "url", "serverUrl")
    return is_object(value) and any(isinstance(value.get(key), str) for key in keys)


_SERVERS: Final = "an object of MCP servers by name"


def read_mcp_servers(top: Section) -> tuple[McpServerConfig, ...]:
    """Read `mcp.servers`, or `mcpServers` as files of other clients have it; faults are noted."""
    places = (
        top.section("mcp").find("servers", default={}, allowed=_SERVERS),
        top.find("mcpServers", default={}, allowed=_SERVERS),
    )
    used = [place for place in places if place is not None and place.value != {}]
    if len(used) > 1:
        top.refuse("mcpServers", "stands beside `mcp.servers`; keep the servers in one of the two")
    return tuple(server for place in used[:1] for server in _servers_at(place, top.reading))


def unused_places(document: Mapping[str, object]) -> list[str]:
    """Where entries of MCP servers have something that is not read: it is no fault, since other
    clients may, but what it is for is not known."""
    in_mcp = document.get("mcp")
    sections = {
        "mcp.servers": in_mcp.get("servers") if is_object(in_mcp) else None,
        "mcpServers": document.get("mcpServers"),
    }
    return [
        member_path(member_path(path, name), key)
        for path, servers in sections.items()
        if is_object(servers)
        for name, entry in servers.items()
        for key in unused_keys(entry)
    ]


def _servers_at(place: Found, reading: Reading) -> list[McpServerConfig]:
    found: dict[str, McpServerConfig] = {}
    entries = reading.attempt(lambda: object_without_showing(place.value, place.path), {})
    for key, entry in entries.items():
        # One by one, so that a fault in one does not hide those of the others.
        for server in reading.attempt(
            lambda key=key, entry=entry: _server(key, entry, place.path, reading), []
        ):
            if server.name in found:
                problem = f"would be called {server.name!r} as another server is"
                reading.note(ConfigError(member_path(place.path, key), problem))
            found.setdefault(server.name, server)
    return list(found.values())


def _server(key: str, entry: object, path: str, reading: Reading) -> list[McpServerConfig]:
    try:
        return mcp_servers_from(
            {key: entry}, path=path, environment=reading.environment, warnings=reading.warnings
        )
    except MissingReferenceError as missing:
        reading.note(missing)
        name = server_name_from(key, path=member_path(path, key))
        # Still there, so that whoever needs it is told why it does not start.
        return [McpServerConfig(name=name, transport="stdio", missing=str(missing))]
