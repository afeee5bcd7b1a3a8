"""Who may call the gateway: tokens, scopes, other origins, and the sign-in of browsers."""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import secrets
import time
from collections import OrderedDict, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import cookie_parser

from nacre.agent import OWNER_RIGHTS
from nacre.errors import StorageError
from nacre.gateway.errors import ApiError, convert_error, error_response
from nacre.gateway.web import APP_PATH
from nacre.http_server import ANY_ADDRESS, is_foreign_origin, is_own_host

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from nacre.agent import CallerRight
    from nacre.config import GatewayConfig, TokenScope
    from nacre.gateway.routing import GatewayState
    from nacre.storage import Store

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

CODE_SECONDS: Final = 600.0
SESSION_SECONDS: Final = 30 * 24 * 3600.0

_MAX_CODES: Final = 100
_MAX_GUESSES: Final = 10
_GUESS_SECONDS: Final = 60.0
_MAX_ADDRESSES: Final = 1_000
# A sign-out at another gateway with the same database counts after this time.
_RECHECK_SECONDS: Final = 10.0
_MAX_CHECKED: Final = 1_000
_REVOKED: Final = "revoked_web_session"
_COOKIE: Final = "nacre_session"
_VALUE: Final = re.compile(r"1\.([A-Za-z0-9_-]{22})\.([0-9]{1,12})\.([A-Za-z0-9_-]{43})")
_PORT: Final = re.compile(r":([0-9]{1,5})$")
_KEY_LABEL: Final = b"nacre web session 1"
_MAX_CLOCK_SKEW_SECONDS: Final = 60.0


def _is_app_path(path: str) -> bool:
    """Whether the path belongs to the web app."""
    return path == APP_PATH or path.startswith(f"{APP_PATH}/")


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
        if path in OPEN_PATHS or _is_app_path(path):
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


@dataclass(frozen=True, kw_only=True, slots=True)
class Credential:
    """A token of the gateway."""

    token: str = field(repr=False)
    scopes: frozenset[TokenScope]


@dataclass(frozen=True, kw_only=True, slots=True)
class WebSession:
    """A session of a browser. It has the scopes of the token that it was made with."""

    id: str = field(repr=False)
    expires: float
    scopes: frozenset[TokenScope]
    token: str = field(repr=False)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Code:
    token: str = field(repr=False)
    expires: float


