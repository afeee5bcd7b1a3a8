"""Finds tools by what they are for: one engine for every surface; knows texts, not callers."""

from nacre.tools.catalog_search.explanation import Explanation, ScorePart
from nacre.tools.catalog_search.index import GUEST_SOURCES, CatalogIndex, cached_index, index_of

__all__ = [
    "GUEST_SOURCES",
    "CatalogIndex",
    "Explanation",
    "ScorePart",
    "cached_index",
    "index_of",
]
