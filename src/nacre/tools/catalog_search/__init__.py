"""Search over the tools of a catalog."""

from nacre.tools.catalog_search.explanation import Explanation, ScorePart
from nacre.tools.catalog_search.index import (
    CatalogIndex,
    RunIndex,
    cached_index,
    index_of,
)

__all__ = [
    "CatalogIndex",
    "Explanation",
    "RunIndex",
    "ScorePart",
    "cached_index",
    "index_of",
]
