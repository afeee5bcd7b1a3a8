"""Runs uvicorn with header timeouts, connection limits and an ordered shutdown."""

from __future__ import annotations

import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

import anyio
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

if TYPE_CHECKING:
    import asyncio
    import socket
    from collections.abc import AsyncGenerator

    from starlette.types import ASGIApp


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


_MAX_CONNECTIONS: Final = 2_000
# The database, sandboxes, MCP servers and providers need files of their own.
_FILES_PER_CONNECTION: Final = 2
_MAX_HEADER_BYTES: Final = 64 * 1024
# For answers that are being written when all runs have ended.
_SHUTDOWN_SECONDS: Final = 2


class HttpServer:
    """Serves an application that has no lifespan of its own."""

    def __init__(self, server: uvicorn.Server) -> None:
        self._server = server

    def stop_accepting(self) -> None:
        """No new connections; those that are open go on."""
        for server in self._server.servers:
            server.close()


@asynccontextmanager
async def http_server(app: ASGIApp, listener: socket.socket) -> AsyncGenerator[HttpServer]:
    """The server, which answers from here on; at the end, answers that are being written have a
    moment."""
    config = uvicorn.Config(
        app,
        http=HeaderTimeoutProtocol,
        lifespan="off",
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        # Nobody is trusted to say who somebody else is.
        proxy_headers=False,
        limit_concurrency=_max_connections(),
        h11_max_incomplete_event_size=_MAX_HEADER_BYTES,
        timeout_graceful_shutdown=_SHUTDOWN_SECONDS,
    )
    server = uvicorn.Server(config)
    config.load()
    server.lifespan = config.lifespan_class(config)
    await server.startup(sockets=[listener])
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(server.main_loop)
        try:
            yield HttpServer(server)
        finally:
            server.should_exit = True
            with anyio.CancelScope(shield=True):
                await server.shutdown(sockets=[listener])


def _max_connections() -> int:
    """How many there may be. Most systems give a process 1,024 files unless it asks for more."""
    if sys.platform == "win32":
        return _MAX_CONNECTIONS
    import resource

    wanted = _MAX_CONNECTIONS * _FILES_PER_CONNECTION
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = wanted if resource.RLIM_INFINITY in (soft, hard) else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < files:
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, hard))
    return max(1, files // _FILES_PER_CONNECTION)
