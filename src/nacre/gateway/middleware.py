"""ASGI middleware: authentication, body limits, request metrics and access log."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import anyio
from starlette.datastructures import Headers, MutableHeaders

from nacre.agent import OWNER_RIGHTS
from nacre.errors import StorageError
from nacre.gateway import ACCESS_LOG
from nacre.gateway.errors import ApiError, convert_error, error_response
from nacre.gateway.sign_in import Credential, is_own_origin
from nacre.gateway.web import is_app_path
from nacre.http_server import ANY_ADDRESS, is_foreign_origin, is_own_host

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from nacre.agent import CallerRight
    from nacre.config import GatewayConfig, TokenScope
    from nacre.gateway.metrics import Metrics
    from nacre.gateway.routing import GatewayState
    from nacre.gateway.sign_in import WebSession

logger = logging.getLogger(ACCESS_LOG)


OPEN_PATHS: Final = frozenset(("/", "/healthz", "/readyz", "/openapi.json", "/api/web/sign-in"))
"""Public paths, which need no token. The paths of the web app are public too."""
# They use the session of a browser, and work without one.
_SESSION_PATHS: Final = frozenset(("/api/web/session", "/api/web/sign-out"))

_PROBES: Final = frozenset((*OPEN_PATHS, "/metrics"))

# Whatever the method is.
_ADMIN_PATHS: Final = frozenset(("/api/config", "/api/logs", "/api/diagnostics"))

_SCHEME: Final = "bearer "
_ALL_SCOPES: Final[frozenset[TokenScope]] = frozenset(("admin",))
_SCOPES_KEY: Final = "nacre.scopes"
_TOKEN_KEY: Final = "nacre.token"
_SESSION_KEY: Final = "nacre.web_session"
_READ_METHODS: Final = frozenset(("GET", "HEAD", "OPTIONS"))
_PREFLIGHT_SECONDS: Final = "600"
_EXPOSED_HEADERS: Final = "Location, Retry-After, WWW-Authenticate"


def is_probe(scope: Scope) -> bool:
    """Whether the request is not traced, because it is repeated every few seconds."""
    return scope["path"] in _PROBES


class AuthMiddleware:
    """Checks the host, the origin and the token of requests.

    Reads the configuration for every request, because it can change.
    """

    def __init__(self, app: ASGIApp, state: GatewayState) -> None:
        self._app = app
        self._state = state

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        origin = headers.get("origin", "")
        try:
            self._check_host(headers)
            if is_foreign_origin(origin, host_header=headers.get("host", "")):
                self._check_origin(origin)
                send = _add_cors_headers(send, origin)
                if scope["method"] == "OPTIONS" and "access-control-request-method" in headers:
                    await _answer_preflight(headers, send)
                    return
            await self._check_caller(scope, headers)
        except (ApiError, StorageError) as problem:
            error = problem if isinstance(problem, ApiError) else convert_error(problem)
            response = error_response(scope, error)
            if error.status_code == 401:
                response.headers["www-authenticate"] = "Bearer"
            await response(scope, receive, send)
            return
        if _SESSION_KEY in scope or self._config.auth_mode == "none":
            send = _add_headers(send, _EMBEDDING_HEADERS)
        await self._app(scope, receive, send)

    @property
    def _config(self) -> GatewayConfig:
        return self._state.system.config.gateway

    def _check_host(self, headers: Headers) -> None:
        """Reject other host names, which protects against DNS rebinding."""
        config = self._config
        if config.host in ANY_ADDRESS and not config.allowed_hosts:
            # The gateway has unknown names; the token, which is required then, protects it.
            return
        others = (*config.allowed_hosts, *map(_hostname, config.cors_origins))
        if not is_own_host(headers.get("host", ""), host=config.host, others=others):
            raise ApiError(
                421,
                "the Host header does not name this gateway; list the names under which clients "
                "reach it in `gateway.allowedHosts`",
            )

    def _check_origin(self, origin: str) -> None:
        allowed = self._config.cors_origins
        if "*" not in allowed and origin.lower() not in map(str.lower, allowed):
            raise ApiError(403, "this origin is not allowed; see `gateway.corsOrigins`")

    async def _check_caller(self, scope: Scope, headers: Headers) -> None:
        """Find the token or the browser session of a request, and check its scope."""
        path = scope["path"]
        if path in OPEN_PATHS or is_app_path(path):
            return
        if self._config.auth_mode == "none":
            # The gateway listens on a loopback address only.
            scope[_SCOPES_KEY] = _ALL_SCOPES
            return
        caller = self._find_bearer(headers) or await self._find_session(scope, headers)
        if caller is None:
            if path in _SESSION_PATHS:
                return
            raise ApiError(
                401, "a token is required: Authorization: Bearer <token>, or sign in at /app/"
            )
        needed = required_scope(scope["method"], path)
        if path not in _SESSION_PATHS and not caller.scopes & {needed, "admin"}:
            raise ApiError(
                403,
                f"the token does not have the scope `{needed}`; see `gateway.auth.tokens`",
                code="missing_scope",
            )
        scope[_SCOPES_KEY] = caller.scopes
        scope[_TOKEN_KEY] = caller.token

    def _find_bearer(self, headers: Headers) -> Credential | None:
        """The token in the header; None if the request has no such header."""
        given = headers.getlist("authorization")
        if not given:
            return None
        if len(given) != 1 or given[0][: len(_SCHEME)].lower() != _SCHEME:
            raise ApiError(401, "a token is required: Authorization: Bearer <token>")
        found = self._state.sign_in.find_credential(given[0][len(_SCHEME) :].strip())
        if found is None:
            raise ApiError(
                401, "the token is wrong; the gateway prints the token's file when it starts"
            )
        return found

    async def _find_session(self, scope: Scope, headers: Headers) -> Credential | None:
        """The token of the browser session in the cookie. Raises ApiError if another page sends a
        request that changes something."""
        host = headers.get("host", "")
        session = await self._state.sign_in.find_session(headers.get("cookie", ""), host)
        if session is None:
            return None
        origin, site = headers.get("origin", ""), headers.get("sec-fetch-site", "")
        if scope["method"] not in _READ_METHODS and not is_own_origin(origin, site, host=host):
            raise ApiError(
                403,
                "a request with the cookie of the web app must come from a page of this gateway; "
                "other clients send Authorization: Bearer <token>",
            )
        scope[_SESSION_KEY] = session
        return Credential(token=session.token, scopes=session.scopes)


def caller_token(scope: Scope) -> str:
    """The token of a request, or of its browser session."""
    return scope.get(_TOKEN_KEY, "")


def caller_session(scope: Scope) -> WebSession | None:
    """The browser session of a request; None for other clients."""
    return scope.get(_SESSION_KEY)


def caller_rights(scope: Scope) -> frozenset[CallerRight]:
    """What the sender of a request may do in a chat: `admin` is the owner, `approve` may answer
    approvals."""
    scopes: frozenset[TokenScope] = scope.get(_SCOPES_KEY, frozenset())
    if "admin" in scopes:
        return OWNER_RIGHTS
    return frozenset(("approve",)) if "approve" in scopes else frozenset()


def required_scope(method: str, path: str) -> TokenScope:
    """The scope that a token needs for the request."""
    if path in _ADMIN_PATHS or path.startswith("/api/servers/"):
        return "admin"
    match method:
        case "GET" | "HEAD" | "OPTIONS":
            # The whole input of a call, with its secrets.
            return "approve" if path.startswith("/api/approvals/") else "read"
        case "POST" if path == "/api/web/codes":
            # The link has the scopes of this token.
            return "read"
        case "POST":
            return "approve" if path.startswith("/api/approvals/") else "run"
        case _:
            return "admin"


def _hostname(origin: str) -> str:
    """The host of an origin without its port; empty if it is invalid."""
    try:
        return urlsplit(origin).hostname or ""
    except ValueError:
        return ""


def _add_cors_headers(send: Send, origin: str) -> Send:
    async def send_with_cors(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            headers["access-control-allow-origin"] = origin
            headers["access-control-expose-headers"] = _EXPOSED_HEADERS
            headers.add_vary_header("Origin")
        await send(message)

    return send_with_cors


# A page on another port of the same host can embed scripts and images, and the browser sends the
# cookie for them. Without authentication, any page can.
_EMBEDDING_HEADERS: Final = {
    "cross-origin-resource-policy": "same-origin",
    "x-content-type-options": "nosniff",
}


def _add_headers(send: Send, more: Mapping[str, str]) -> Send:
    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            MutableHeaders(scope=message).update(more)
        await send(message)

    return send_with_headers


async def _answer_preflight(headers: Headers, send: Send) -> None:
    requested = headers.get("access-control-request-headers", "")
    response_headers = [
        (b"access-control-allow-methods", b"GET, POST, PUT, PATCH, DELETE, OPTIONS"),
        (b"access-control-allow-headers", requested.encode("latin-1")),
        (b"access-control-max-age", _PREFLIGHT_SECONDS.encode()),
    ]
    await send({"type": "http.response.start", "status": 204, "headers": response_headers})
    await send({"type": "http.response.body", "body": b""})


BODY_SECONDS: Final = 60.0


class BodyLimit:
    """Rejects a body that is too large, or not complete in time. Uses its announced length, if it
    has one."""

    def __init__(
        self, app: ASGIApp, state: GatewayState, *, body_seconds: float = BODY_SECONDS
    ) -> None:
        self._app = app
        self._state = state
        self._body_seconds = body_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        max_bytes = self._state.system.config.gateway.max_body_bytes
        announced = Headers(scope=scope).get("content-length", "")
        if announced.isdecimal() and int(announced[:20]) > max_bytes:
            await error_response(scope, _too_large_error(max_bytes))(scope, receive, send)
            return
        await self._app(scope, _LimitedReceive(receive, max_bytes, self._body_seconds), send)


class _LimitedReceive:
    """A `receive` that counts the bytes of the body."""

    def __init__(self, receive: Receive, max_bytes: int, seconds: float) -> None:
        self._receive = receive
        self._max_bytes = max_bytes
        self._seconds = seconds
        self._deadline: float | None = None
        self._bytes = 0
        self._is_complete = False

    async def __call__(self) -> Message:
        if self._is_complete:
            # Only a disconnect can follow.
            return await self._receive()
        message = await self._receive_in_time()
        self._bytes += len(message.get("body", b""))
        self._is_complete = not message.get("more_body", False)
        if self._bytes > self._max_bytes:
            raise _too_large_error(self._max_bytes)
        return message

    async def _receive_in_time(self) -> Message:
        if self._deadline is None:
            self._deadline = anyio.current_time() + self._seconds
        try:
            with anyio.fail_after(self._deadline - anyio.current_time()):
                return await self._receive()
        except TimeoutError:
            raise ApiError(
                408, f"the body was not complete within {self._seconds:g} seconds"
            ) from None


def _too_large_error(max_bytes: int) -> ApiError:
    return ApiError(413, f"the body is larger than {max_bytes} bytes; see `gateway.maxBodyBytes`")


_UNMATCHED: Final = "unmatched"
_METHODS: Final = frozenset(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"))


class RequestMeter:
    """Counts and logs all requests, including rejected ones."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = time.perf_counter()
        status: int | None = None

        async def send_and_count(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                self._count(scope, message["status"], time.perf_counter() - started)
            await send(message)

        try:
            await self._app(scope, receive, send_and_count)
        finally:
            _log_request(scope, status, time.perf_counter() - started)

    def _count(self, scope: Scope, status: int, seconds: float) -> None:
        # By route, not by path: paths with ids would create a series each.
        route = getattr(scope.get("route"), "path", _UNMATCHED)
        self._metrics.http_requests.labels(_method(scope), route, str(status)).inc()
        self._metrics.http_seconds.labels(route).observe(seconds)


def _log_request(scope: Scope, status: int | None, seconds: float) -> None:
    """Log the request at the end of its response, which for a stream may be late."""

    if logger.isEnabledFor(logging.INFO):
        # Still percent-encoded, so it has no line ends; without the query.
        path = scope.get("raw_path", b"").partition(b"?")[0].decode("ascii", "replace")
        shown = "no response" if status is None else str(status)
        logger.info("%s %s %s %.0f ms", _method(scope), path, shown, seconds * 1000)


def _method(scope: Scope) -> str:
    return scope["method"] if scope["method"] in _METHODS else "other"
