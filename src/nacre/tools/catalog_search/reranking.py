"""Reranks the best candidates by word pairs, coverage and related terms."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Final, Protocol

from nacre.lazy_dataclasses import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from nacre.tools.catalog_search.documents import Document, Pair
    from nacre.tools.catalog_search.inverted_index import PackedDocument


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
    document: Document | PackedDocument
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
    it = candidate
    # The score, without the call of a property: a search ranks some hundred times.
    score = it.words + it.pairs + it.coverage + it.related - it.answered
    return -score, not it.document.is_reading, it.position


def _add_pairs_and_coverage(
    candidates: Sequence[Candidate],
    terms: Sequence[str],
    weights: Mapping[str, float],
    statistics: TermStatistics,
) -> None:
    total = sum(weights.values())
    pairs: dict[Pair, float] = {
        (one, other): _PAIR * (statistics.rarity(one) + statistics.rarity(other))
        for one, other in pairwise(terms)
        if one != other and one in weights and other in weights
    }
    of_terms = list(weights.items())
    for candidate in candidates:
        has = candidate.document.weights
        possible = [pair for pair in pairs if pair[0] in has and pair[1] in has]
        if possible:
            counts = candidate.document.count_pairs(possible)
            candidate.pairs = sum(
                pairs[pair] * min(count, _MAX_SAME_PAIRS) for pair, count in counts.items()
            )
        # The sum of a list is faster than that of a generator.
        covered = [weight for term, weight in of_terms if term in has]
        own = candidate.words + candidate.pairs
        candidate.coverage = own * _COVERAGE * sum(covered) / total


def _add_related(
    best_first: Sequence[Candidate], weights: Mapping[str, float], statistics: TermStatistics
) -> None:
    related = _related_terms(best_first[:_EXAMPLES], weights, statistics)
    for candidate in best_first:
        has = candidate.document.weights
        gains = [has[term] * weight for term, weight in related if term in has]
        candidate.related = sum(gains)


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
    rarity_of = statistics.rarity
    # A term that occurs in one document only is of no use for the others.
    greatest = statistics.greatest_rarity
    rarities: dict[str, float] = {}
    shared: list[tuple[float, str]] = []
    for term, weight in typical.items():
        rarity = rarity_of(term)
        if rarity < greatest:
            rarities[term] = rarity
            shared.append((-weight * rarity, term))
    heaviest = sorted(shared)[:_RELATED_TERMS]
    most = -heaviest[0][0] if heaviest else 0.0
    return [(term, _RELATED * -weight / most * rarities[term]) for weight, term in heaviest]


def _spread(
    best_first: list[Candidate], weights: Mapping[str, float], places: int
) -> list[Candidate]:
    """Diversify the first results, so that they cover different words of the query."""
    left = [(each, each.score, _term_gains(each, weights)) for each in best_first[:_PLACES_SPREAD]]
    most: dict[str, float] = {}
    for _, _, words in left:
        for term, gain in words.items():
            if gain > most.get(term, 0.0):
                most[term] = gain
    less = dict.fromkeys(most, 0.0)
    times_answered = dict.fromkeys(most, 0.0)
    found: list[Candidate] = []
    place = 0
    while True:
        candidate, _, words = left.pop(place)
        found.append(candidate)
        if not left or len(found) >= places:
            return [*found, *(each for each, _, _ in left), *best_first[_PLACES_SPREAD:]]
        for term, gain in words.items():
            times = times_answered[term] = times_answered[term] + gain / most[term]
            less[term] = 1 - 1 / (1 + _ANSWERED * times)
        place = _place_of_next(left, less)


def _place_of_next(
    left: Sequence[tuple[Candidate, float, Mapping[str, float]]], less: Mapping[str, float]
) -> int:
    """The index of the best candidate when answered words count less.

    `left` is sorted by the scores without that reduction, which are in it.
    """
    best_place = 0
    best_rank = (0.0, False, 0)
    for place, (candidate, score, words) in enumerate(left):
        # Scores only decrease, so no later candidate can be better than the best so far.
        if -score > best_rank[0]:
            candidate.answered = 0.0
            break
        reductions = [gain * less[term] for term, gain in words.items()]
        candidate.answered = sum(reductions)
        rank = _rank(candidate)
        if rank < best_rank:
            best_place, best_rank = place, rank
    return best_place


def _term_gains(candidate: Candidate, weights: Mapping[str, float]) -> dict[str, float]:
    has = candidate.document.weights
    return {term: has[term] * weight for term, weight in weights.items() if term in has}
