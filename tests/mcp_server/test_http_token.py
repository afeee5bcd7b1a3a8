"""The token of the HTTP server: where it comes from, and who gets in with it."""

from pathlib import Path
from typing import Any

import pytest

from nacre.errors import ConfigError
from nacre.mcp_server.http import TOKEN_VARIABLE, RequireToken, new_token, token_from

TOKEN = "0123456789abcdef"


async def status_for(*authorization: bytes, kind: str = "http") -> int:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200})

    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        raise AssertionError("nothing is to be read before the token is checked")

    headers = [(b"authorization", value) for value in authorization]
    await RequireToken(app, TOKEN)({"type": kind, "headers": headers}, receive, send)
    return sent[0]["status"]


@pytest.mark.parametrize("scheme", [b"Bearer ", b"bearer ", b"BEARER  "])
async def test_the_token_lets_in(scheme: bytes) -> None:
    assert await status_for(scheme + TOKEN.encode()) == 200


@pytest.mark.parametrize(
    "given",
    [
        (),
        (b"",),
        (b"Bearer",),
        (b"Bearer ",),
        (b"Bearer 0123456789abcde",),
        (b"Bearer 0123456789abcdeff",),
        (b"Basic 0123456789abcdef",),
        (b"0123456789abcdef",),
        (b"Bearer \xff\xfe",),
        (b"Bearer 0123456789abcdef", b"Bearer 0123456789abcdef"),
    ],
)
async def test_everything_else_stays_outside(given: tuple[bytes, ...]) -> None:
    assert await status_for(*given) == 401


async def test_the_lifespan_needs_no_token() -> None:
    assert await status_for(kind="lifespan") == 200


def test_a_file_wins_over_the_environment(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}-file\n", encoding="utf-8")
    assert token_from(file, {TOKEN_VARIABLE: f"{TOKEN}-env"}) == f"{TOKEN}-file"
    assert token_from(None, {TOKEN_VARIABLE: f"{TOKEN}-env"}) == f"{TOKEN}-env"
    assert token_from(None, {}) is None


@pytest.mark.parametrize(
    "token", ["", "short", "has spaces in it and is long", "naïve-naïve-naïve"]
)
def test_a_bad_token_is_refused_without_being_shown(token: str) -> None:
    with pytest.raises(ConfigError, match="characters") as caught:
        token_from(None, {TOKEN_VARIABLE: token})
    assert not token or token not in str(caught.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no-such-file"):
        token_from(tmp_path / "no-such-file", {})


def test_a_new_token_is_a_token() -> None:
    token = new_token()
    assert token_from(None, {TOKEN_VARIABLE: token}) == token
    assert token != new_token()
