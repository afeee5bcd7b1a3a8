"""uvicorn in our hands: started, and ended in the order that runs need."""

from __future__ import annotations

import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

import anyio
import uvicorn

from nacre.gateway.prompt_protocol import HeaderTimeoutProtocol

if TYPE_CHECKING:
    import socket
    from collections.abc import AsyncGenerator

    from starlette.types import ASGIApp

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