class SignIn:
    """Signs browsers in and out.

    A cookie is signed with a key that is derived from a token. So it stays valid when the gateway
    restarts, and ends when the token changes. The ids of sessions that were signed out are stored.
    """

    def __init__(
        self,
        store: Store,
        credentials: Callable[[], Sequence[Credential]],
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`credentials` returns the tokens that are valid now."""
        self._store = store
        self._credentials = credentials
        self._clock = clock
        self._codes: OrderedDict[bytes, _Code] = OrderedDict()
        self._guesses: OrderedDict[str, deque[float]] = OrderedDict()
        self._checked: OrderedDict[str, tuple[bool, float]] = OrderedDict()

    def find_credential(self, token: str) -> Credential | None:
        """The valid token that is equal to this one."""
        # All are compared, so that the time does not tell which one is similar.
        found = [
            it
            for it in self._credentials()
            if hmac.compare_digest(token.encode(), it.token.encode()) and it.token
        ]
        return found[0] if found else None

    # One-time codes.

    def create_code(self, token: str) -> tuple[str, float]:
        """Create a code that signs in once with this token. Returns it with its expiry."""
        code = secrets.token_urlsafe(24)
        expires = self._clock() + CODE_SECONDS
        self._codes[_digest(code)] = _Code(token=token, expires=expires)
        while len(self._codes) > _MAX_CODES:
            self._codes.popitem(last=False)
        return code, expires

    def redeem_code(self, code: str) -> str | None:
        """The token of an unused code. The code cannot be used again."""
        found = self._codes.pop(_digest(code), None)
        if found is None or found.expires <= self._clock():
            return None
        return found.token if self.find_credential(found.token) else None

    # The limit for guesses.

    def blocked_seconds(self, address: str) -> float:
        """How long this address must wait after too many wrong codes or tokens; 0 if it need
        not."""
        now = self._clock()
        times = self._guesses.get(address)
        while times and times[0] <= now - _GUESS_SECONDS:
            times.popleft()
        if not times or len(times) < _MAX_GUESSES:
            return 0.0
        return times[0] + _GUESS_SECONDS - now

    def note_guess(self, address: str) -> None:
        """Count a wrong code or token."""
        self._guesses.setdefault(address, deque(maxlen=_MAX_GUESSES)).append(self._clock())
        self._guesses.move_to_end(address)
        while len(self._guesses) > _MAX_ADDRESSES:
            self._guesses.popitem(last=False)

    # Cookies.

    def create_cookie(self, token: str) -> str:
        """The value of a new cookie that is bound to the token."""
        session_id = secrets.token_urlsafe(16)
        created = int(self._clock())
        return f"1.{session_id}.{created}.{_sign(token, session_id, created)}"

    async def find_session(self, cookie_header: str, host: str) -> WebSession | None:
        """The session of a request; None without a valid cookie. Raises StorageError."""
        session = self._verify(_cookie_value(cookie_header, cookie_name(host)))
        if session is None or not await self.is_active(session):
            return None
        return session

    async def is_active(self, session: WebSession) -> bool:
        """Whether the session has not expired, its token is valid, and nobody has signed out."""
        now = self._clock()
        if session.expires <= now or self.find_credential(session.token) is None:
            return False
        is_revoked, checked = self._checked.get(session.id, (False, 0.0))
        if not is_revoked and not 0 <= now - checked < _RECHECK_SECONDS:
            is_stored = await self._store.value(_REVOKED, session.id) is not None
            # The browser may have signed out while the database was read.
            is_revoked = is_stored or self._checked.get(session.id, (False, 0.0))[0]
            self._note_checked(session.id, is_revoked)
        return not is_revoked

    async def sign_out(self, session: WebSession) -> None:
        """End the session. Its cookie stays invalid after a restart."""
        self._note_checked(session.id, True)
        seconds = session.expires - self._clock()
        await self._store.put_value(_REVOKED, session.id, {}, seconds=seconds)

    def _verify(self, value: str) -> WebSession | None:
        found = _VALUE.fullmatch(value)
        if found is None:
            return None
        session_id, created, signature = found[1], int(found[2]), found[3]
        now = self._clock()
        if created > now + _MAX_CLOCK_SKEW_SECONDS or created + SESSION_SECONDS <= now:
            return None
        for it in self._credentials():
            expected = _sign(it.token, session_id, created)
            if it.token and hmac.compare_digest(signature, expected):
                expires = created + SESSION_SECONDS
                return WebSession(id=session_id, expires=expires, scopes=it.scopes, token=it.token)
        return None

    def _note_checked(self, session_id: str, is_revoked: bool) -> None:
        self._checked[session_id] = (is_revoked, self._clock())
        self._checked.move_to_end(session_id)
        while len(self._checked) > _MAX_CHECKED:
            self._checked.popitem(last=False)


def cookie_name(host: str) -> str:
    """The name of the cookie. It has the port of the `Host` header, because browsers send cookies
    to all ports of a host."""
    port = _PORT.search(host)
    return f"{_COOKIE}_{port[1]}" if port else _COOKIE


def is_own_origin(origin: str, fetch_site: str, *, host: str) -> bool:
    """Whether a page of this gateway sends the request, by its headers `Origin` and
    `Sec-Fetch-Site`."""
    if not origin:
        return fetch_site == "same-origin"
    try:
        found = urlsplit(origin)
    except ValueError:
        return False
    return found.scheme in ("http", "https") and found.netloc.lower() == host.lower()


def _cookie_value(header: str, name: str) -> str:
    # Unlike the parser of Python, it skips malformed cookies of other servers on this host.
    return cookie_parser(header).get(name, "")


def _sign(token: str, session_id: str, created: int) -> str:
    key = hmac.digest(token.encode(), _KEY_LABEL, hashlib.sha256)
    signature = hmac.digest(key, f"{session_id}.{created}".encode(), hashlib.sha256)
    return base64.urlsafe_b64encode(signature).decode().rstrip("=")


def _digest(code: str) -> bytes:
    return hashlib.sha256(code.encode()).digest()
