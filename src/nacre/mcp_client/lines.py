"""Lines out of chunks of bytes, none of them longer than allowed."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_MESSAGE_BYTES: Final = 32 * 1024 * 1024
"""The largest message that is taken from a server. Large results are cut down only after this."""

# A line of so many times what is allowed counts as endless.
_MAX_SKIPPED_LINES: Final = 16
# JSON-RPC ids stand at one end of a message: at the start as Python servers write it, at the end
# as JavaScript servers do.
_KEPT_BYTES: Final = 256
_ID_AT_START: Final = re.compile(rb'\A\s*\{[^{\[]*?"id"\s*:\s*(\d{1,15})')
_ID_AT_END: Final = re.compile(rb'"id"\s*:\s*(\d{1,15})[^{}\[\]]*\}\s*\Z')


class EndlessLineError(Exception):
    """A line that does not end; whoever writes it is not to be listened to any more."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SkippedLine:
    """A line that was too long to keep."""

    size_bytes: int
    answered_id: int | None
    """The id of the request that it seems to answer."""


class LineSplitter:
    """Takes chunks, gives whole lines without their ends; holds one line at most."""

    def __init__(self, *, max_bytes: int = MAX_MESSAGE_BYTES) -> None:
        self._max_bytes = max_bytes
        self._line = bytearray()
        self._size_bytes = 0

    def feed(self, chunk: bytes) -> Iterator[bytes | SkippedLine]:
        """The lines that this chunk completes; raises EndlessLineError."""
        *ended, rest = chunk.split(b"\n")
        for part in ended:
            self._add(part)
            yield self._take_line()
        self._add(rest)

    def _add(self, part: bytes) -> None:
        self._size_bytes += len(part)
        self._line += part
        if self._size_bytes > _MAX_SKIPPED_LINES * self._max_bytes:
            raise EndlessLineError
        if self._size_bytes > self._max_bytes:
            # From here on only its two ends are kept.
            self._line = self._line[:_KEPT_BYTES] + self._line[_KEPT_BYTES:][-_KEPT_BYTES:]

    def _take_line(self) -> bytes | SkippedLine:
        size_bytes, line = self._size_bytes, bytes(self._line)
        self._line, self._size_bytes = bytearray(), 0
        if size_bytes <= self._max_bytes:
            return line
        return SkippedLine(size_bytes=size_bytes, answered_id=answered_id(line))


def answered_id(line: bytes) -> int | None:
    """The id of the request that a message seems to answer, of which only the ends are known."""
    start, end = line[:_KEPT_BYTES], line[-_KEPT_BYTES:]
    found = _ID_AT_START.search(start) or _ID_AT_END.search(end)
    # What has a method is a request of the other side, with an id of its own.
    return None if found is None or b'"method"' in start else int(found[1])
