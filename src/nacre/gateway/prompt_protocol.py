"""Connections that have to come to the point: uvicorn alone would wait for headers for ever."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from uvicorn.protocols.http.h11_impl import H11Protocol

if TYPE_CHECKING:
    import asyncio

HEADER_SECONDS: Final = 20.0

# Beyond uvicorn's limit, so many are told that it is reached; for more there would be no files.
_MAX_REJECTED: Final = 50


class HeaderTimeoutProtocol(H11Protocol):
    """Closes a connection whose next request is not there, headers and all, in time.

    A request that is being answered has limits elsewhere; and so has the pause after an answer,
    until more comes.
    """

    header_seconds = HEADER_SECONDS

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        most = self.limit_concurrency
        if most is not None and len(self.connections) > most + _MAX_REJECTED:
            transport.abort()
        else:
            self._expect_headers()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._is_answering:
            self._stop_expecting()
        elif self._deadline is None:
            self._expect_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_expecting()
        super().connection_lost(exc)

    @property
    def _is_answering(self) -> bool:
        # Not so once a request was turned away and the rest of its body still comes.
        return bool(self.cycle) and not self.cycle.response_complete

    def _expect_headers(self) -> None:
        self._deadline = self.loop.call_later(self.header_seconds, self._give_up)

    def _stop_expecting(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _give_up(self) -> None:
        self._deadline = None
        self.transport.close()
