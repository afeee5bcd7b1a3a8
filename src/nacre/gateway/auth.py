"""Who may call: whoever has the token, means this host, and is no foreign page."""

from __future__ import annotations

import hmac
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders

from nacre.config.gateway import is_loopback
from nacre.gateway.errors import ApiError, error_response

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from nacre.config.gateway import GatewayConfig
    from nacre.gateway.state import GatewayState

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
