"""WordLlama's table of word vectors: a text is the mean of its words. Small, and very quick."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from nacre.tools.catalog_search.semantic.libraries import installed_file, tokenizer_in, weights_in

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nacre.tools.catalog_search.semantic.libraries import Vector

# Not imported: that would set up logging for the whole process.
_WORDLLAMA_PACKAGE: Final = "wordllama"
_MAX_WORD_TOKENS: Final = 512


class WordModel:
    """Raises ImportError, OSError or ValueError where it cannot be had."""

    def __init__(self) -> None:
        self.name = "wordllama l2_supercat_256 1"
        self.weight = 0.8
        self.size = 256
        weights = weights_in(
            installed_file(_WORDLLAMA_PACKAGE, "weights/l2_supercat_256.safetensors")
        )
        self._words = weights["embedding.weight"]
        tokens = installed_file(_WORDLLAMA_PACKAGE, "tokenizers/l2_supercat_tokenizer_config.json")
        self._tokenizer = tokenizer_in(tokens, max_tokens=_MAX_WORD_TOKENS)

    def vector(self, text: str) -> Vector:
        import numpy as np

        ids = self._tokenizer.encode(text, add_special_tokens=False).ids
        total = self._words[ids].astype(np.float32).sum(axis=0)
        length = np.linalg.norm(total)
        return total / length if length else total

    def query_vectors(self, sentences: Sequence[str]) -> tuple[Vector, float]:
        import numpy as np

        return np.stack([self.vector(sentence) for sentence in sentences]), 1.0
