"""The data that a cell finds in its worker, and a cache of catalogs prepared for runs.

What is kept for one run is used for another only if that may use the very same tools.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from nacre.code_mode.api_files import known_files
from nacre.code_mode.bridge import METHODS
from nacre.errors import CatalogError
from nacre.json_types import encode_json
from nacre.sandbox import SharedData
from nacre.tools import Catalog, RunIndex, Tool, build_catalog, mcp_file_path

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from nacre.code_mode.mcp_servers import McpListing
    from nacre.code_mode.namespaces import NamespaceRuntime
    from nacre.json_types import JsonObject

    Listings = Mapping[str, McpListing | None]


# The names of the parts are known to the guest (guest/src/catalog.js and its neighbours).
_TOOLS: Final = "tools"
_NAMES: Final = "names"
_NAMESPACES: Final = "namespaces"
_GLOBALS: Final = "globals"
_MCP: Final = "mcp"
_FILES: Final = "api"
_COMPLETE_FOLDERS: Final = "apiComplete"
# Of one server, and of all together: no server may push out others, or the programs themselves.
_MAX_SERVER_BYTES: Final = 2 << 20
_MAX_LISTED_BYTES: Final = 8 << 20


class GuestViews:
    """Makes the data of cells with one catalog; the same until namespaces or servers change."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._made_of: tuple[bytes, Listings] = (b"", {})
        self._view: SharedData | None = None

    def view(self, namespaces: Mapping[str, NamespaceRuntime], listings: Listings) -> SharedData:
        """Raises CatalogError for a catalog that no worker could hold."""
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
    """The listings that go to a worker. One that is too large, or for which no room is left, is
    treated as unknown: programs may call anything on it, and the host resolves it."""
    left = _MAX_LISTED_BYTES
    carried: dict[str, McpListing | None] = {}
    for name, listing in listings.items():
        fits = listing is not None and listing.size_bytes <= min(left, _MAX_SERVER_BYTES)
        carried[name] = listing if fits else None
        left -= listing.size_bytes if listing is not None and fits else 0
    return carried


_MAX_CATALOGS: Final = 8


@dataclass(frozen=True, kw_only=True, slots=True)
class PreparedCatalog:
    """A catalog, its search index and what its cells are sent; each made when it is needed."""

    catalog: Catalog
    index: RunIndex
    views: GuestViews


class PreparedCatalogs:
    """The last few catalogs of a runtime."""

    def __init__(self) -> None:
        self._catalogs: OrderedDict[tuple[int, ...], PreparedCatalog] = OrderedDict()

    def prepare(self, tools: Sequence[Tool]) -> PreparedCatalog:
        """Raises CatalogError for tools that cannot be together."""
        # By identity: the catalog that is kept holds the tools, so no other gets their place.
        key = tuple(map(id, tools))
        prepared = self._catalogs.pop(key, None) or _prepare(build_catalog(tools))
        self._catalogs[key] = prepared
        if len(self._catalogs) > _MAX_CATALOGS:
            self._catalogs.popitem(last=False)
        return prepared


def _prepare(catalog: Catalog) -> PreparedCatalog:
    return PreparedCatalog(catalog=catalog, index=RunIndex(catalog), views=GuestViews(catalog))
