"""The interface of a transport, and the limits on messages."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from mcp_types import (
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from mcp.client._transport import TransportStreams

    from nacre.mcp_client.process import OutputTail


MAX_MESSAGE_BYTES: Final = 32 * 1024 * 1024
"""The largest message that is read from a server. Large results are truncated after this."""

# Notifications beyond these numbers are dropped unread.
_MAX_NOTIFICATIONS: Final = 1_000
_NOTIFICATIONS_PER_SECOND: Final = 500
_METHOD_BYTES: Final = 200
# A response may quote a notification.
_KEPT_WORDS: Final = (b"list_changed", b"cancelled", b'"result"', b'"error"')
# Requests beyond this number without a response are dropped. To pause instead would block a server
# that sends them all before it reads a response.
_MAX_OPEN_REQUESTS: Final = 1_000


class Inflow:
    """Limits the notifications and requests that a server sends over one connection."""

    def __init__(self, tail: OutputTail) -> None:
        self._tail = tail
        self._notifications_left = float(_MAX_NOTIFICATIONS)
        self._refilled_at = time.monotonic()
        self._open_requests: set[str | int] = set()
        self._noted: set[str] = set()

    def drops(self, encoded: bytes) -> bool:
        """Whether to drop this message unread, because it is one notification too many."""
        start = encoded[:_METHOD_BYTES]
        if b'"notifications/' not in start or any(word in start for word in _KEPT_WORDS):
            return False
        now = time.monotonic()
        refill = (now - self._refilled_at) * _NOTIFICATIONS_PER_SECOND
        self._refilled_at = now
        self._notifications_left = min(self._notifications_left + refill, _MAX_NOTIFICATIONS) - 1
        if self._notifications_left >= 0:
            return False
        self._notifications_left = 0
        self._note_drop("notifications")
        return True

    def admits(self, message: JSONRPCMessage) -> bool:
        """Whether to handle the message. Notes requests, and those that the server cancels."""
        match message:
            case JSONRPCRequest() if len(self._open_requests) >= _MAX_OPEN_REQUESTS:
                self._note_drop("requests")
                return False
            case JSONRPCRequest():
                self._open_requests.add(message.id)
            case JSONRPCNotification(method="notifications/cancelled"):
                # It gets no response.
                cancelled = (message.params or {}).get("requestId")
                if isinstance(cancelled, str | int):
                    self._open_requests.discard(cancelled)
            case _:
                pass
        return True

    def note_sent(self, message: JSONRPCMessage) -> None:
        if isinstance(message, JSONRPCResponse | JSONRPCError) and message.id is not None:
            self._open_requests.discard(message.id)

    def _note_drop(self, what: str) -> None:
        if what not in self._noted:
            self._noted.add(what)
            self._tail.add_line(f"too many {what}; some are dropped".encode(), label="limit")


@dataclass(frozen=True, kw_only=True, slots=True)
class Transport:
    """An open connection to a server."""

    streams: TransportStreams
    inflow: Inflow
    """The transport drops notifications with it; its user has to do so with requests."""
    describe_end: Callable[[], Awaitable[str]]
    """Returns why the connection ended, or an empty string. Call it after the last message."""
    last_refusal: Callable[[], str]
    """Returns the last HTTP error, such as `HTTP 401 Unauthorized`, or an empty string."""
    pid: int | None = None
