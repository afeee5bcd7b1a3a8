"""What a term that no text has may stand for: a word that goes on, a typing error, two words."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

_MIN_CHARACTERS: Final = 4
_MIN_HALF: Final = 3
_MAX_CONTINUATIONS: Final = 4
_MAX_CORRECTIONS: Final = 3
# How much a guess counts beside a term that is meant for sure.
_CONTINUATION_WEIGHT: Final = 0.6
_CORRECTION_WEIGHT: Final = 0.6
_HALVES_WEIGHT: Final = 0.4


class SortedTerms:
    """Terms, arranged for guesses."""

    def __init__(self, terms: Iterable[str]) -> None:
        self._sorted = sorted(terms)
        # Few mistype the first letter, and a typing error changes the length by one at most.
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
    """The terms of an index: those of its layers that `is_known` says are still in use."""

    def __init__(self, layers: Sequence[SortedTerms], is_known: Callable[[str], bool]) -> None:
        self._layers = layers
        self._is_known = is_known

    def guesses(self, term: str) -> dict[str, float]:
        """Terms that it may stand for and how much each counts; the best reading of it only."""
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
        for middle in range(len(term) - _MIN_HALF, _MIN_HALF - 1, -1):
            halves = (term[:middle], term[middle:])
            if all(map(self._is_known, halves)):
                return halves
        return ()


def _is_one_edit_away(one: str, other: str) -> bool:
    """Whether one letter was changed, added or left out, or two neighbours change places."""
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
