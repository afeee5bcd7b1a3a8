"""Which names a wrong name may have meant: by its letters, fast over thousands of names."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

_MAX_CHARACTERS: Final = 200
# Letter pairs only choose whom to compare letter by letter, which is slow.
_MAX_COMPARED: Final = 40
_MIN_SIMILARITY: Final = 0.6
_BITS: Final = tuple(1 << bit for bit in range(256))
_BETWEEN_WORDS: Final = bytes(code for code in range(128) if not chr(code).isalnum())


class NearestNames:
    """Compares a text with names, without regard to case and to what stands between words."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names = tuple(dict.fromkeys(names))
        self._letters = [_letters(name) for name in self._names]
        self._signatures = [_signature(letters) for letters in self._letters]

    def nearest(self, text: str, limit: int) -> list[str]:
        """The names that are near, nearest first; among equals, in their order."""
        wanted = _letters(text)
        if not wanted:
            return []
        # Only on the way to an error, so that a sound run does not pay for the import.
        from difflib import SequenceMatcher

        matcher = SequenceMatcher(autojunk=False)
        matcher.set_seq2(wanted.decode())
        likely: list[tuple[float, int]] = []
        for position in self._candidates(_signature(wanted)):
            matcher.set_seq1(self._letters[position].decode())
            similarity = matcher.ratio()
            if similarity >= _MIN_SIMILARITY:
                likely.append((-similarity, position))
        return [self._names[position] for _, position in sorted(likely)[:limit]]

    def _candidates(self, wanted: int) -> list[int]:
        size = wanted.bit_count()
        # Dice's coefficient: twice what both have over what each has.
        overlaps = (
            ((wanted & signature).bit_count() * 2 / (size + signature.bit_count()), -position)
            for position, signature in enumerate(self._signatures)
            if wanted & signature
        )
        return [-position for _, position in heapq.nlargest(_MAX_COMPARED, overlaps)]


def _letters(name: str) -> bytes:
    encoded = name[:_MAX_CHARACTERS].lower().encode(errors="replace")
    return encoded.translate(None, delete=_BETWEEN_WORDS)


def _signature(letters: bytes) -> int:
    """The set of the letters' pairs as bits; a single letter is a pair with nothing."""
    signature = 0
    # Not `hash`, which differs from process to process.
    for first, second in zip(letters, letters[1:] or b" ", strict=False):
        signature |= _BITS[(first * 31 + second) & 255]
    return signature
