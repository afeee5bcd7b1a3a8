"""Undoing gzip piece by piece: a few bytes may stand for gigabytes, gigabytes for none."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Final

from nacre.tools.core.web_hosts import WebProblem

if TYPE_CHECKING:
    from collections.abc import Iterator

_GZIP: Final = zlib.MAX_WBITS | 16
# Behind the end of one, another one may begin.
_GZIP_START: Final = b"\x1f"
_PIECE_BYTES: Final = 65_536


class Unpacking:
    """What a body was packed with, or nothing."""

    def __init__(self, *, is_gzip: bool) -> None:
        self._is_gzip = is_gzip
        self._inflater = zlib.decompressobj(_GZIP)
        self._is_begun = False

    @classmethod
    def for_encoding(cls, encoding: str) -> Unpacking:
        """As `Content-Encoding` names it; raises WebProblem for one that was not asked for."""
        match encoding.strip().lower():
            case "" | "identity":
                return cls(is_gzip=False)
            case "gzip" | "x-gzip":
                return cls(is_gzip=True)
            case other:
                raise WebProblem(f"the page is packed as {other[:60]!r}, which was not asked for")

    def pieces(self, chunk: bytes) -> Iterator[bytes]:
        """What the chunk stands for; none of the pieces is large. Raises `zlib.error`."""
        if not self._is_gzip:
            yield chunk
            return
        while chunk:
            if self._inflater.eof:
                if chunk[:1] != _GZIP_START:
                    # Filling, which some servers send.
                    return
                self._inflater = zlib.decompressobj(_GZIP)
            self._is_begun = True
            yield self._inflater.decompress(chunk, _PIECE_BYTES)
            chunk = self._inflater.unconsumed_tail or self._inflater.unused_data

    def finish(self) -> None:
        """Raises `zlib.error` if the end is missing."""
        if self._is_begun and not self._inflater.eof:
            raise zlib.error("the packed page has no end")
