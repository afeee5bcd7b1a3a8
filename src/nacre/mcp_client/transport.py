"""What every kind of connection gives: two streams of messages, and words for how it ended."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from mcp.client._transport import TransportStreams


@dataclass(frozen=True, kw_only=True, slots=True)
class Transport:
    """An open way to a server."""

    streams: TransportStreams
    how_it_ended: Callable[[], Awaitable[str]]
    """To be asked after the messages have ended; empty when it is not known."""
    last_refusal: Callable[[], str]
    """How the last request was refused, such as `HTTP 401 Unauthorized`; empty if it was not."""
    pid: int | None = None
