"""The sums of BM25F for the documents of a layer, as far as they matter for the first places."""

from __future__ import annotations

import heapq
from itertools import accumulate
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence, Set

    from nacre.tools.catalog_search.layer import Layer, Posting

GONE: Final = -1
"""The position of a document that its layer has and the catalog has no more."""

# Sums in another order differ in their last digits.
_ROUNDING: Final = 1 + 1e-9
# Below so many entries of lists, reading them all is the quickest way.
_FEW_ENTRIES: Final = 1_000
# To look into a document takes so many times as long as to read the next entry of a list.
_LOOK_COST: Final = 4

_Term: TypeAlias = "tuple[str, Posting, float]"


def scores_of_best(
    layer: Layer,
    weights: Mapping[str, float],
    common: Set[str],
    count: int,
    *,
    positions: Sequence[int] | None,
) -> dict[int, float]:
    """By slot, with the so many best documents among them, whose scores are whole.

    `common` terms count in documents that the terms before them found. `positions` says what is
    gone; None where nothing is. The terms that tell most come first and have the shortest lists:
    mostly it is clear who can still be among the best before the long ones are read.
    """
    terms = [
        (term, posting, weight)
        for term, weight in weights.items()
        if (posting := layer.posting(term)) is not None
    ]
    entries_to_come = _sums_from_each(len(posting.slots) for _, posting, _ in terms)
    to_come = _sums_from_each(posting.greatest * weight for _, posting, weight in terms)
    scores: dict[int, float] = {}
    least: float | None = None
    for number, (term, posting, weight) in enumerate(terms):
        is_long = entries_to_come[number] > _FEW_ENTRIES + count * len(terms) * _LOOK_COST
        if least is None and is_long and len(scores) >= count:
            least = _least_of_some(_drop_gone(scores, positions), layer, terms[number:], count)
        if least is not None and to_come[number] * _ROUNDING < least:
            scores = _complete_scores(scores, layer, terms[number:], to_come[number:], least)
            break
        if term in common:
            _add_to_known(scores, layer, terms[number])
        else:
            _add(scores, posting, weight)
    return _drop_gone(scores, positions)


def _sums_from_each(numbers: Iterable[float]) -> list[float]:
    """For each the sum of it and of those after it."""
    return list(accumulate(reversed(list(numbers))))[::-1]


def _drop_gone(scores: dict[int, float], positions: Sequence[int] | None) -> dict[int, float]:
    if positions is None:
        return scores
    return {slot: score for slot, score in scores.items() if positions[slot] != GONE}


def _least_of_some(
    scores: Mapping[int, float], layer: Layer, terms: Sequence[_Term], count: int
) -> float:
    """What the last of the so many best has at least in the end: that of any so many serves."""
    some = heapq.nlargest(count, scores, key=scores.__getitem__)
    whole = {slot: scores[slot] for slot in some}
    for term in terms:
        _add_to_known(whole, layer, term)
    return min(whole.values()) if len(whole) == count else 0.0


def _complete_scores(
    scores: dict[int, float],
    layer: Layer,
    terms: Sequence[_Term],
    to_come: Sequence[float],
    least: float,
) -> dict[int, float]:
    """Those that can still reach `least`; nobody else can."""
    for term, most in zip(terms, to_come, strict=True):
        if len(term[1].slots) * _LOOK_COST > len(scores):
            missing = least - most * _ROUNDING
            scores = {slot: score for slot, score in scores.items() if score >= missing}
        _add_to_known(scores, layer, term)
    return scores


def _add_to_known(scores: dict[int, float], layer: Layer, added: _Term) -> None:
    term, posting, weight = added
    if len(scores) * _LOOK_COST < len(posting.slots):
        documents = layer.documents
        for slot in scores:
            if (each := documents[slot].weights.get(term)) is not None:
                scores[slot] += each * weight
    else:
        for slot, each in zip(posting.slots, posting.weights, strict=True):
            if slot in scores:
                scores[slot] += each * weight


def _add(scores: dict[int, float], posting: Posting, weight: float) -> None:
    score_of = scores.get
    for slot, each in zip(posting.slots, posting.weights, strict=True):
        scores[slot] = score_of(slot, 0.0) + each * weight
