"""The declaration files that programs read through `API`: of MCP servers and of ordinary tools."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import anyio.to_thread

from nacre.code_mode.mcp_servers import declared_tool
from nacre.errors import UnknownToolError
from nacre.tools import (
    Catalog,
    DeclaredServer,
    assign_guest_names,
    mcp_file_path,
    mcp_index_file,
    tools_file,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from nacre.code_mode.mcp_servers import McpListing, McpServers
    from nacre.json_types import JsonObject

INDEX_PATH: Final = "mcp/index.d.ts"
_MCP_FOLDER: Final = "mcp/"
_TOOLS_FOLDER: Final = "tools/"
_ENDING: Final = ".d.ts"
_MAX_SHOWN: Final = 100


def known_files(listings: Mapping[str, McpListing | None]) -> dict[str, str]:
    """The files that need nothing to be started: the index, and those of listed servers."""
    servers = [
        listing.declared_server() if listing is not None else DeclaredServer(name=name)
        for name, listing in listings.items()
    ]
    files = {listing.file_path: listing.declarations for listing in listings.values() if listing}
    return {INDEX_PATH: mcp_index_file(servers), **files} if servers else files


class ApiFiles:
    """The files of one run that are not in its worker already."""

    def __init__(self, catalog: Catalog, servers: McpServers) -> None:
        self._catalog = catalog
        self._servers = servers

    async def listing(self, prefix: str) -> list[JsonObject]:
        """Every file below the prefix; the size of one that is not made yet is not known."""
        known = known_files(await self._servers.listings())
        sizes: dict[str, int | None] = {path: len(text) for path, text in known.items()}
        for name in self._servers.names:
            sizes.setdefault(mcp_file_path(name), None)
        for name in self._owners():
            sizes[f"{_TOOLS_FOLDER}{name}{_ENDING}"] = None
        return [_file(path, size) for path, size in sizes.items() if _is_below(path, prefix)]

    async def read(self, path: str) -> str:
        """The text of a file; starts the server it is about. Raises ToolError."""
        if path == INDEX_PATH and self._servers.names:
            return known_files(await self._servers.listings())[path]
        server = _name_in(path, _MCP_FOLDER)
        if server in self._servers.names:
            return (await self._servers.listing(server)).declarations
        owner = self._owners().get(_name_in(path, _TOOLS_FOLDER))
        if owner is not None:
            return await anyio.to_thread.run_sync(self._tools_file, owner)
        raise UnknownToolError(
            f"there is no file {path[:_MAX_SHOWN]!r}; API.list() shows those there are",
            tool_id="api",
        )

    def _owners(self) -> dict[str, str]:
        """The owners of ordinary tools, by the name of their file."""
        owners = dict.fromkeys(entry.tool.owner for entry in self._catalog.guest_entries)
        return {guest: owner for owner, guest in assign_guest_names(list(owners)).items()}

    def _tools_file(self, owner: str) -> str:
        names = {tool_id: name for name, tool_id in self._catalog.names.items()}
        return tools_file(
            owner,
            [
                declared_tool(names[entry.id], entry.tool)
                for entry in self._catalog.guest_entries
                if entry.tool.owner == owner and entry.id in names
            ],
        )


def _name_in(path: str, folder: str) -> str:
    """The name of a declaration file of this folder; empty for any other path."""
    is_file = path.startswith(folder) and path.endswith(_ENDING)
    return path[len(folder) : -len(_ENDING)] if is_file else ""


def _file(path: str, size: int | None) -> JsonObject:
    return {"path": path} if size is None else {"path": path, "size": size}


def _is_below(path: str, prefix: str) -> bool:
    folder = prefix.strip("/")
    return not folder or path == folder or path.startswith(f"{folder}/")
