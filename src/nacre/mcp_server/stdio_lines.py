"""The lines of a wire; of one that is too long nothing but its edges is kept."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from nacre.mcp_server.request_ids import EDGE_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_LINE_BYTES: Final = 4 * 1024 * 1024
_CHUNK_BYTES: Final = 64 * 1024


@dataclass(frozen=True, kw_only=True, slots=True)
class TooLongLine:
    """A message that nobody should have to hold in memory: what is kept of it."""

    start: bytes
    end: bytes


Line: TypeAlias = bytes | TooLongLine


def read_lines(fd: int) -> Iterator[Line]:
    """The lines of a file, without their ends; blocks. What is left at the end is a line, too."""
    line = _GrowingLine()
    while chunk := os.read(fd, _CHUNK_BYTES):
        *ended, rest = chunk.split(b"\n")
        for part in ended:
            line.add(part)
            if not line.is_empty:
                yield line.take()
            line = _GrowingLine()
        line.add(rest)
    if not line.is_empty:
        yield line.take()


class _GrowingLine:
    """A line as it is read; of one that is too long its start and end are kept."""

    def __init__(self) -> None:
        self._kept = bytearray()
        self._start: bytes | None = None

    def add(self, part: bytes) -> None:
        self._kept += part
        if self._start is None and len(self._kept) > MAX_LINE_BYTES:
            self._start = bytes(self._kept[:EDGE_BYTES])
        if self._start is not None:
            del self._kept[:-EDGE_BYTES]

    @property
    def is_empty(self) -> bool:
        return self._start is None and not self._kept.strip()

    def take(self) -> Line:
        if self._start is None:
            return bytes(self._kept)
        return TooLongLine(start=self._start, end=bytes(self._kept))
