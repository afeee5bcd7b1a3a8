"""Search over the tools of a catalog."""

from nacre.tools.catalog_search.explanation import Explanation, ScorePart
from nacre.tools.catalog_search.index import (
    GUEST_SOURCES,
    CatalogIndex,
    RunIndex,
    cached_index,
    index_of,
)

__all__ = [
    "GUEST_SOURCES",
    "CatalogIndex",
    "Explanation",
    "RunIndex",
    "ScorePart",
    "cached_index",
    "index_of",
]
