"""Ranks documents for a query: BM25F finds the likeliest, then a closer look orders them.

Knows terms and positions only, so that one ranking serves every catalog with the same texts.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from typing import TYPE_CHECKING, Final

from nacre.tools.catalog_search.inverted_index import GONE, Vocabulary, scores_of_best
from nacre.tools.catalog_search.reranking import Candidate, rerank
from nacre.tools.catalog_search.terms import synonyms_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence, Set

    from nacre.tools.catalog_search.inverted_index import Layer

# A query may be a long text; the terms that say most are enough, and bound what it costs.
_MAX_QUERY_TERMS: Final = 96
# Guesses are for a word or two; a text full of unknown words is not worth them.
_MAX_GUESSED_TERMS: Final = 3
# How much more a term counts that the query repeats: so much of the logarithm of how often.
_REPETITION: Final = 0.75
# How much a word counts that means about the same as one of the query.
_SYNONYM: Final = 0.4
# What so many documents have tells little, and takes longest; of words that the query does not
# have, fewer are too many.
_COMMON_SHARE: Final = 0.1
_MIN_COMMON: Final = 500
_SHARE_OF_OTHERS: Final = 0.2
# More would cost more and change the first places hardly ever.
_CLOSELY_LOOKED_AT: Final = 24


class Ranking:
    """Layers of documents, with the position of each document in the catalog.

    What is in two layers ranks just as it would in one.
    """

    def __init__(self, *layers: tuple[Layer, Sequence[int]]) -> None:
        self._layers = layers
        self._gone: Counter[str] = Counter()
        self._document_count = 0
        self._has_gone: list[bool] = []
        for layer, positions in layers:
            gone = [slot for slot, position in enumerate(positions) if position == GONE]
            for slot in gone:
                self._gone.update(layer.documents[slot].weights.keys())
            self._document_count += len(positions) - len(gone)
            self._has_gone.append(bool(gone))
        self._rarities: dict[str, float] = {}

    def best(self, terms: Sequence[str], limit: int) -> list[Candidate]:
        """The documents that fit best, best first; equal ones in the order of the catalog."""
        weights = self.query_weights(terms)
        # All that are looked at closely, so that a smaller limit only shortens the list.
        likeliest = self._likeliest(weights, set(terms), max(limit, _CLOSELY_LOOKED_AT))
        close = rerank(likeliest[:_CLOSELY_LOOKED_AT], terms, weights, self, places=limit)
        return [*close, *likeliest[_CLOSELY_LOOKED_AT:]][:limit]

    @property
    def greatest_rarity(self) -> float:
        """Of a term that one document alone has."""
        return self._rarity_of(1)

    def rarity(self, term: str) -> float:
        """How much a term tells; 0 for one that no document has."""
        known = self._rarities.get(term)
        if known is None:
            known = self._rarity_of(self._count(term))
            # Only terms of documents are kept, and those have an end.
            if known:
                self._rarities[term] = known
        return known

    def _rarity_of(self, count: int) -> float:
        if not count:
            return 0.0
        return math.log(1 + (self._document_count - count + 0.5) / (count + 0.5))

    def _count(self, term: str) -> int:
        return sum(layer.count(term) for layer, _ in self._layers) - self._gone[term]

    def query_weights(self, terms: Sequence[str]) -> dict[str, float]:
        """The terms, or what they may stand for, with how much each counts; what tells most first.

        How much a term tells is part of it.
        """
        times = Counter(terms)
        rarities = {term: self.rarity(term) for term in times}
        weights = {
            term: rarity * (1 + _REPETITION * math.log(times[term]))
            for term, rarity in rarities.items()
            if rarity
        }
        unknown = [term for term, rarity in rarities.items() if not rarity]
        for _, other, weight in (*self._synonyms(rarities), *self._guesses(unknown)):
            weights.setdefault(other, weight)
        heaviest = sorted(weights.items(), key=lambda item: (-item[1], item[0]))
        return dict(heaviest[:_MAX_QUERY_TERMS])

    def stood_for(self, terms: Sequence[str]) -> dict[str, str]:
        """By terms that count though the query does not have them: the term that it has instead."""
        rarities = {term: self.rarity(term) for term in terms}
        unknown = [term for term, rarity in rarities.items() if not rarity]
        found: dict[str, str] = {}
        for term, other, _ in (*self._synonyms(rarities), *self._guesses(unknown)):
            if not rarities.get(other):
                found.setdefault(other, term)
        return found

    def _synonyms(self, rarities: Mapping[str, float]) -> Iterator[tuple[str, str, float]]:
        """No more than what the query's own word counts: that is the one that is meant."""
        for term, rarity in rarities.items():
            for synonym in synonyms_of(term):
                if tells := self.rarity(synonym):
                    yield term, synonym, _SYNONYM * min(tells, rarity or tells)

    def _guesses(self, unknown: Sequence[str]) -> Iterator[tuple[str, str, float]]:
        if not unknown:
            return
        vocabulary = Vocabulary([layer.terms for layer, _ in self._layers], self._is_known)
        for term in unknown[:_MAX_GUESSED_TERMS]:
            for guess, weight in vocabulary.guesses(term).items():
                yield term, guess, weight * self.rarity(guess)

    def _common(self, weights: Mapping[str, float], terms: Set[str]) -> Set[str]:
        """Terms that are not worth finding documents for; they still count in those found."""
        own = weights.keys() & terms or weights.keys()
        most = max(self._document_count * _COMMON_SHARE, _MIN_COMMON)
        most_of_others = most * _SHARE_OF_OTHERS
        common = {
            term
            for term in weights
            if self._count(term) > (most if term in own else most_of_others)
        }
        return common - own if own <= common else common

    def _is_known(self, term: str) -> bool:
        return self._count(term) > 0

    def _likeliest(
        self, weights: Mapping[str, float], terms: Set[str], limit: int
    ) -> list[Candidate]:
        common = self._common(weights, terms)
        found: list[Candidate] = []
        for (layer, positions), has_gone in zip(self._layers, self._has_gone, strict=True):
            scores = scores_of_best(
                layer, weights, common, limit, positions=positions if has_gone else None
            )
            found += [
                Candidate(position=positions[slot], document=layer.documents[slot], words=score)
                for slot, score in _best_of(scores, positions, limit)
            ]
        found.sort(key=lambda each: (-each.words, each.position))
        return found[:limit]


def _best_of(
    scores: Mapping[int, float], positions: Sequence[int], limit: int
) -> list[tuple[int, float]]:
    # The scores alone compare fast; of those that reach the last place, the order matters.
    if not scores:
        return []
    last = heapq.nlargest(limit, scores.values())[-1]
    reached = [(-score, positions[slot], slot) for slot, score in scores.items() if score >= last]
    return [(slot, -score) for score, _, slot in sorted(reached)[:limit]]
