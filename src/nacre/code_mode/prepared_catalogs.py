"""Catalogs with what is made of them, kept: most runs of an agent have the tools of the one before.

What is kept for one run is used for another only if that may use the very same tools.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from nacre.code_mode.guest_view import GuestViews
from nacre.tools import Catalog, build_catalog
from nacre.tools.catalog_search.run_index import RunIndex

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nacre.tools import Tool

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
