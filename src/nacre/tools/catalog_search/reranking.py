"""Reranks the best candidates by word pairs, coverage and related terms."""

from __future__ import annotations

from itertools import pairwise
from operator import itemgetter
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

from nacre.lazy_dataclasses import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from nacre.tools.catalog_search.documents import Document


# The gain for two words that are adjacent in both the query and the text.
_PAIR: Final = 0.15
# Once in the name and once in the description; further repetitions add nothing.
_MAX_SAME_PAIRS: Final = 2
# The gain of a document with all words of the query, as a share of its score.
_COVERAGE: Final = 0.6
# Pseudo-relevance feedback: the first few results provide related terms.
_EXAMPLES: Final = 5
_RELATED_TERMS: Final = 30
_RELATED: Final = 0.25
# A query may ask for several things, so words that better results contain count a little less.
_ANSWERED: Final = 0.1
_PLACES_SPREAD: Final = 12


_Pair: TypeAlias = "tuple[str | None, str | None]"


class TermStatistics(Protocol):
    """Statistics on the terms of all documents."""

    def rarity(self, term: str) -> float:
        """The inverse document frequency of a term."""
        ...

    @property
    def greatest_rarity(self) -> float:
        """The rarity of a term that occurs in one document."""
        ...


@dataclass(kw_only=True, slots=True)
class Candidate:
    """A document with the parts of its score."""

    position: int
    document: Document
    words: float
    pairs: float = 0.0
    coverage: float = 0.0
    related: float = 0.0
    answered: float = 0.0

    @property
    def score(self) -> float:
        return self.words + self.pairs + self.coverage + self.related - self.answered


def rerank(
    candidates: Sequence[Candidate],
    terms: Sequence[str],
    weights: Mapping[str, float],
    statistics: TermStatistics,
    *,
    places: int,
) -> list[Candidate]:
    """Sort the candidates, best first; of equal ones those that read, in catalog order.

    Only the first `places` are in their final order. Related words never replace the first result
    that the words of the query found.
    """
    if not candidates:
        return []
    _add_pairs_and_coverage(candidates, terms, weights, statistics)
    by_own_words = sorted(candidates, key=_rank)
    first = by_own_words[0]
    _add_related(by_own_words, weights, statistics)
    others = sorted(by_own_words[1:], key=_rank)
    return _spread([first, *others], weights, places)


def _rank(candidate: Candidate) -> tuple[float, bool, int]:
    """The sort key. With equal scores, a tool that reads comes before one that writes."""
    return -candidate.score, not candidate.document.is_reading, candidate.position


def _add_pairs_and_coverage(
    candidates: Sequence[Candidate],
    terms: Sequence[str],
    weights: Mapping[str, float],
    statistics: TermStatistics,
) -> None:
    total = sum(weights.values())
    pairs: dict[_Pair, float] = {
        (one, other): _PAIR * (statistics.rarity(one) + statistics.rarity(other))
        for one, other in pairwise(terms)
        if one != other and one in weights and other in weights
    }
    for candidate in candidates:
        has = candidate.document.weights
        possible = {pair: gain for pair, gain in pairs.items() if pair[0] in has and pair[1] in has}
        if possible:
            candidate.pairs = _gain_of_pairs(candidate.document.prose, possible)
        covered = sum(weight for term, weight in weights.items() if term in has)
        candidate.coverage = (candidate.words + candidate.pairs) * _COVERAGE * covered / total


def _gain_of_pairs(prose: Sequence[str | None], pairs: Mapping[_Pair, float]) -> float:
    found = [pair for pair in pairwise(prose) if pair in pairs]
    different = dict.fromkeys(found)
    return sum(pairs[pair] * min(found.count(pair), _MAX_SAME_PAIRS) for pair in different)


def _add_related(
    best_first: Sequence[Candidate], weights: Mapping[str, float], statistics: TermStatistics
) -> None:
    related = _related_terms(best_first[:_EXAMPLES], weights, statistics)
    for candidate in best_first:
        has = candidate.document.weights
        candidate.related = sum(has[term] * weight for term, weight in related if term in has)


def _related_terms(
    examples: Sequence[Candidate], weights: Mapping[str, float], statistics: TermStatistics
) -> list[tuple[str, float]]:
    """The most typical terms of the examples that are not in the query, with their weights."""
    total = sum(example.score for example in examples)
    typical: dict[str, float] = {}
    for example in examples:
        share = example.score / total
        for term, weight in example.document.weights.items():
            if term not in weights:
                typical[term] = typical.get(term, 0.0) + weight * share
    rarities = {term: statistics.rarity(term) for term in typical}
    # A term that occurs in one document only is of no use for the others.
    greatest = statistics.greatest_rarity
    shared = [
        (-weight * rarities[term], term)
        for term, weight in typical.items()
        if rarities[term] < greatest
    ]
    heaviest = sorted(shared)[:_RELATED_TERMS]
    most = -heaviest[0][0] if heaviest else 0.0
    return [(term, _RELATED * -weight / most * rarities[term]) for weight, term in heaviest]


def _spread(
    best_first: list[Candidate], weights: Mapping[str, float], places: int
) -> list[Candidate]:
    """Diversify the first results, so that they cover different words of the query."""
    left = [(each, _term_gains(each, weights)) for each in best_first[:_PLACES_SPREAD]]
    most: dict[str, float] = {}
    for _, words in left:
        for term, gain in words.items():
            most[term] = max(gain, most.get(term, 0.0))
    times_answered = dict.fromkeys(most, 0.0)
    found: list[Candidate] = []
    place = 0
    while True:
        candidate, words = left.pop(place)
        found.append(candidate)
        if not left or len(found) >= places:
            return [*found, *(each for each, _ in left), *best_first[_PLACES_SPREAD:]]
        for term, gain in words.items():
            times_answered[term] += gain / most[term]
        less = {term: 1 - 1 / (1 + _ANSWERED * times) for term, times in times_answered.items()}
        place = _place_of_next(left, less)


def _place_of_next(
    left: Sequence[tuple[Candidate, Mapping[str, float]]], less: Mapping[str, float]
) -> int:
    """The index of the best candidate when answered words count less.

    `left` is sorted by the scores without that reduction.
    """
    best_place = 0
    best_rank = (0.0, False, 0)
    for place, (candidate, words) in enumerate(left):
        candidate.answered = 0.0
        # Scores only decrease, so no later candidate can be better than the best so far.
        if -candidate.score > best_rank[0]:
            break
        candidate.answered = sum(gain * less[term] for term, gain in words.items())
        best_place, best_rank = min(
            (best_place, best_rank), (place, _rank(candidate)), key=itemgetter(1)
        )
    return best_place


def _term_gains(candidate: Candidate, weights: Mapping[str, float]) -> dict[str, float]:
    has = candidate.document.weights
    return {term: has[term] * weight for term, weight in weights.items() if term in has}
