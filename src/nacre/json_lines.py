"""JSON-RPC over stdio: one message per line, with a limit on the length of a line.

The MCP client and the MCP server both use it. A line over the limit is not kept, but the request it
belongs to still needs an answer, so the id is read from the first and last bytes of the line.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from nacre.json_types import NotJsonError, decode_json, encode_json

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nacre.json_types import JsonValue

EDGE_BYTES: Final = 1024
"""How much of the start and the end of a long line is kept. Peers write the id first or last."""

_MAX_DIGITS: Final = 18
_MEMBER: Final = (
    rb'"(?:jsonrpc|method|id)"\s{0,9}:\s{0,9}'
    rb'(?:"(?:[^"\\]|\\.){0,200}"|-?[0-9]{1,%d})' % _MAX_DIGITS
)
_MEMBERS: Final = rb"%s(?:\s{0,9},\s{0,9}%s){0,2}" % (_MEMBER, _MEMBER)
_FIRST_MEMBERS: Final = re.compile(rb"\s{0,9}\{\s{0,9}(%s)" % _MEMBERS)
_LAST_MEMBERS: Final = re.compile(rb",\s{0,9}(%s)\s{0,9}\}\s{0,9}$" % _MEMBERS)


class EndlessLineError(Exception):
    """A line is so long that the peer does not seem to end it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LongLine:
    """A line over the limit: its size, and its first and last bytes."""

    size_bytes: int
    start: bytes
    end: bytes


Line: TypeAlias = bytes | LongLine


class LineReader:
    """Splits chunks of bytes into lines. Blank lines are skipped.

    It holds at most one line of `max_bytes`. Of a longer one it keeps only the two ends.
    """

    def __init__(self, *, max_bytes: int, max_skipped_bytes: int | None = None) -> None:
        self._max_bytes = max_bytes
        self._max_skipped_bytes = max_skipped_bytes
        self._clear()

    def feed(self, chunk: bytes) -> Iterator[Line]:
        """Yield the lines that this chunk completes, without their line ends.

        Raises EndlessLineError for a line of more than `max_skipped_bytes`.
        """
        *parts, rest = chunk.split(b"\n")
        for part in parts:
            self._add(part)
            yield from self.finish()
        self._add(rest)

    def finish(self) -> Iterator[Line]:
        """Yield the line read so far, if there is one. Call it at the end of the input."""
        size_bytes, start, line = self._size_bytes, self._start, bytes(self._line)
        self._clear()
        if start is not None:
            yield LongLine(size_bytes=size_bytes, start=start, end=line)
        elif line.strip():
            yield line

    def _clear(self) -> None:
        self._line = bytearray()
        self._size_bytes = 0
        self._start: bytes | None = None

    def _add(self, part: bytes) -> None:
        self._size_bytes += len(part)
        self._line += part
        if self._max_skipped_bytes is not None and self._size_bytes > self._max_skipped_bytes:
            raise EndlessLineError
        if self._start is None and self._size_bytes > self._max_bytes:
            self._start = bytes(self._line[:EDGE_BYTES])
        if self._start is not None:
            del self._line[:-EDGE_BYTES]


def encode_line(message: object) -> bytes:
    """Encode a message as one line. Half a surrogate pair becomes U+FFFD."""
    return encode_json(message) + b"\n"


def read_edges(start: bytes, end: bytes) -> JsonValue:
    """Return the `jsonrpc`, `method` and `id` of a message of which only the ends are known.

    Members that are not at one of the ends are missing, and the result is None if none is found.
    """
    found = (_FIRST_MEMBERS.match(start), _LAST_MEMBERS.search(end))
    members = b",".join(match[1] for match in found if match is not None)
    try:
        return decode_json(b"{%s}" % members) if members else None
    except NotJsonError:
        return None


def request_id(message: JsonValue) -> int | str | None:
    """Return the id of a request, or None if the message is not a request."""
    # A response has an id that this side chose, which may equal the id of a request of the peer.
    if not isinstance(message, dict) or "method" not in message:
        return None
    found = message.get("id")
    return found if isinstance(found, (int, str)) and not isinstance(found, bool) else None


def response_id(message: JsonValue) -> int | None:
    """Return the id of a response to a request of this side, which has integers as ids."""
    if not isinstance(message, dict) or "method" in message:
        return None
    found = message.get("id")
    return found if isinstance(found, int) and not isinstance(found, bool) else None
