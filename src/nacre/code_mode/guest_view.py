"""The data that cells find in their worker, the files of `API`, and a cache of catalogs."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import anyio.to_thread

from nacre.code_mode.bridge import METHODS
from nacre.code_mode.mcp_servers import declared_tool
from nacre.errors import CatalogError, UnknownToolError
from nacre.json_types import encode_json
from nacre.sandbox import SharedData
from nacre.tools import (
    Catalog,
    DeclaredServer,
    RunIndex,
    Tool,
    assign_guest_names,
    build_catalog,
    mcp_file_path,
    mcp_index_file,
    tools_file,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from nacre.code_mode.mcp_servers import McpListing
    from nacre.code_mode.namespaces import NamespaceRuntime
    from nacre.json_types import JsonObject

    Listings = Mapping[str, McpListing | None]
    from collections.abc import Mapping

    from nacre.code_mode.mcp_servers import McpListing, McpServers


INDEX_PATH: Final = "mcp/index.d.ts"
_MCP_FOLDER: Final = "mcp/"
_TOOLS_FOLDER: Final = "tools/"
_ENDING: Final = ".d.ts"
_MAX_SHOWN: Final = 100
# The guest uses the same names (guest/src/catalog.js and others).
_TOOLS: Final = "tools"
_NAMES: Final = "names"
_NAMESPACES: Final = "namespaces"
_GLOBALS: Final = "globals"
_MCP: Final = "mcp"
_FILES: Final = "api"
_COMPLETE_FOLDERS: Final = "apiComplete"
# For one server and for all together, so that no server takes the memory of others or of programs.
_MAX_SERVER_BYTES: Final = 2 << 20
_MAX_LISTED_BYTES: Final = 8 << 20
_MAX_CATALOGS: Final = 8


def known_files(listings: Mapping[str, McpListing | None]) -> dict[str, str]:
    """The files that are known without starting a server: the index and those of listed servers."""
    servers = [
        listing.declared_server() if listing is not None else DeclaredServer(name=name)
        for name, listing in listings.items()
    ]
    files = {listing.file_path: listing.declarations for listing in listings.values() if listing}
    return {INDEX_PATH: mcp_index_file(servers), **files} if servers else files


class ApiFiles:
    """The files of one run that are not in its worker."""

    def __init__(self, catalog: Catalog, servers: McpServers) -> None:
        self._catalog = catalog
        self._servers = servers

    async def listing(self, prefix: str) -> list[JsonObject]:
        """List the files below a prefix; without a size if the file is not made yet."""
        known = known_files(await self._servers.listings())
        sizes: dict[str, int | None] = {path: len(text) for path, text in known.items()}
        for name in self._servers.names:
            sizes.setdefault(mcp_file_path(name), None)
        for name in self._owners():
            sizes[f"{_TOOLS_FOLDER}{name}{_ENDING}"] = None
        return [_file(path, size) for path, size in sizes.items() if _is_below(path, prefix)]

    async def read(self, path: str) -> str:
        """Return the text of a file, and start its server if needed. Raises ToolError."""
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
        """The owners of ordinary tools, by the names of their files."""
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


class GuestViews:
    """The data of cells with one catalog; made again when namespaces or servers change."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._made_of: tuple[bytes, Listings] = (b"", {})
        self._view: SharedData | None = None

    def view(self, namespaces: Mapping[str, NamespaceRuntime], listings: Listings) -> SharedData:
        """Return the data. Raises CatalogError if it is too large for a worker."""
        # Compared as text: to Python, 1 and true are equal.
        descriptors = encode_json({name: each.descriptor for name, each in namespaces.items()})
        if self._view is None or self._made_of != (descriptors, listings):
            self._view = _guest_view(self._catalog, descriptors, list(namespaces), listings)
            self._made_of = (descriptors, dict(listings))
        return self._view


def _guest_view(
    catalog: Catalog, descriptors: bytes, global_names: list[str], listings: Listings
) -> SharedData:
    carried = _select_listings(listings)
    servers: JsonObject = {
        name: {"tools": None if listing is None else list(listing.tools)}
        for name, listing in carried.items()
    }
    left_out = {mcp_file_path(name) for name, listing in carried.items() if listing is None}
    files: JsonObject = {
        path: text for path, text in known_files(listings).items() if path not in left_out
    }
    # Files of ordinary tools are made when they are read: there may be thousands of tools.
    complete: JsonObject = {"mcp": None not in carried.values()}
    parts = {
        _TOOLS: catalog.index_json,
        _NAMES: catalog.names_json,
        _NAMESPACES: descriptors,
        _GLOBALS: encode_json(global_names),
        _MCP: encode_json(servers),
        _FILES: encode_json(files),
        _COMPLETE_FOLDERS: encode_json(complete),
    }
    try:
        return SharedData(parts, methods=METHODS)
    except ValueError as error:
        raise CatalogError(f"the catalog is too large for a program: {error}") from error


def _select_listings(listings: Listings) -> dict[str, McpListing | None]:
    """Select the listings for a worker. A listing that is too large is left out: then programs may
    call anything on the server, and the host resolves it."""
    left = _MAX_LISTED_BYTES
    carried: dict[str, McpListing | None] = {}
    for name, listing in listings.items():
        fits = listing is not None and listing.size_bytes <= min(left, _MAX_SERVER_BYTES)
        carried[name] = listing if fits else None
        left -= listing.size_bytes if listing is not None and fits else 0
    return carried


@dataclass(frozen=True, kw_only=True, slots=True)
class PreparedCatalog:
    """A catalog with its search index and the data of its cells, all made on demand."""

    catalog: Catalog
    index: RunIndex
    views: GuestViews


class PreparedCatalogs:
    """Caches the last few catalogs of a runtime."""

    def __init__(self) -> None:
        self._catalogs: OrderedDict[tuple[int, ...], PreparedCatalog] = OrderedDict()

    def prepare(self, tools: Sequence[Tool]) -> PreparedCatalog:
        """Return the catalog of these tools. Raises CatalogError if they do not fit together."""
        # By identity: the cached catalog holds the tools, so their ids stay unique.
        key = tuple(map(id, tools))
        prepared = self._catalogs.pop(key, None) or _prepare(build_catalog(tools))
        self._catalogs[key] = prepared
        if len(self._catalogs) > _MAX_CATALOGS:
            self._catalogs.popitem(last=False)
        return prepared


def _prepare(catalog: Catalog) -> PreparedCatalog:
    return PreparedCatalog(catalog=catalog, index=RunIndex(catalog), views=GuestViews(catalog))
