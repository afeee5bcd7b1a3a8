"""The HTTP server of the gateway and of `nacre mcp serve --http`: addresses, limits, shutdown."""

from __future__ import annotations

import errno
import re
import socket
import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, Literal, cast
from urllib.parse import urlsplit

import anyio
import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from nacre.config import is_loopback
from nacre.errors import ConfigError

if TYPE_CHECKING:
    import asyncio
    from collections.abc import AsyncGenerator, Iterable

    from starlette.types import ASGIApp


ANY_ADDRESS: Final = ("0.0.0.0", "::", "")
"""Hosts of servers that listen on all addresses of the machine."""
_LOOPBACK_NAMES: Final = ("127.0.0.1", "localhost", "::1")
_HOST: Final = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9._-]+))(?::[0-9]{1,5})?")


def listen_on(host: str, port: int, *, setting: str) -> socket.socket:
    """Listen on the address; port 0 picks a free one. Raises ConfigError for the setting."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family)
    except (OSError, OverflowError) as error:
        raise ConfigError(setting, f"is {port}: {_describe_problem(error, host)}") from error
    # With an explicit protocol, because asyncio disables Nagle's algorithm only for such sockets.
    # Otherwise each small event of a stream would wait 40 ms for an acknowledgement.
    return socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP, fileno=listener.detach())


def _describe_problem(error: OSError | OverflowError, host: str) -> str:
    match getattr(error, "errno", None):
        case errno.EADDRINUSE:
            return f"another program uses it at {host}; stop it, or choose another port with --port"
        case errno.EACCES:
            return "ports below 1024 need administrator rights; choose another port with --port"
        case errno.EADDRNOTAVAIL:
            return f"this machine has no address {host}; choose another with --host"
        case _:
            problem = getattr(error, "strerror", None) or str(error)
            return f"it cannot be used at {host}: {problem}; choose others with --port or --host"


def is_own_host(header: str, *, host: str, others: Iterable[str] = ()) -> bool:
    """Whether a Host header names the server that listens on `host`, or one of the other names.

    Web pages that reach the server under a name of their own (DNS rebinding) fail this check.
    """
    found = _HOST.fullmatch(header)
    if found is None:
        return False
    name = (found[1] or found[2]).lower()
    if name in {host.lower(), *(other.lower() for other in others)}:
        return True
    return name in _LOOPBACK_NAMES and (host in ANY_ADDRESS or is_loopback(host))


def is_foreign_origin(origin: str, *, host_header: str) -> bool:
    """Whether a web page of another origin sends the request. Other programs send no origin."""
    try:
        return bool(origin) and urlsplit(origin).netloc.lower() != host_header.lower()
    except ValueError:
        return True


class _StrictConnection(h11.Connection):
    """Rejects requests that a proxy in front of the server may read in another way."""

    def next_event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        event = super().next_event()
        if isinstance(event, h11.Request):
            headers = dict(event.headers)
            if b"transfer-encoding" in headers:
                if b"content-length" in headers:
                    raise h11.RemoteProtocolError("both Content-Length and Transfer-Encoding")
                if event.http_version == b"1.0":
                    raise h11.RemoteProtocolError("Transfer-Encoding in HTTP/1.0")
            if not _HOST.fullmatch(headers.get(b"host", b"-").decode("latin-1")):
                raise h11.RemoteProtocolError("malformed Host")
        return event


HEADER_SECONDS: Final = 20.0

_MAX_HEADER_BYTES: Final = 64 * 1024
# This many connections beyond the limit get a 503; more would need too many files.
_MAX_REJECTED: Final = 50


class _ServerState(ServerState):
    def __init__(self) -> None:
        super().__init__()
        self.idle: dict[LimitedProtocol, None] = {}
        """The connections without a request in progress, the one that is idle longest first."""


class LimitedProtocol(H11Protocol):
    """Closes a connection that does not send complete headers in time, and the one that has been
    idle longest if there are too many.

    The time does not count while a request is processed, nor between a response and the next
    request.
    """

    header_seconds = HEADER_SECONDS

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.conn = _StrictConnection(h11.SERVER, _MAX_HEADER_BYTES)
        self._idle = cast("_ServerState", self.server_state).idle
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        limit = self.limit_concurrency
        if limit is not None and len(self.connections) >= limit:
            self._make_room(limit)
        self._idle[self] = None
        self._start_timer()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._note_idle()
        if self._is_answering:
            self._stop_timer()
        elif self._deadline is None:
            self._start_timer()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._note_idle()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        self._idle.pop(self, None)
        super().connection_lost(exc)

    def _make_room(self, limit: int) -> None:
        """Close the connection that has been idle longest; if all are in use, maybe this one."""
        if self._idle:
            longest = next(iter(self._idle))
            del self._idle[longest]
            longest.transport.abort()
        elif len(self.connections) > limit + _MAX_REJECTED:
            self.transport.abort()

    def _note_idle(self) -> None:
        if self._is_answering:
            self._idle.pop(self, None)
        elif not self.transport.is_closing():
            self._idle.setdefault(self, None)

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
# The database, workers, MCP servers and providers need files too.
_FILES_PER_CONNECTION: Final = 2
# asyncio accepts this many connections at once, before it can close others.
_MAX_BACKLOG: Final = 100
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
async def http_server(
    app: ASGIApp, listener: socket.socket, *, lifespan: Literal["on", "off"] = "off"
) -> AsyncGenerator[HttpServer]:
    """Serve the application during the block. Open responses get a short time to finish at the
    end."""
    max_connections = _max_connections()
    config = uvicorn.Config(
        app,
        http=LimitedProtocol,
        lifespan=lifespan,
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        # Forwarded client addresses are not trusted.
        proxy_headers=False,
        limit_concurrency=max_connections,
        backlog=max(1, min(_MAX_BACKLOG, max_connections // 4)),
        timeout_graceful_shutdown=_SHUTDOWN_SECONDS,
    )
    server = uvicorn.Server(config)
    server.server_state = _ServerState()
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
