"""The bearer token without which nobody may use the HTTP server."""

from __future__ import annotations

import hmac
import re
import secrets
from typing import TYPE_CHECKING, Final

from nacre.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from starlette.types import ASGIApp, Receive, Scope, Send

TOKEN_VARIABLE: Final = "NACRE_MCP_TOKEN"

_MIN_TOKEN_CHARACTERS: Final = 16
# As RFC 6750 has it; anything else would not fit into a header.
_TOKEN: Final = re.compile(r"[A-Za-z0-9._~+/-]+=*")
_SCHEME: Final = b"bearer "


def new_token() -> str:
    return secrets.token_urlsafe(32)


def token_from(token_file: Path | None, environment: Mapping[str, str]) -> str | None:
    """The token that the user has set, if one is; raises ConfigError, without the token in it."""
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
            f"holds {len(token)} characters; a token has at least {_MIN_TOKEN_CHARACTERS}, "
            "letters, digits and -._~+/ only",
        )
    return token


class RequireToken:
    """Lets through only requests that carry the token."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app = app
        self._token = token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or self._is_allowed(scope):
            await self._app(scope, receive, send)
            return
        body = b'{"error":"this server needs its token: Authorization: Bearer <token>"}'
        headers = [(b"content-type", b"application/json"), (b"www-authenticate", b"Bearer")]
        await send({"type": "http.response.start", "status": 401, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    def _is_allowed(self, scope: Scope) -> bool:
        given = [value for name, value in scope["headers"] if name == b"authorization"]
        if len(given) != 1 or given[0][: len(_SCHEME)].lower() != _SCHEME:
            return False
        return hmac.compare_digest(given[0][len(_SCHEME) :].strip(), self._token)
