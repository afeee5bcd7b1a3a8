"""Serves MCP over Streamable HTTP, protected by a bearer token."""

from __future__ import annotations

import hmac
import ipaddress
import os
import re
import secrets
import socket
import sys
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Final

import anyio
import uvicorn
from mcp.server.transport_security import TransportSecuritySettings

from nacre.errors import ConfigError
from nacre.mcp_server.server import open_server, run_until_signal

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping
    from pathlib import Path

    from starlette.types import ASGIApp, Receive, Scope, Send

    from nacre.mcp_server.server import CodeModeMcpServer, ServeOptions


TOKEN_VARIABLE: Final = "NACRE_MCP_TOKEN"

_MIN_TOKEN_CHARACTERS: Final = 16
# The syntax of RFC 6750.
_TOKEN: Final = re.compile(r"[A-Za-z0-9._~+/-]+=*")
_SCHEME: Final = b"bearer "


def new_token() -> str:
    return secrets.token_urlsafe(32)


def load_token(token_file: Path | None, environment: Mapping[str, str]) -> str | None:
    """Return the configured token, if there is one. Raises ConfigError, without the token."""
    if token_file is not None:
        try:
            return _check_token(token_file.read_text(encoding="utf-8").strip(), "--token-file")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError("--token-file", f"cannot be read: {error}") from error
    if TOKEN_VARIABLE in environment:
        return _check_token(environment[TOKEN_VARIABLE].strip(), TOKEN_VARIABLE)
    return None


def _check_token(token: str, path: str) -> str:
    if len(token) < _MIN_TOKEN_CHARACTERS or not _TOKEN.fullmatch(token):
        raise ConfigError(
            path,
            f"has {len(token)} characters; a token has at least {_MIN_TOKEN_CHARACTERS}, "
            "only letters, digits and -._~+/",
        )
    return token


class RequireToken:
    """ASGI middleware that accepts only requests with the token."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app = app
        self._token = token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or self._is_allowed(scope):
            await self._app(scope, receive, send)
            return
        body = b'{"error":"a token is required: Authorization: Bearer <token>"}'
        headers = [(b"content-type", b"application/json"), (b"www-authenticate", b"Bearer")]
        await send({"type": "http.response.start", "status": 401, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    def _is_allowed(self, scope: Scope) -> bool:
        given = [value for name, value in scope["headers"] if name == b"authorization"]
        if len(given) != 1 or given[0][: len(_SCHEME)].lower() != _SCHEME:
            return False
        return hmac.compare_digest(given[0][len(_SCHEME) :].strip(), self._token)


DEFAULT_HOST: Final = "127.0.0.1"
DEFAULT_PORT: Final = 8931

_MAX_BODY_BYTES: Final = 4 * 1024 * 1024
_MAX_SESSIONS: Final = 100
_MAX_CONNECTIONS: Final = 1_000
# How long open requests may take when the server stops.
_GRACE_SECONDS: Final = 2
_ANY_ADDRESS: Final = ("0.0.0.0", "::", "")


def serve_http(
    options: ServeOptions,
    host: str = DEFAULT_HOST,
    port: int = DEFAULT_PORT,
    *,
    token_file: Path | None = None,
    is_token_required: bool = True,
) -> int:
    """Serve until a signal arrives. Returns the exit status. Port 0 selects a free port.

    The token comes from the file or from NACRE_MCP_TOKEN. Otherwise a new one is created and
    printed to standard error. Raises ConfigError, also if the address cannot be used, and
    CatalogError.
    """
    if not is_token_required and not is_loopback(host):
        raise ConfigError("--no-token", f"is only allowed on a loopback address, not on {host}")
    token = load_token(token_file, os.environ) if is_token_required else None
    listener = listen(host, port)
    address = _format_url(host, listener.getsockname()[1])
    sys.stderr.write(f"serving MCP at {address}\n")
    if is_token_required and token is None:
        token = new_token()
        sys.stderr.write(f"clients must send: Authorization: Bearer {token}\n")
    sys.stderr.flush()
    return anyio.run(run_until_signal, partial(_serve, options, host, listener, token))


def http_app(server: CodeModeMcpServer, *, host: str, token: str | None) -> ASGIApp:
    """Return the server as an ASGI application with a lifespan."""
    app = server.sdk_server.streamable_http_app(
        host=host,
        transport_security=_security(host),
        max_request_body_size=_MAX_BODY_BYTES,
        max_sessions=_MAX_SESSIONS,
    )
    return app if token is None else RequireToken(app, token)


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class HttpServer(uvicorn.Server):
    """A uvicorn server that does not handle signals and stops when it is cancelled."""

    def __init__(self, app: ASGIApp) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                lifespan="on",
                log_config=None,
                access_log=False,
                server_header=False,
                limit_concurrency=_MAX_CONNECTIONS,
                timeout_graceful_shutdown=_GRACE_SECONDS,
            )
        )

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        yield

    async def serve_until_cancelled(self, listener: socket.socket) -> None:
        """Serve until cancelled. Open requests then get a short time to end."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._exit_when_cancelled)
            with anyio.CancelScope(shield=True):
                await self.serve(sockets=[listener])
            tasks.cancel_scope.cancel()

    async def _exit_when_cancelled(self) -> None:
        try:
            await anyio.sleep_forever()
        finally:
            self.should_exit = True


async def _serve(
    options: ServeOptions, host: str, listener: socket.socket, token: str | None
) -> None:
    async with open_server(options) as server:
        app = http_app(server, host=host, token=token)
        await HttpServer(app).serve_until_cancelled(listener)


def listen(host: str, port: int) -> socket.socket:
    """Open a listening socket. Raises ConfigError if the address cannot be used."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family)
    except (OSError, OverflowError) as error:
        raise ConfigError("--port", f"{port} at {host} cannot be used: {error}") from error
    # With an explicit protocol: only then asyncio disables Nagle's algorithm, with which a small
    # message waits 40 ms for an acknowledgement.
    return socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP, fileno=listener.detach())


def _format_url(host: str, port: int) -> str:
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/mcp"


def _security(host: str) -> TransportSecuritySettings:
    """Return settings that protect against DNS rebinding by a page in a browser."""
    if host in _ANY_ADDRESS:
        # The host names are unknown. The token, which is required here, protects the server.
        return TransportSecuritySettings(enable_dns_rebinding_protection=False)
    own = f"[{host}]" if ":" in host else host
    names = {own, "127.0.0.1", "localhost", "[::1]"} if is_loopback(host) else {own}
    return TransportSecuritySettings(
        allowed_hosts=[form for name in names for form in (name, f"{name}:*")],
        allowed_origins=[form for name in names for form in (f"http://{name}", f"http://{name}:*")],
    )
