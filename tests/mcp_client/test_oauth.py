"""Logging in with a browser, against an authorization server in this process."""

import stat
import threading
import urllib.request
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import anyio
import httpx2
import pytest
from mcp.client.auth import OAuthFlowError
from mcp.shared.auth import OAuthToken
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from nacre.config.mcp_entry import McpServerConfig
from nacre.mcp_client.oauth import TokenFile, build_login

# The port on which a login ends is made of its URL: that of this one is 62788, which Linux gives to
# nobody who asks for any port.
BASE = "http://login2.test"
URL = f"{BASE}/mcp"


def config(*, oauth: bool = True) -> McpServerConfig:
    return McpServerConfig(name="safe", transport="http", url=URL, oauth=oauth)


class AuthorizationServer:
    """Lets everybody in who brings the code; counts its logins."""

    def __init__(self) -> None:
        self.login_count = 0
        self.app = Starlette(
            routes=[
                Route("/mcp", self._mcp, methods=["POST"]),
                Route("/.well-known/oauth-protected-resource/mcp", self._resource),
                Route("/.well-known/oauth-authorization-server", self._metadata),
                Route("/register", self._register, methods=["POST"]),
                Route("/token", self._token, methods=["POST"]),
            ]
        )

    async def _mcp(self, request: Request) -> Response:
        if request.headers.get("authorization") == "Bearer the-token":
            return Response("welcome")
        return Response("who are you?", status_code=401, headers={"www-authenticate": "Bearer"})

    async def _resource(self, request: Request) -> Response:
        return JSONResponse({"resource": URL, "authorization_servers": [BASE]})

    async def _metadata(self, request: Request) -> Response:
        return JSONResponse(
            {
                "issuer": BASE,
                "authorization_endpoint": f"{BASE}/authorize",
                "token_endpoint": f"{BASE}/token",
                "registration_endpoint": f"{BASE}/register",
                "response_types_supported": ["code"],
                "code_challenge_methods_supported": ["S256"],
            }
        )

    async def _register(self, request: Request) -> Response:
        return JSONResponse({**await request.json(), "client_id": "client-1"}, status_code=201)

    async def _token(self, request: Request) -> Response:
        form = parse_qs((await request.body()).decode())
        assert form["code"] == ["the-code"]
        self.login_count += 1
        return JSONResponse({"access_token": "the-token", "token_type": "Bearer"})

    def client(self, auth: httpx2.Auth | None) -> httpx2.AsyncClient:
        return httpx2.AsyncClient(transport=httpx2.ASGITransport(self.app), auth=auth)


def browser(**answer: str) -> Any:
    """Comes back from the login page at once, with these parameters."""

    def open_page(url: str) -> None:
        query = parse_qs(urlsplit(url).query)
        back = f"{query['redirect_uri'][0]}?{urlencode({**answer, 'state': query['state'][0]})}"

        def visit() -> None:
            with urllib.request.urlopen(back, timeout=30) as page:
                page.read()

        threading.Thread(target=visit, daemon=True).start()

    return open_page


@contextmanager
def noted(moments: list[str]) -> Generator[None]:
    moments.append("asked")
    yield
    moments.append("answered")


def kept_in(directory: Path) -> Path:
    (path,) = directory.iterdir()
    return path


@pytest.fixture
async def server() -> AuthorizationServer:
    # The first client of a process reads files, which is not what is tested here.
    await httpx2.AsyncClient().aclose()
    return AuthorizationServer()


async def test_a_login_is_made_once_and_kept(server: AuthorizationServer, tmp_path: Path) -> None:
    moments: list[str] = []
    for _ in range(2):
        login = build_login(
            config(),
            lambda: noted(moments),
            open_browser=browser(code="the-code"),
            directory=tmp_path,
        )
        with anyio.fail_after(30):
            async with server.client(login) as client:
                assert (await client.post(URL)).text == "welcome"
    assert server.login_count == 1
    assert moments == ["asked", "answered"]


async def test_a_refused_login_is_told(server: AuthorizationServer, tmp_path: Path) -> None:
    login = build_login(
        config(),
        lambda: noted([]),
        open_browser=browser(error="access_denied", error_description="not you"),
        directory=tmp_path,
    )
    with anyio.fail_after(30):
        async with server.client(login) as client:
            with pytest.raises(OAuthFlowError, match="not you"):
                await client.post(URL)


def test_without_the_setting_nobody_is_asked() -> None:
    assert build_login(config(oauth=False), lambda: noted([])) is None


async def test_tokens_are_for_their_owner_alone(tmp_path: Path) -> None:
    tokens = TokenFile(URL, directory=tmp_path / "new")
    await tokens.set_tokens(OAuthToken(access_token="secret", token_type="Bearer"))
    path = kept_in(tmp_path / "new")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    kept = await TokenFile(URL, directory=tmp_path / "new").get_tokens()
    assert kept is not None
    assert kept.access_token == "secret"
    assert await TokenFile(f"{URL}2", directory=tmp_path / "new").get_tokens() is None


@pytest.mark.parametrize("content", [b"", b"not json", b"[]", b'{"tokens": {"no": "token"}}'])
async def test_tokens_that_cannot_be_read_are_none(tmp_path: Path, content: bytes) -> None:
    tokens = TokenFile(URL, directory=tmp_path)
    await tokens.set_tokens(OAuthToken(access_token="secret", token_type="Bearer"))
    kept_in(tmp_path).write_bytes(content)
    assert await tokens.get_tokens() is None


async def test_tokens_that_others_could_read_are_not_used(tmp_path: Path) -> None:
    tokens = TokenFile(URL, directory=tmp_path)
    await tokens.set_tokens(OAuthToken(access_token="secret", token_type="Bearer"))
    kept_in(tmp_path).chmod(0o644)
    assert await tokens.get_tokens() is None
