"""The interface of a transport, and the limits on one message.

The JSON decoder cannot be interrupted. It decodes megabytes of text quickly, but megabytes of
brackets take seconds, in which nothing else runs. So the number of parts is limited as well.
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
"""The number of opening brackets and commas outside of strings."""

_MARKS: Final = (b"[", b"{", b",")
_PIECE_BYTES: Final = 64 * 1024
_ESCAPED: Final = re.compile(rb"\\.")
# A string ends with its line at the latest, so a quote in an SSE comment hides nothing.
_TEXT: Final = re.compile(rb'"[^"\r\n]*"?')


class PartCounter:
    """Counts the parts of a message, or of a stream of events, that arrives in chunks."""

    def __init__(self) -> None:
        self.count = 0
        self._is_in_text = False
        self._is_escaping = False

    def feed(self, chunk: bytes) -> None:
        if not chunk:
            return
        # There are no backslashes outside of strings, so all escapes can be removed.
        plain = _ESCAPED.sub(b"", chunk[1:] if self._is_escaping else chunk)
        self._is_escaping = plain.endswith(b"\\")
        text = b'"' + plain if self._is_in_text else plain
        outside = _TEXT.sub(b"", text)
        self.count += sum(map(outside.count, _MARKS))
        last_line = text[max(text.rfind(b"\r"), text.rfind(b"\n")) + 1 :]
        self._is_in_text = last_line.count(b'"') % 2 == 1


def has_too_many_parts(message: bytes) -> bool:
    """Whether a message has more than MAX_MESSAGE_PARTS parts.

    Takes up to a second, in small steps, so that other threads can run.
    """
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
    """An open connection to a server."""

    streams: TransportStreams
    describe_end: Callable[[], Awaitable[str]]
    """Returns why the connection ended, or an empty string. Call it after the last message."""
    last_refusal: Callable[[], str]
    """Returns the last HTTP error, such as `HTTP 401 Unauthorized`, or an empty string."""
    pid: int | None = None
