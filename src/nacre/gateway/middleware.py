"""ASGI middleware: authentication, body limits, request metrics and access log."""

from __future__ import annotations

import hmac
import logging
import time
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import anyio
from starlette.datastructures import Headers, MutableHeaders

from nacre.gateway import ACCESS_LOG
from nacre.gateway.errors import ApiError, error_response
from nacre.http_server import ANY_ADDRESS, is_foreign_origin, is_own_host

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from nacre.config import GatewayConfig, TokenScope
    from nacre.gateway.metrics import Metrics
    from nacre.gateway.routing import GatewayState

logger = logging.getLogger(ACCESS_LOG)


OPEN_PATHS: Final = frozenset(("/", "/healthz", "/readyz", "/openapi.json"))
"""Public paths, which need no token."""

_PROBES: Final = frozenset((*OPEN_PATHS, "/metrics"))

_SCHEME: Final = "bearer "
_ALL_SCOPES: Final[frozenset[TokenScope]] = frozenset(("admin",))
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
            self._check_token(scope, headers)
        except ApiError as error:
            response = error_response(scope, error)
            if error.status_code == 401:
                response.headers["www-authenticate"] = "Bearer"
            await response(scope, receive, send)
            return
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

    def _check_token(self, scope: Scope, headers: Headers) -> None:
        if scope["path"] in OPEN_PATHS or self._config.auth_mode == "none":
            return
        given = headers.getlist("authorization")
        if len(given) != 1 or given[0][: len(_SCHEME)].lower() != _SCHEME:
            raise ApiError(401, "a token is required: Authorization: Bearer <token>")
        scopes = self._find_scopes(given[0][len(_SCHEME) :].strip())
        if not scopes:
            raise ApiError(
                401, "the token is wrong; the gateway prints the token's file when it starts"
            )
        needed = required_scope(scope["method"], scope["path"])
        if not scopes & {needed, "admin"}:
            raise ApiError(
                403,
                f"the token does not have the scope `{needed}`; see `gateway.auth.tokens`",
                code="missing_scope",
            )

    def _find_scopes(self, given: str) -> frozenset[TokenScope]:
        """The scopes of the token; empty if it is unknown."""
        tokens: list[tuple[str, frozenset[TokenScope]]] = [(self._state.token, _ALL_SCOPES)]
        tokens += [(named.token, named.scopes) for named in self._config.named_tokens]
        # All are compared, so that the time does not tell which one is similar.
        found = [
            scopes
            for token, scopes in tokens
            if hmac.compare_digest(given.encode(), token.encode()) and token
        ]
        return found[0] if found else frozenset()


def required_scope(method: str, path: str) -> TokenScope:
    """The scope that a token needs for the request."""
    match method:
        case "GET" | "HEAD" | "OPTIONS":
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


async def _answer_preflight(headers: Headers, send: Send) -> None:
    requested = headers.get("access-control-request-headers", "")
    response_headers = [
        (b"access-control-allow-methods", b"GET, POST, OPTIONS"),
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
