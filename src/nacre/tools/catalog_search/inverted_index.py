"""An immutable inverted index: postings, BM25F scores, and guesses for unknown terms."""

from __future__ import annotations

import heapq
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from functools import cached_property
from itertools import accumulate, count, pairwise
from struct import Struct
from typing import TYPE_CHECKING, Any, Final, TypeAlias, overload

from nacre.lazy_dataclasses import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Set

    from nacre.tools.catalog_search.documents import Document, Pair


_MIN_CHARACTERS: Final = 4
_MIN_HALF_CHARACTERS: Final = 3
_MAX_CONTINUATIONS: Final = 4
_MAX_CORRECTIONS: Final = 3
# The weight of a guess, relative to a known term.
_CONTINUATION_WEIGHT: Final = 0.6
_CORRECTION_WEIGHT: Final = 0.6
_HALVES_WEIGHT: Final = 0.4


class SortedTerms:
    """Terms, indexed for prefix and typo lookups."""

    def __init__(self, terms: Iterable[str]) -> None:
        self._sorted = sorted(terms)
        # Typos in the first letter are rare, and a typo changes the length by at most one.
        self._by_start_and_length: dict[tuple[str, int], list[str]] = {}
        for term in self._sorted:
            self._by_start_and_length.setdefault((term[0], len(term)), []).append(term)

    def continuations(self, term: str) -> list[str]:
        start = bisect_left(self._sorted, term)
        end = bisect_left(self._sorted, f"{term}\U0010ffff", lo=start)
        return self._sorted[start:end]

    def corrections(self, term: str) -> Iterator[str]:
        for length in (len(term), len(term) + 1, len(term) - 1):
            for candidate in self._by_start_and_length.get((term[0], length), ()):
                if _is_one_edit_away(term, candidate):
                    yield candidate


class Vocabulary:
    """The terms of all layers for which `is_known` is true."""

    def __init__(self, layers: Sequence[SortedTerms], is_known: Callable[[str], bool]) -> None:
        self._layers = layers
        self._is_known = is_known

    def guesses(self, term: str) -> dict[str, float]:
        """Guesses for an unknown term with their weights: completions, else typo corrections,
        else two known words."""
        if len(term) < _MIN_CHARACTERS:
            return {}
        if continuations := self._continuations(term):
            return dict.fromkeys(continuations, _CONTINUATION_WEIGHT / len(continuations))
        if corrections := self._corrections(term):
            return dict.fromkeys(corrections, _CORRECTION_WEIGHT / len(corrections))
        return dict.fromkeys(self._halves(term), _HALVES_WEIGHT)

    def _continuations(self, term: str) -> list[str]:
        found = {each for layer in self._layers for each in layer.continuations(term)}
        return self._first_known(found, _MAX_CONTINUATIONS)

    def _corrections(self, term: str) -> list[str]:
        found = {each for layer in self._layers for each in layer.corrections(term)}
        return self._first_known(found, _MAX_CORRECTIONS)

    def _first_known(self, terms: Iterable[str], limit: int) -> list[str]:
        known = filter(self._is_known, terms)
        return sorted(known, key=lambda each: (len(each), each))[:limit]

    def _halves(self, term: str) -> tuple[str, ...]:
        for middle in range(len(term) - _MIN_HALF_CHARACTERS, _MIN_HALF_CHARACTERS - 1, -1):
            halves = (term[:middle], term[middle:])
            if all(map(self._is_known, halves)):
                return halves
        return ()


