"""Source maps: map a position in transformed code back to the original program.

Only the `mappings` of a source map are read. They come from a worker and are untrusted.
"""

from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Final

# Enough for two megabytes of source, which is larger than any program.
MAX_MAPPINGS_LENGTH: Final = 1 << 20

_ALPHABET: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
_DIGITS: Final = {character: digit for digit, character in enumerate(_ALPHABET)}
_CONTINUED: Final = 32
_MAX_SHIFT: Final = 30
_MAX_SEGMENT_LENGTH: Final = 5 * (_MAX_SHIFT // 5 + 1)
_MAX_POSITION: Final = 1 << 31


class PositionMap:
    """Maps positions in transformed code to the source. Lines and columns count from 1."""

    def __init__(self) -> None:
        # The segments of all lines, and the index of the first segment of each line. Arrays limit
        # the memory of a hostile map to a few times its size.
        self._columns = array("I")
        self._original_lines = array("I")
        self._original_columns = array("I")
        self._line_starts = array("I", [0])

    @classmethod
    def from_mappings(cls, mappings: str) -> "PositionMap":
        """Decode the `mappings` of a source map with one source. Raises ValueError if invalid."""
        if len(mappings) > MAX_MAPPINGS_LENGTH:
            raise ValueError(
                f"mappings of {len(mappings)} characters; at most {MAX_MAPPINGS_LENGTH} are read"
            )
        found = cls()
        line = column = 0
        for text in mappings.split(";") if mappings else ():
            generated = 0
            for fields in _segments(text):
                generated += fields[0]
                if len(fields) > 1:
                    line += fields[2]
                    column += fields[3]
                    found._add(generated, line, column)
            found._line_starts.append(len(found._columns))
        return found

    def original(self, line: int, column: int) -> tuple[int, int] | None:
        """Return the line and column in the source, or those of the nearest segment before."""
        if line < 1:
            return None
        line = min(line, len(self._line_starts))
        start = self._line_starts[line - 1]
        end = self._line_starts[line] if line < len(self._line_starts) else start
        found = bisect_right(self._columns, column - 1, start, end) - 1
        if found < start < end:
            # Before the first segment of this line.
            found = start
        if found < 0:
            return None
        return self._original_lines[found] + 1, self._original_columns[found] + 1

    def _add(self, generated: int, line: int, column: int) -> None:
        if not (
            0 <= generated < _MAX_POSITION
            and 0 <= line < _MAX_POSITION
            and 0 <= column < _MAX_POSITION
        ):
            raise ValueError(f"invalid position: {generated} from {line}:{column}")
        if len(self._columns) > self._line_starts[-1] and generated < self._columns[-1]:
            raise ValueError(f"column {generated} after column {self._columns[-1]}")
        self._columns.append(generated)
        self._original_lines.append(line)
        self._original_columns.append(column)


# Cached because a few segments make up most of a map.
@lru_cache(maxsize=4096)
def decode_segment(text: str) -> tuple[int, ...]:
    """Decode one segment: a column, optionally source, line and column, optionally a name."""
    if len(text) > _MAX_SEGMENT_LENGTH:
        raise ValueError(f"{text[:40]!r}... is too long for a segment")
    fields: list[int] = []
    value = shift = 0
    for character in text:
        digit = _DIGITS.get(character)
        if digit is None:
            raise ValueError(f"{character!r} is not a base64 digit")
        value |= (digit & (_CONTINUED - 1)) << shift
        if digit & _CONTINUED:
            shift += 5
            if shift > _MAX_SHIFT:
                raise ValueError(f"a number in {text!r} has too many digits")
        else:
            fields.append(-(value >> 1) if value & 1 else value >> 1)
            value = shift = 0
    if shift or len(fields) not in (1, 4, 5):
        raise ValueError(f"{text!r} is not a segment")
    return tuple(fields)


def encode_segment(fields: Sequence[int]) -> str:
    """Encode the fields of one segment."""
    digits: list[str] = []
    for field in fields:
        value = -field << 1 | 1 if field < 0 else field << 1
        while value >= _CONTINUED:
            digits.append(_ALPHABET[value & (_CONTINUED - 1) | _CONTINUED])
            value >>= 5
        digits.append(_ALPHABET[value])
    return "".join(digits)


def _segments(line: str) -> Iterator[tuple[int, ...]]:
    return map(decode_segment, filter(None, line.split(",")))
