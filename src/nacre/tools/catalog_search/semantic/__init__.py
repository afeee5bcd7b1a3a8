"""Search by meaning with embeddings, if the extra `semantic` is installed; downloads nothing."""

from nacre.tools.catalog_search.semantic.embeddings import BackgroundThread, Meanings, meaning_text
from nacre.tools.catalog_search.semantic.fusion import WORD_CANDIDATES, Fused, fuse
from nacre.tools.catalog_search.semantic.text_models import is_switched_off

__all__ = [
    "WORD_CANDIDATES",
    "BackgroundThread",
    "Fused",
    "Meanings",
    "fuse",
    "is_switched_off",
    "meaning_text",
]
