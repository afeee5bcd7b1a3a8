"""The interface of a transport, and the limit on the parts of one message.

A reader of JSON is not to be interrupted. Megabytes of text take it no time, as many brackets
take it seconds, in which nothing else runs.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from mcp.client._transport import TransportStreams


MAX_MESSAGE_BYTES: Final = 32 * 1024 * 1024
"""The largest message that is read from a server. Large results are truncated after this."""

MAX_MESSAGE_PARTS: Final = 200_000
"""Of brackets and commas outside of texts."""

_MARKS: Final = (b"[", b"{", b",")
_PIECE_BYTES: Final = 64 * 1024
_ESCAPED: Final = re.compile(rb"\\.")
# No text goes on in the next line, so a quote in a comment between events hides nothing.
_TEXT: Final = re.compile(rb'"[^"\r\n]*"?')


class PartCounter:
    """Takes a message in chunks, or a stream of events one after the other."""

    def __init__(self) -> None:
        self.count = 0
        self._is_in_text = False
        self._is_escaping = False

    def feed(self, chunk: bytes) -> None:
        if not chunk:
            return
        # Outside of texts there is no backslash, so every escape may go.
        plain = _ESCAPED.sub(b"", chunk[1:] if self._is_escaping else chunk)
        self._is_escaping = plain.endswith(b"\\")
        text = b'"' + plain if self._is_in_text else plain
        outside = _TEXT.sub(b"", text)
        self.count += sum(map(outside.count, _MARKS))
        last_line = text[max(text.rfind(b"\r"), text.rfind(b"\n")) + 1 :]
        self._is_in_text = last_line.count(b'"') % 2 == 1


def has_too_many_parts(message: bytes) -> bool:
    """Takes a second for the worst of messages, in small steps: other threads go on."""
    if sum(map(message.count, _MARKS)) <= MAX_MESSAGE_PARTS:
        return False
    counter = PartCounter()
    for start in range(0, len(message), _PIECE_BYTES):
        counter.feed(message[start : start + _PIECE_BYTES])
        if counter.count > MAX_MESSAGE_PARTS:
            return True
    return False


@dataclass(frozen=True, kw_only=True, slots=True)
class Transport:
    """An open way to a server."""

    streams: TransportStreams
    how_it_ended: Callable[[], Awaitable[str]]
    """To be asked after the messages have ended; empty when it is not known."""
    last_refusal: Callable[[], str]
    """How the last request was refused, such as `HTTP 401 Unauthorized`; empty if it was not."""
    pid: int | None = None
