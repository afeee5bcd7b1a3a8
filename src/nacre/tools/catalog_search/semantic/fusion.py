"""Combines the results of word search and embedding search into one ranking."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from nacre.lazy_dataclasses import dataclass

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from nacre.tools.catalog_search.reranking import Candidate
    from nacre.tools.catalog_search.semantic.text_models import Vector

WORD_CANDIDATES: Final = 200
"""The number of results of the word search that are combined."""

# Round values; `benchmarks/search_quality.py` hardly changes around them.
# If the best similarity is lower than this, it is not scaled up to 1.
_MIN_BEST: Final = 0.35
# The minimum similarity of a result without any word of the query. With a higher value, queries for
# two things would lose the second one.
_MIN_ALONE: Final = 0.2
# The same if no text contains a word of the query, because the query may be meaningless.
_MIN_WITHOUT_WORDS: Final = 0.3
# Stands for the best score of words if the word search found nothing.
_NO_WORDS: Final = 10.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Likeness:
    """The similarity of each text to the query by one model, and the weight of the model."""

    weight: float
    cosines: Vector
    """A row for each sentence of the query, a column for each text."""

    @property
    def to_nearest(self) -> Vector:
        """For each text, the similarity to the most similar sentence."""
        return self.cosines.max(axis=0)


@dataclass(frozen=True, kw_only=True, slots=True)
class Fused:
    """A combined result: its position in the catalog, and its scores by words and by meaning."""

    position: int
    candidate: Candidate | None
    meaning: float = 0.0

    @property
    def score(self) -> float:
        return self.meaning + (0.0 if self.candidate is None else self.candidate.score)


def fuse(
    candidates: Sequence[Candidate], likenesses: Sequence[Likeness], limit: int
) -> list[Fused]:
    """The best combined results, best first; equal ones in the order of the catalog.

    The best score of words counts as 1, and so does the most similar text of a model with weight 1.
    Similarities are squared, because they are meaningful only near the top.
    """
    import numpy as np

    best = max((each.score for each in candidates), default=0.0) or _NO_WORDS
    meanings = np.sum([_meaning(each) for each in likenesses], axis=0) * best
    words = np.zeros(len(meanings))
    found = {each.position: each for each in candidates}
    words[list(found)] = [each.score for each in found.values()]
    is_shown = _is_alike(likenesses, has_words=bool(found))
    is_shown[list(found)] = True
    shown = np.flatnonzero(is_shown)
    scores = (words + meanings)[shown]
    first = np.lexsort((shown, -scores))[:limit]
    return [
        Fused(position=position, candidate=found.get(position), meaning=float(meanings[position]))
        for position in shown[first].tolist()
    ]


def _is_alike(likenesses: Sequence[Likeness], *, has_words: bool) -> NDArray[np.bool_]:
    """Whether each text is a result even without any word of the query."""
    import numpy as np

    if not has_words:
        # The best model only: for the others, even random letters are similar to some text.
        return likenesses[0].to_nearest >= _MIN_WITHOUT_WORDS
    return np.max([each.to_nearest for each in likenesses], axis=0) >= _MIN_ALONE


def _meaning(likeness: Likeness) -> Vector:
    """The score by meaning: half by all sentences together, half by the best sentence.

    One vector for a task with three steps is similar to none of the three tools. But a sentence
    alone may lack context.
    """
    cosines = likeness.cosines.clip(min=0)
    together = _stretch(cosines.mean(axis=0, keepdims=True))[0]
    apart = _stretch(cosines).max(axis=0)
    return (together + apart) * (likeness.weight / 2)


def _stretch(cosines: Vector) -> Vector:
    """Scale each row so that its maximum is 1, or less if nothing is similar, and square it."""
    return (cosines / cosines.max(axis=1, keepdims=True).clip(min=_MIN_BEST)) ** 2