def _is_one_edit_away(one: str, other: str) -> bool:
    """Whether one letter is replaced, inserted or deleted, or two adjacent ones are swapped."""
    if len(one) > len(other):
        one, other = other, one
    start = 0
    while start < len(one) and one[start] == other[start]:
        start += 1
    rest, other_rest = one[start:], other[start:]
    if len(one) < len(other):
        return rest == other_rest[1:]
    return rest[1:] == other_rest[1:] or (
        rest[:2] == other_rest[1::-1] and rest[2:] == other_rest[2:]
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Posting:
    """The documents with a term, by their slot in the layer, and its weight in each."""

    slots: array[int]
    """In ascending order."""
    weights: array[float]
    greatest: float
    """The maximum of the weights."""


# In place of a term, the border between two fields.
_BORDER: Final = -1
# Documents that are kept after they are read, some 1.4 MB: all of a small catalog.
_MAX_RECENT: Final = 1_024
_PAIR_OF_NUMBERS: Final = Struct("@ii")
_NUMBER_BYTES: Final = _PAIR_OF_NUMBERS.size // 2


class PackedDocument:
    """A document of `PackedDocuments`."""

    __slots__ = ("_documents", "_slot", "is_reading", "weights")

    def __init__(self, documents: PackedDocuments, slot: int, weights: dict[str, float]) -> None:
        self._documents = documents
        self._slot = slot
        self.weights = weights
        self.is_reading = documents.is_reading[slot] != 0

    @property
    def prose(self) -> tuple[str | None, ...]:
        return self._documents.prose_of(self._slot)

    def count_pairs(self, pairs: Iterable[Pair]) -> dict[Pair, int]:
        """As for `Document`; it searches the numbers, which takes a fraction of reading words."""
        numbers, prose = self._documents.numbers, self._documents.prose_bytes_of(self._slot)
        found: list[tuple[int, int, Pair]] = []
        for pair in pairs:
            sought = _PAIR_OF_NUMBERS.pack(numbers[pair[0]], numbers[pair[1]])
            first, count, place = -1, 0, prose.find(sought)
            while place >= 0:
                # Otherwise, the bytes are of parts of three numbers.
                if place % _NUMBER_BYTES == 0:
                    first, count = (first if count else place), count + 1
                place = prose.find(sought, place + 1)
            if count:
                found.append((first, count, pair))
        return {pair: count for _, count, pair in sorted(found)}


class PackedDocuments(Sequence["PackedDocument"]):
    """Documents in a few arrays, with a number for each term, which takes a fraction of the memory
    of objects for each of them. Reading one takes some microseconds."""

    def __init__(self) -> None:
        # The terms in the order of their numbers.
        self.numbers: dict[str, int] = {}
        # The same, and then None for the border.
        self._words: list[str | None] = []
        # Where the terms and the prose of each document begin; the last number is the end.
        self.term_starts = array("I", [0])
        self.terms = array("I")
        self.weights = array("f")
        self.prose_starts = array("I", [0])
        self.prose = array("i")
        self.is_reading = array("B")
        self._recent: dict[int, PackedDocument] = {}

    def add(self, document: Document | PackedDocument) -> None:
        self.terms.extend(map(self._number_of, document.weights))
        self.weights.extend(document.weights.values())
        self.term_starts.append(len(self.terms))
        self.prose.extend(
            [_BORDER if term is None else self._number_of(term) for term in document.prose]
        )
        self.prose_starts.append(len(self.prose))
        self.is_reading.append(document.is_reading)

    def _number_of(self, term: str) -> int:
        return self.numbers.setdefault(term, len(self.numbers))

    def __len__(self) -> int:
        return len(self.is_reading)

    @overload
    def __getitem__(self, slot: int) -> PackedDocument: ...

    @overload
    def __getitem__(self, slot: slice) -> list[PackedDocument]: ...

    def __getitem__(self, slot: int | slice) -> PackedDocument | list[PackedDocument]:
        if isinstance(slot, slice):
            return [self._read(each) for each in range(*slot.indices(len(self)))]
        document = self._recent.get(slot)
        if document is None:
            document = self._read(slot)
            if len(self._recent) >= _MAX_RECENT:
                self._recent.clear()
            self._recent[slot] = document
        return document

    def _read(self, slot: int) -> PackedDocument:
        starts = self.term_starts
        start, end = starts[slot], starts[slot + 1]
        words: Iterable[Any] = map(self._words_by_number().__getitem__, self.terms[start:end])
        return PackedDocument(self, slot, dict(zip(words, self.weights[start:end], strict=True)))

    def prose_of(self, slot: int) -> tuple[str | None, ...]:
        prose = self.prose[self.prose_starts[slot] : self.prose_starts[slot + 1]]
        return tuple(map(self._words_by_number().__getitem__, prose))

    def prose_bytes_of(self, slot: int) -> bytes:
        return self.prose[self.prose_starts[slot] : self.prose_starts[slot + 1]].tobytes()

    def _words_by_number(self) -> list[str | None]:
        if len(self._words) <= len(self.numbers):
            self._words = [*self.numbers, None]
        return self._words


class Layer:
    """The documents of an index, or those that were added to an older index."""

    def __init__(self, documents: Iterable[Document | PackedDocument]) -> None:
        if not isinstance(documents, PackedDocuments):
            packed = PackedDocuments()
            for document in documents:
                packed.add(document)
            documents = packed
        self.documents = documents
        # The postings of all terms one after the other, in the order of their numbers.
        counts = Counter(documents.terms)
        self._starts = array("I", accumulate(map(counts.__getitem__, documents.numbers.values())))
        self._starts.insert(0, 0)
        self._slots = array("I", bytes(4 * len(documents.terms)))
        self._weights = array("f", bytes(4 * len(documents.terms)))
        self._greatest = array("f", bytes(4 * len(documents.numbers)))
        self._invert()

    def _invert(self) -> None:
        slots, weights, greatest = self._slots, self._weights, self._greatest
        places = self._starts[:-1]
        starts = self.documents.term_starts
        for slot, (start, end) in enumerate(pairwise(starts)):
            terms, of_document = self.documents.terms[start:end], self.documents.weights[start:end]
            for term, weight in zip(terms, of_document, strict=True):
                place = places[term]
                places[term] = place + 1
                slots[place] = slot
                weights[place] = weight
                if weight > greatest[term]:
                    greatest[term] = weight

    @classmethod
    def from_arrays(cls, words: Sequence[str], arrays: Sequence[bytes | memoryview]) -> Layer:
        """The layer with these terms and arrays; raises ValueError if they do not fit together."""
        layer = cls(())
        documents = layer.documents
        documents.numbers.update(zip(words, count()))
        for target, content in zip(layer.arrays(), arrays, strict=True):
            del target[:]
            target.frombytes(content)
        layer._check()
        return layer

    def arrays(self) -> tuple[array[int] | array[float], ...]:
        """All that `from_arrays` needs, besides the terms."""
        it = self.documents
        of_documents = (it.term_starts, it.terms, it.weights)
        of_prose = (it.prose_starts, it.prose, it.is_reading)
        return *of_documents, *of_prose, self._starts, self._slots, self._weights, self._greatest

    def _check(self) -> None:
        it = self.documents
        size, term_count, entry_count = len(it), len(it.numbers), len(it.terms)
        expected = (size + 1, entry_count, entry_count, size + 1, len(it.prose), size)
        expected += (term_count + 1, entry_count, entry_count, term_count)
        ends = (it.term_starts[-1:], it.prose_starts[-1:], self._starts[-1:])
        if (
            tuple(map(len, self.arrays())) != expected
            or [each[0] for each in ends] != [entry_count, len(it.prose), entry_count]
            or max(it.terms, default=0) >= max(term_count, 1)
        ):
            raise ValueError("its arrays do not fit together")

    @cached_property
    def terms(self) -> SortedTerms:
        return SortedTerms(self.documents.numbers)

    def posting(self, term: str) -> Posting | None:
        number = self.documents.numbers.get(term)
        if number is None:
            return None
        start, end = self._starts[number], self._starts[number + 1]
        # Copies, which are faster to read than views and take microseconds to make.
        return Posting(
            slots=self._slots[start:end],
            weights=self._weights[start:end],
            greatest=self._greatest[number],
        )

    def count(self, term: str) -> int:
        """The number of documents with the term."""
        number = self.documents.numbers.get(term)
        return 0 if number is None else self._starts[number + 1] - self._starts[number]


GONE: Final = -1
"""The position of a document that is in its layer but no longer in the catalog."""

# Tolerance for sums in a different order.
_ROUNDING: Final = 1 + 1e-9
# With fewer postings, reading all of them is fastest.
_FEW_ENTRIES: Final = 1_000
# The cost of a lookup in a document, relative to reading the next posting.
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
    """Scores by slot; the `count` best documents are among them, with complete scores.

    `common` terms count only in documents that earlier terms selected. `positions` marks removed
    documents; None if there are none. Terms with the largest weights come first and have the
    shortest lists. So it is usually clear which documents can be among the best before the long
    lists are read.
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
    """The suffix sums of the numbers."""
    return list(accumulate(reversed(list(numbers))))[::-1]


def _drop_gone(scores: dict[int, float], positions: Sequence[int] | None) -> dict[int, float]:
    if positions is None:
        return scores
    return {slot: score for slot, score in scores.items() if positions[slot] != GONE}


def _least_of_some(
    scores: Mapping[int, float], layer: Layer, terms: Sequence[_Term], count: int
) -> float:
    """A lower bound of the final score of the last of the `count` best documents."""
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
    """Complete the scores of the documents that can still reach `least`; drop the others."""
    for term, most in zip(terms, to_come, strict=True):
        if len(term[1].slots) * _LOOK_COST > len(scores):
            missing = least - most * _ROUNDING
            scores = {slot: score for slot, score in scores.items() if score >= missing}
        _add_to_known(scores, layer, term)
    return scores


def _add_to_known(scores: dict[int, float], layer: Layer, added: _Term) -> None:
    _, posting, weight = added
    if len(scores) * _LOOK_COST < len(posting.slots):
        slots, weights, count = posting.slots, posting.weights, len(posting.slots)
        for slot in scores:
            place = bisect_left(slots, slot)
            if place < count and slots[place] == slot:
                scores[slot] += weights[place] * weight
    else:
        for slot, each in zip(posting.slots, posting.weights, strict=True):
            if slot in scores:
                scores[slot] += each * weight


def _add(scores: dict[int, float], posting: Posting, weight: float) -> None:
    score_of = scores.get
    for slot, each in zip(posting.slots, posting.weights, strict=True):
        scores[slot] = score_of(slot, 0.0) + each * weight
