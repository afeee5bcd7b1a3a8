"""Some documents turned around: for each term the documents that have it. Never changes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from nacre.tools.catalog_search.vocabulary import SortedTerms

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nacre.tools.catalog_search.documents import Document


@dataclass(frozen=True, kw_only=True, slots=True)
class Posting:
    """The documents that have a term, by their place in the layer, and what it counts in each.

    Lists, since they share their numbers with the documents and are read faster than arrays.
    """

    slots: list[int]
    weights: list[float]
    greatest: float
    """No document counts it for more."""


class Layer:
    """The documents of an index, or those that an index has beyond an older one."""

    def __init__(self, documents: Sequence[Document]) -> None:
        self.documents = documents
        found: dict[str, tuple[list[int], list[float]]] = {}
        for slot, document in enumerate(documents):
            for term, weight in document.weights.items():
                slots, weights = found.get(term) or found.setdefault(term, ([], []))
                slots.append(slot)
                weights.append(weight)
        self._postings = {
            term: Posting(slots=slots, weights=weights, greatest=max(weights))
            for term, (slots, weights) in found.items()
        }

    @cached_property
    def terms(self) -> SortedTerms:
        return SortedTerms(self._postings)

    def posting(self, term: str) -> Posting | None:
        return self._postings.get(term)

    def count(self, term: str) -> int:
        """How many documents have it."""
        posting = self._postings.get(term)
        return 0 if posting is None else len(posting.slots)
