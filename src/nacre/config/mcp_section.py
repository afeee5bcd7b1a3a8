"""The MCP servers of a whole document: each read by itself, wherever the document has them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from nacre.config.fields import is_object, member_path, object_without_showing
from nacre.config.mcp import mcp_servers_from, server_name_from
from nacre.config.mcp_entry import McpServerConfig, unused_keys
from nacre.errors import ConfigError, MissingReferenceError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from nacre.config.reading import Reading
    from nacre.config.section import Found, Section

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
