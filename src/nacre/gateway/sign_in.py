"""Sign-in of browsers: one-time codes, signed session cookies, and a limit for guesses."""

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

from starlette.requests import cookie_parser

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from nacre.config import TokenScope
    from nacre.storage import Store

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
        await self._store.put_value(_REVOKED, session.id, {}, expires=session.expires)

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
