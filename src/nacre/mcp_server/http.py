"""Serves MCP over Streamable HTTP, protected by a bearer token."""

from __future__ import annotations

import hmac
import os
import secrets
import sys
from functools import partial
from typing import TYPE_CHECKING, Final

import anyio
from mcp.server.transport_security import TransportSecuritySettings
from starlette.datastructures import Headers
from starlette.responses import JSONResponse

from nacre.config import is_loopback, is_strong_token
from nacre.errors import ConfigError
from nacre.http_server import (
    ANY_ADDRESS,
    http_server,
    is_foreign_origin,
    is_own_host,
    listen_on,
)
from nacre.mcp_server.server import open_server, run_until_signal

if TYPE_CHECKING:
    import socket
    from collections.abc import Mapping
    from pathlib import Path

    from starlette.types import ASGIApp, Receive, Scope, Send

    from nacre.mcp_server.server import CodeModeMcpServer, ServeOptions


TOKEN_VARIABLE: Final = "NACRE_MCP_TOKEN"

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
    if not is_strong_token(token):
        raise ConfigError(
            path,
            f"has {len(token)} characters; a token has at least 16, only letters, digits and "
            "-._~+/",
        )
    return token


class AccessCheck:
    """ASGI middleware that accepts only requests for this host, of no other origin, and with the
    token, if there is one."""

    def __init__(self, app: ASGIApp, *, host: str, token: str | None) -> None:
        self._app = app
        self._host = host
        self._token = None if token is None else token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        problem = self._find_problem(scope) if scope["type"] == "http" else None
        if problem is None:
            await self._app(scope, receive, send)
            return
        status, message = problem
        headers = {"www-authenticate": "Bearer"} if status == 401 else {}
        await JSONResponse({"error": message}, status, headers)(scope, receive, send)

    def _find_problem(self, scope: Scope) -> tuple[int, str] | None:
        headers = Headers(scope=scope)
        named = headers.get("host", "")
        # On all addresses the names are unknown. The token, which is required there, protects it.
        if self._host not in ANY_ADDRESS and not is_own_host(named, host=self._host):
            return 421, "the Host header does not name this server"
        if is_foreign_origin(headers.get("origin", ""), host_header=named):
            return 403, "web pages of other origins are not allowed"
        if self._token is not None and not self._has_token(scope):
            return 401, "a token is required: Authorization: Bearer <token>"
        return None

    def _has_token(self, scope: Scope) -> bool:
        given = [value for name, value in scope["headers"] if name == b"authorization"]
        if len(given) != 1 or given[0][: len(_SCHEME)].lower() != _SCHEME:
            return False
        return hmac.compare_digest(given[0][len(_SCHEME) :].strip(), self._token or b"")


DEFAULT_HOST: Final = "127.0.0.1"
DEFAULT_PORT: Final = 8931

_MAX_BODY_BYTES: Final = 4 * 1024 * 1024
_MAX_SESSIONS: Final = 100


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
    listener = listen_on(host, port, setting="--port")
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
        # `AccessCheck` does this.
        transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),
        max_request_body_size=_MAX_BODY_BYTES,
        max_sessions=_MAX_SESSIONS,
    )
    return AccessCheck(app, host=host, token=token)


async def _serve(
    options: ServeOptions, host: str, listener: socket.socket, token: str | None
) -> None:
    async with open_server(options) as server:
        app = http_app(server, host=host, token=token)
        async with http_server(app, listener, lifespan="on"):
            await anyio.sleep_forever()


def _format_url(host: str, port: int) -> str:
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/mcp"
