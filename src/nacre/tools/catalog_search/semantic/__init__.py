"""Search by meaning with embeddings, if the extra `semantic` is installed; downloads nothing."""

from nacre.tools.catalog_search.semantic.embeddings import BackgroundThread, Meanings, meaning_text
from nacre.tools.catalog_search.semantic.fusion import WORD_CANDIDATES, Fused, fuse

__all__ = ["WORD_CANDIDATES", "BackgroundThread", "Fused", "Meanings", "fuse", "meaning_text"]
