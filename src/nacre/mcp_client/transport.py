"""The interface of a transport, and the limit on one message."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from mcp.client._transport import TransportStreams


MAX_MESSAGE_BYTES: Final = 32 * 1024 * 1024
"""The largest message that is read from a server. Large results are truncated after this."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Transport:
    """An open connection to a server."""

    streams: TransportStreams
    describe_end: Callable[[], Awaitable[str]]
    """Returns why the connection ended, or an empty string. Call it after the last message."""
    last_refusal: Callable[[], str]
    """Returns the last HTTP error, such as `HTTP 401 Unauthorized`, or an empty string."""
    pid: int | None = None
