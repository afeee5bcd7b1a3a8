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


class Layer:
    """The documents of an index, or those that an index has beyond an older one."""

    def __init__(self, documents: Sequence[Document]) -> None:
        self.documents = documents
        self._postings: dict[str, Posting] = {}
        for slot, document in enumerate(documents):
            for term, weight in document.weights.items():
                posting = self._postings.get(term)
                if posting is None:
                    posting = self._postings[term] = Posting(slots=[], weights=[])
                posting.slots.append(slot)
                posting.weights.append(weight)

    @cached_property
    def terms(self) -> SortedTerms:
        return SortedTerms(self._postings)

    def posting(self, term: str) -> Posting | None:
        return self._postings.get(term)

    def count(self, term: str) -> int:
        """How many documents have it."""
        posting = self._postings.get(term)
        return 0 if posting is None else len(posting.slots)
