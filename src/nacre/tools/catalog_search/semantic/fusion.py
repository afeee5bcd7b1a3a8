"""What words found and what meanings found, as one order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from nacre.tools.catalog_search.reranking import Candidate
    from nacre.tools.catalog_search.semantic.text_models import Vector

WORD_CANDIDATES: Final = 200
"""So many of what words found take part; beyond them meaning alone decides."""

# Plain figures from a wide plateau of `benchmarks/search_quality.py`.
# What is less alike than this is hardly meant, so it is not stretched to a whole point.
_MIN_BEST: Final = 0.35
# What has no word of the query must be so alike to be shown at all. More would cost the second of
# two things that a query asks for.
_MIN_ALONE: Final = 0.2
# The same where no text has a word of the query, which may then be letters that mean nothing.
_MIN_WITHOUT_WORDS: Final = 0.3
# The best score of words, where they found nothing.
_NO_WORDS: Final = 10.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Likeness:
    """How alike each text is to the query, by one model, and how much that counts."""

    weight: float
    cosines: Vector
    """A row for each sentence of the query, a column for each text."""

    @property
    def to_nearest(self) -> Vector:
        """For each text, to the sentence that it is most alike."""
        return self.cosines.max(axis=0)


@dataclass(frozen=True, kw_only=True, slots=True)
class Fused:
    """A position in the catalog: what words say for it, if they found it, and what meaning adds."""

    position: int
    candidate: Candidate | None
    meaning: float = 0.0

    @property
    def score(self) -> float:
        return self.meaning + (0.0 if self.candidate is None else self.candidate.score)


def fuse(
    candidates: Sequence[Candidate], likenesses: Sequence[Likeness], limit: int
) -> list[Fused]:
    """The best of both, best first; of equal ones, those first that are first in the catalog.

    The best score of words counts as one whole, and so does the most alike text of a model that
    has the weight 1. Squares, since likeness means something only near the top.
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
    """For each text whether it is shown though it has no word of the query."""
    import numpy as np

    if not has_words:
        # The best model alone: to the others, letters in any order are like something.
        return likenesses[0].to_nearest >= _MIN_WITHOUT_WORDS
    return np.max([each.to_nearest for each in likenesses], axis=0) >= _MIN_ALONE


def _meaning(likeness: Likeness) -> Vector:
    """Half by all sentences together, half by the one that fits best.

    One vector of a task that asks for three things is like none of the three tools. But a sentence
    by itself may lack what the others say it is about.
    """
    cosines = likeness.cosines.clip(min=0)
    together = _stretch(cosines.mean(axis=0, keepdims=True))[0]
    apart = _stretch(cosines).max(axis=0)
    return (together + apart) * (likeness.weight / 2)


def _stretch(cosines: Vector) -> Vector:
    """Squares of each row, of which the greatest is 1, or less where nothing is much alike."""
    return (cosines / cosines.max(axis=1, keepdims=True).clip(min=_MIN_BEST)) ** 2
