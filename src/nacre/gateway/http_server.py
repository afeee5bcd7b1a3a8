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

# So many connections beyond uvicorn's limit get a 503; more would need too many files.
_MAX_REJECTED: Final = 50


class HeaderTimeoutProtocol(H11Protocol):
    """Closes a connection that does not send complete headers in time.

    The time does not count while a request is processed, nor between a response and the next
    request.
    """

    header_seconds = HEADER_SECONDS

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        max_connections = self.limit_concurrency
        if max_connections is not None and len(self.connections) > max_connections + _MAX_REJECTED:
            transport.abort()
        else:
            self._start_timer()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._is_answering:
            self._stop_timer()
        elif self._deadline is None:
            self._start_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    @property
    def _is_answering(self) -> bool:
        # False if a request was rejected and its body is still being received.
        return bool(self.cycle) and not self.cycle.response_complete

    def _start_timer(self) -> None:
        self._deadline = self.loop.call_later(self.header_seconds, self._close)

    def _stop_timer(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _close(self) -> None:
        self._deadline = None
        self.transport.close()


_MAX_CONNECTIONS: Final = 2_000
# The database, workers, MCP servers and providers need files, too.
_FILES_PER_CONNECTION: Final = 2
_MAX_HEADER_BYTES: Final = 64 * 1024
# For responses that are still being written when all runs have ended.
_SHUTDOWN_SECONDS: Final = 2


class HttpServer:
    """A running HTTP server."""

    def __init__(self, server: uvicorn.Server) -> None:
        self._server = server

    def stop_accepting(self) -> None:
        """Reject new connections and keep the open ones."""
        for server in self._server.servers:
            server.close()


@asynccontextmanager
async def http_server(app: ASGIApp, listener: socket.socket) -> AsyncGenerator[HttpServer]:
    """Serve the application during the block. Open responses get a short time to finish at the
    end."""
    config = uvicorn.Config(
        app,
        http=HeaderTimeoutProtocol,
        lifespan="off",
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        # Forwarded client addresses are not trusted.
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
    """The connection limit. Raises the file limit of the process, which is often 1,024."""
    if sys.platform == "win32":
        return _MAX_CONNECTIONS
    import resource

    max_files = _MAX_CONNECTIONS * _FILES_PER_CONNECTION
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = max_files if resource.RLIM_INFINITY in (soft, hard) else min(max_files, hard)
    if soft != resource.RLIM_INFINITY and soft < files:
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, hard))
    return max(1, files // _FILES_PER_CONNECTION)
