"""A model whose vectors can be foretold."""

import re
from collections.abc import Sequence

import numpy as np

from nacre.tools.catalog_search.semantic.text_models import Vector


class FakeModel:
    """A text's vector points to the first topic of which it has a word; beside all, if to none."""

    def __init__(self, *topics: str) -> None:
        self.name = "fake"
        self.weight = 1.0
        self.size = len(topics) + 1
        self.embedded: list[str] = []
        self._topics = [topic.split() for topic in topics]

    def vector(self, text: str) -> Vector:
        self.embedded.append(text)
        words = set(re.findall(r"\w+", text.lower()))
        found = [place for place, topic in enumerate(self._topics) if words & set(topic)]
        vector = np.zeros(self.size, dtype=np.float32)
        vector[found[0] if found else -1] = 1.0
        return vector

    def query_vectors(self, sentences: Sequence[str]) -> tuple[Vector, float]:
        return np.stack([self.vector(sentence) for sentence in sentences]), 1.0
