"""Ranks documents for a query: BM25F selects candidates, then they are reranked.

It uses terms and positions only, so that all catalogs with the same texts share one ranking.
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

# A query may be a long text; the most informative terms are enough, and limit the cost.
_MAX_QUERY_TERMS: Final = 96
# Guesses help for a word or two, not for a text full of unknown words.
_MAX_GUESSED_TERMS: Final = 3
# The extra weight of a repeated term, times the logarithm of its count in the query.
_REPETITION: Final = 0.75
# The weight of a synonym of a word in the query.
_SYNONYM: Final = 0.4
# The same, if no document has the word itself.
_SYNONYM_OF_UNKNOWN: Final = 0.9
# A term in so many documents has little information and is the slowest to process. The limit for
# terms that are not in the query itself is lower.
_COMMON_SHARE: Final = 0.1
_MIN_COMMON: Final = 500
_SHARE_OF_OTHERS: Final = 0.2
# Reranking more candidates would hardly ever change the first results.
_MAX_RERANKED: Final = 24


class Ranking:
    """Layers of documents, with the position of each document in the catalog.

    The ranking does not depend on how documents are distributed over layers.
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
        """The best documents, best first; equal ones in the order of the catalog."""
        weights = self.query_weights(terms)
        # All candidates for reranking, so that a smaller limit only shortens the list.
        candidates = self._candidates(weights, set(terms), max(limit, _MAX_RERANKED))
        reranked = rerank(candidates[:_MAX_RERANKED], terms, weights, self, places=limit)
        return [*reranked, *candidates[_MAX_RERANKED:]][:limit]

    @property
    def greatest_rarity(self) -> float:
        """The rarity of a term that occurs in one document."""
        return self._rarity_of(1)

    def rarity(self, term: str) -> float:
        """The inverse document frequency of a term; 0 if no document contains it."""
        known = self._rarities.get(term)
        if known is None:
            known = self._rarity_of(self._count(term))
            # Only terms of documents are cached, so the cache is bounded.
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
        """The weights of the terms, their synonyms and guesses, largest first.

        They include the rarity of each term.
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
        """The term of the query for each synonym and guess."""
        rarities = {term: self.rarity(term) for term in terms}
        unknown = [term for term, rarity in rarities.items() if not rarity]
        found: dict[str, str] = {}
        for term, other, _ in (*self._synonyms(rarities), *self._guesses(unknown)):
            if not rarities.get(other):
                found.setdefault(other, term)
        return found

    def _synonyms(self, rarities: Mapping[str, float]) -> Iterator[tuple[str, str, float]]:
        """Each term with a synonym and its weight."""
        for term, rarity in rarities.items():
            for synonym in synonyms_of(term):
                # A synonym counts no more than the word in the query.
                if own_rarity := self.rarity(synonym):
                    share = _SYNONYM if rarity else _SYNONYM_OF_UNKNOWN
                    yield term, synonym, share * min(own_rarity, rarity or own_rarity)

    def _guesses(self, unknown: Sequence[str]) -> Iterator[tuple[str, str, float]]:
        if not unknown:
            return
        vocabulary = Vocabulary([layer.terms for layer, _ in self._layers], self._is_known)
        for term in unknown[:_MAX_GUESSED_TERMS]:
            for guess, weight in vocabulary.guesses(term).items():
                yield term, guess, weight * self.rarity(guess)

    def _common(self, weights: Mapping[str, float], terms: Set[str]) -> Set[str]:
        """Terms that select no documents, but count in the selected ones."""
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

    def _candidates(
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
    # Comparing scores alone is fast; only the results at the limit need the full order.
    if not scores:
        return []
    last = heapq.nlargest(limit, scores.values())[-1]
    reached = [(-score, positions[slot], slot) for slot, score in scores.items() if score >= last]
    return [(slot, -score) for score, _, slot in sorted(reached)[:limit]]
