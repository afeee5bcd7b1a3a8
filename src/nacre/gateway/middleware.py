"""ASGI middleware: authentication, body limits, request metrics and access log."""

from __future__ import annotations

import hmac
import logging
import time
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import anyio
from starlette.datastructures import Headers, MutableHeaders

from nacre.config.gateway import is_loopback
from nacre.gateway import ACCESS_LOG
from nacre.gateway.errors import ApiError, error_response

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from nacre.config import GatewayConfig
    from nacre.gateway.metrics import Metrics
    from nacre.gateway.routing import GatewayState


OPEN_PATHS: Final = frozenset(("/", "/healthz", "/readyz", "/openapi.json"))
"""They tell nothing about anybody, so they need no token."""

_ANY_ADDRESS: Final = ("0.0.0.0", "::", "")
_LOOPBACK_NAMES: Final = frozenset(("127.0.0.1", "localhost", "::1"))
_SCHEME: Final = "bearer "
_PREFLIGHT_SECONDS: Final = "600"
_EXPOSED_HEADERS: Final = "Location, Retry-After, WWW-Authenticate"


class AuthMiddleware:
    """Turns away what is not meant for us, comes from a foreign page, or has no token.

    The configuration is looked at with every request: it may change meanwhile.
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
            is_foreign = self._is_foreign(headers)
            if is_foreign:
                self._check_origin(origin)
                send = _with_cors(send, origin)
                if scope["method"] == "OPTIONS" and "access-control-request-method" in headers:
                    await _answer_preflight(headers, send)
                    return
            self._check_token(scope["path"], headers)
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
        """A page must not reach us by a name of its own (DNS rebinding)."""
        own = self._config.host
        if own in _ANY_ADDRESS:
            # Reached by names that we do not know; the token, which is needed then, keeps it out.
            return
        asked = _hostname(f"//{headers.get('host', '')}")
        names = {own.lower(), *(_LOOPBACK_NAMES if is_loopback(own) else ())}
        public = (_hostname(origin) for origin in self._config.cors_origins)
        if asked not in names and asked not in public:
            raise ApiError(
                421,
                "this gateway is not known by the Host that was asked for; a proxy in front of it "
                "has to pass on its own, or be named in `gateway.corsOrigins`",
            )

    def _is_foreign(self, headers: Headers) -> bool:
        """Whether a page of another origin asks. Programs that are no browsers name no origin."""
        origin = headers.get("origin", "")
        return bool(origin) and _netloc(origin) != headers.get("host", "").lower()

    def _check_origin(self, origin: str) -> None:
        allowed = self._config.cors_origins
        if "*" not in allowed and origin.lower() not in map(str.lower, allowed):
            raise ApiError(
                403, "pages of this origin may not call the gateway; see `gateway.corsOrigins`"
            )

    def _check_token(self, path: str, headers: Headers) -> None:
        if path in OPEN_PATHS or self._config.auth_mode == "none":
            return
        given = headers.getlist("authorization")
        if len(given) != 1 or given[0][: len(_SCHEME)].lower() != _SCHEME:
            raise ApiError(401, "this gateway needs its token: Authorization: Bearer <token>")
        expected = self._state.token.encode()
        token = given[0][len(_SCHEME) :].strip().encode()
        if not expected or not hmac.compare_digest(token, expected):
            raise ApiError(
                401, "this is not the token of this gateway; where it lies is told when it starts"
            )


def _netloc(origin: str) -> str:
    """The host of an origin with its port; empty for what is none."""
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return ""


def _hostname(address: str) -> str:
    """The host of an address, without its port; empty for what is none."""
    try:
        return (urlsplit(address).hostname or "").lower()
    except ValueError:
        return ""


def _with_cors(send: Send, origin: str) -> Send:
    async def send_with_cors(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            headers["access-control-allow-origin"] = origin
            headers["access-control-expose-headers"] = _EXPOSED_HEADERS
            headers.add_vary_header("Origin")
        await send(message)

    return send_with_cors


async def _answer_preflight(headers: Headers, send: Send) -> None:
    asked = headers.get("access-control-request-headers", "")
    answer = [
        (b"access-control-allow-methods", b"GET, POST, OPTIONS"),
        (b"access-control-allow-headers", asked.encode("latin-1")),
        (b"access-control-max-age", _PREFLIGHT_SECONDS.encode()),
    ]
    await send({"type": "http.response.start", "status": 204, "headers": answer})
    await send({"type": "http.response.body", "body": b""})


BODY_SECONDS: Final = 60.0


class BodyLimit:
    """Refuses a body that is too large before it is read, or as soon as it turns out to be; and one
    that does not come to its end."""

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
        most = self._state.system.config.gateway.max_body_bytes
        announced = Headers(scope=scope).get("content-length", "")
        if announced.isdecimal() and int(announced[:20]) > most:
            await error_response(scope, _too_large(most))(scope, receive, send)
            return
        await self._app(scope, _Body(receive, most, self._body_seconds), send)


class _Body:
    """A `receive` that counts."""

    def __init__(self, receive: Receive, most_bytes: int, seconds: float) -> None:
        self._receive = receive
        self._most_bytes = most_bytes
        self._seconds = seconds
        self._deadline: float | None = None
        self._bytes = 0
        self._is_whole = False

    async def __call__(self) -> Message:
        if self._is_whole:
            # From here on a message only says that the client has gone.
            return await self._receive()
        message = await self._in_time()
        self._bytes += len(message.get("body", b""))
        self._is_whole = not message.get("more_body", False)
        if self._bytes > self._most_bytes:
            raise _too_large(self._most_bytes)
        return message

    async def _in_time(self) -> Message:
        if self._deadline is None:
            self._deadline = anyio.current_time() + self._seconds
        try:
            with anyio.fail_after(self._deadline - anyio.current_time()):
                return await self._receive()
        except TimeoutError:
            raise ApiError(
                408, f"the body was not complete after {self._seconds:g} seconds"
            ) from None


def _too_large(most_bytes: int) -> ApiError:
    return ApiError(413, f"the body is larger than {most_bytes} bytes; see `gateway.maxBodyBytes`")


logger = logging.getLogger(ACCESS_LOG)

_UNMATCHED: Final = "unmatched"
_METHODS: Final = frozenset(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"))


class RequestMeter:
    """Around everything else, so that what is turned away is counted as well."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = time.perf_counter()
        status: int | None = None

        async def sent(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                self._count(scope, message["status"], time.perf_counter() - began)
            await send(message)

        try:
            await self._app(scope, receive, sent)
        finally:
            _log_request(scope, status, time.perf_counter() - began)

    def _count(self, scope: Scope, status: int, seconds: float) -> None:
        # By the route and not by the path: ids would make a series each.
        route = getattr(scope.get("route"), "path", _UNMATCHED)
        self._metrics.http_requests.labels(_method(scope), route, str(status)).inc()
        self._metrics.http_seconds.labels(route).observe(seconds)


def _log_request(scope: Scope, status: int | None, seconds: float) -> None:
    """At the end of the body, or when nobody reads it any more: a stream takes as long as it
    takes."""
    if logger.isEnabledFor(logging.INFO):
        # As it was sent, so that no line end is in it; and without the query.
        path = scope.get("raw_path", b"").partition(b"?")[0].decode("ascii", "replace")
        shown = "without an answer" if status is None else str(status)
        logger.info("%s %s %s %.0f ms", _method(scope), path, shown, seconds * 1000)


def _method(scope: Scope) -> str:
    return scope["method"] if scope["method"] in _METHODS else "other"
