"""What a command wrote: its beginning and its end are kept, and how much there was in all."""

from __future__ import annotations

import codecs
from dataclasses import dataclass
from typing import Final

_MAX_TRAIL_BYTES: Final = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class OutputPart:
    """Output from one position on."""

    text: str
    """With a line that says so where bytes were left out."""
    left_out_bytes: int
    next_position: int


class CommandOutput:
    """Bytes as they come, within a bound."""

    def __init__(self, most_bytes: int) -> None:
        self.total_bytes = 0
        self._head = bytearray()
        self._tail = bytearray()
        self._most_head = most_bytes // 2
        self._most_tail = most_bytes - self._most_head

    def add(self, data: bytes) -> None:
        """Keep what there is room for; of the middle nothing stays."""
        self.total_bytes += len(data)
        room = self._most_head - len(self._head)
        self._head += data[:room]
        self._tail += data[room:]
        # Cut now and then, not at every write: a cut moves all that stays.
        if len(self._tail) > 2 * self._most_tail:
            del self._tail[: -self._most_tail]

    @property
    def is_full(self) -> bool:
        """Whether something had to be left out."""
        return self.total_bytes > self._most_head + self._most_tail

    def part(self, position: int = 0, *, is_final: bool) -> OutputPart:
        """Output from a position on; a character that is not all there yet waits until it is."""
        position = min(position, self.total_bytes)
        tail = self._tail[-self._most_tail :]
        tail_start = self.total_bytes - len(tail)
        if position >= tail_start:
            text, used = _decode(tail[position - tail_start :], is_final=is_final)
            return OutputPart(text=text, left_out_bytes=0, next_position=position + used)
        head_size = len(self._head)
        if tail_start == head_size:
            text, used = _decode(self._head[position:] + tail, is_final=is_final)
            return OutputPart(text=text, left_out_bytes=0, next_position=position + used)
        before, used_before = _decode(self._head[position:], is_final=False)
        skipped = _trail_bytes(tail)
        after, used_after = _decode(tail[skipped:], is_final=is_final)
        resumes_at = tail_start + skipped
        left_out = resumes_at - position - used_before
        return OutputPart(
            text=f"{before}\n[... {left_out} bytes left out ...]\n{after}",
            left_out_bytes=left_out,
            next_position=resumes_at + used_after,
        )


def _decode(data: bytearray, *, is_final: bool) -> tuple[str, int]:
    """The text, and how many bytes it stands for; what is no UTF-8 becomes U+FFFD."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    text = decoder.decode(bytes(data), is_final)
    return text, len(data) - len(decoder.getstate()[0])


def _trail_bytes(data: bytearray) -> int:
    """How many bytes at the start belong to a character that began before."""
    count = 0
    while count < min(_MAX_TRAIL_BYTES, len(data)) and data[count] & 0xC0 == 0x80:
        count += 1
    return count
