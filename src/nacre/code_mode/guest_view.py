"""What the cells of a run find in their worker: the catalog and the namespaces, as shared data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from nacre.code_mode.bridge import METHODS
from nacre.errors import CatalogError
from nacre.json_types import encode_json
from nacre.sandbox import SharedData

if TYPE_CHECKING:
    from collections.abc import Mapping

    from nacre.code_mode.namespaces import NamespaceRuntime
    from nacre.json_types import JsonObject
    from nacre.tools import Catalog

# The names of the parts are known to the guest (guest/src/catalog.js).
_TOOLS: Final = "tools"
_NAMES: Final = "names"
_NAMESPACES: Final = "namespaces"
_GLOBALS: Final = "globals"


class GuestViews:
    """Makes the data of cells with one catalog; the same until the namespaces change."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._descriptors: JsonObject = {}
        self._view: SharedData | None = None

    def view(self, namespaces: Mapping[str, NamespaceRuntime]) -> SharedData:
        """Raises CatalogError for a catalog that no worker could hold."""
        descriptors: JsonObject = {name: each.descriptor for name, each in namespaces.items()}
        if self._view is None or self._descriptors != descriptors:
            self._view = _guest_view(self._catalog, descriptors)
            self._descriptors = descriptors
        return self._view


def _guest_view(catalog: Catalog, descriptors: JsonObject) -> SharedData:
    parts = {
        _TOOLS: catalog.index_json,
        _NAMES: catalog.names_json,
        _NAMESPACES: encode_json(descriptors),
        _GLOBALS: encode_json(list(descriptors)),
    }
    try:
        return SharedData(parts, methods=METHODS)
    except ValueError as error:
        raise CatalogError(f"the catalog is too large for a program: {error}") from error
