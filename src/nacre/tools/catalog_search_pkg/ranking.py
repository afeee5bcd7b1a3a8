"""Ranks documents for a query: BM25F, with what each term adds to each document worked out ahead.

Knows terms and positions only, so that one ranking serves every catalog with the same texts.
"""

from __future__ import annotations

import heapq
import math
from array import array
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from nacre.tools.search_vocabulary import Vocabulary

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

# How soon a repeated term adds no more.
_SATURATION: Final = 1.2
# A query may be a long text; the terms that say most are enough, and bound what it costs.
_MAX_QUERY_TERMS: Final = 48
# Guesses are for a word or two; a text full of unknown words is not worth them.
_MAX_GUESSED_TERMS: Final = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class Field:
    """A part of every document: how much its terms count, and how much its length takes away."""

    weight: float
    length_penalty: float


@dataclass(frozen=True, kw_only=True, slots=True)
class _Posting:
    """The documents that have a term, by position, and what it adds to the score of each."""

    positions: array[int]
    gains: array[float]
    most: float


class Ranking:
    """The documents' terms, turned around: for each term the documents that have it."""

    def __init__(
        self, documents: Sequence[Sequence[Sequence[str]]], *, fields: Sequence[Field]
    ) -> None:
        self._postings = {
            term: _posting(found, document_count=len(documents))
            for term, found in _documents_by_term(documents, fields).items()
        }
        self._vocabulary = Vocabulary(self._postings)

    def best(self, terms: Iterable[str], limit: int) -> list[int]:
        """The positions of the documents that fit best; equal ones in their order."""
        scores: dict[int, float] = {}
        for posting, weight in self._matches(terms):
            for position, gain in zip(posting.positions, posting.gains, strict=True):
                scores[position] = scores.get(position, 0.0) + gain * weight
        return _best_of(scores, limit)

    def _matches(self, terms: Iterable[str]) -> list[tuple[_Posting, float]]:
        """The postings of the terms, or of what they may stand for, and how much each counts."""
        weights: dict[str, float] = {}
        unknown: dict[str, None] = {}
        for term in terms:
            if term in self._postings:
                weights[term] = 1.0
            else:
                unknown[term] = None
        for term in list(unknown)[:_MAX_GUESSED_TERMS]:
            for guess, weight in self._vocabulary.guesses(term).items():
                weights.setdefault(guess, weight)
        matches = [(self._postings[term], weight) for term, weight in sorted(weights.items())]
        matches.sort(key=lambda match: -match[0].most * match[1])
        return matches[:_MAX_QUERY_TERMS]


def _documents_by_term(
    documents: Sequence[Sequence[Sequence[str]]], fields: Sequence[Field]
) -> dict[str, tuple[array[int], array[float]]]:
    """For each term the positions of its documents and its weighted frequency in each."""
    averages = [
        max(1.0, sum(len(document[place]) for document in documents) / max(1, len(documents)))
        for place in range(len(fields))
    ]
    by_term: dict[str, tuple[array[int], array[float]]] = {}
    for position, document in enumerate(documents):
        for term, frequency in _frequencies(document, fields, averages).items():
            found = by_term.get(term)
            if found is None:
                found = by_term[term] = (array("L"), array("d"))
            found[0].append(position)
            found[1].append(frequency)
    return by_term


def _frequencies(
    document: Sequence[Sequence[str]], fields: Sequence[Field], averages: Sequence[float]
) -> dict[str, float]:
    frequencies: dict[str, float] = {}
    for terms, field, average in zip(document, fields, averages, strict=True):
        penalty = field.length_penalty
        each = field.weight / (1 - penalty + penalty * len(terms) / average)
        for term in terms:
            frequencies[term] = frequencies.get(term, 0.0) + each
    return frequencies


def _posting(found: tuple[array[int], array[float]], *, document_count: int) -> _Posting:
    positions, frequencies = found
    rarity = math.log(1 + (document_count - len(positions) + 0.5) / (len(positions) + 0.5))
    gains = array(
        "d", (rarity * (_SATURATION + 1) * each / (_SATURATION + each) for each in frequencies)
    )
    return _Posting(positions=positions, gains=gains, most=max(gains))


def _best_of(scores: dict[int, float], limit: int) -> list[int]:
    # The scores alone compare fast; of those that reach the last place, the order matters.
    if not scores:
        return []
    last = heapq.nlargest(limit, scores.values())[-1]
    reached = [(-score, position) for position, score in scores.items() if score >= last]
    return [position for _, position in sorted(reached)[:limit]]
