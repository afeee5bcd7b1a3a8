"""The web app's files, and the sign-in of browsers."""

import re
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest

from nacre.gateway.auth import SignIn, WebSession
from nacre.testing import ScriptedProvider
from tests.gateway.worlds import PATIENCE_SECONDS, TOKEN, World, open_gateway, open_world

READER = "reader-0123456789abcdef"
SCOPED: dict[str, Any] = {
    "gateway": {"auth": {"token": TOKEN, "tokens": {"r": {"token": READER, "scopes": ["read"]}}}}
}


@asynccontextmanager
async def browser(world: World) -> AsyncGenerator[httpx2.AsyncClient]:
    """A client without a token, whose requests come from a page of the gateway."""
    headers = {"origin": world.url}
    async with httpx2.AsyncClient(
        base_url=world.url, headers=headers, timeout=PATIENCE_SECONDS
    ) as client:
        yield client


async def new_code(world: World, **headers: str) -> str:
    answer = await world.client.post("/api/web/codes", json={}, headers=headers)
    assert answer.status_code == 200, answer.text
    return answer.json()["code"]


async def sign_in(client: httpx2.AsyncClient, **body: str) -> httpx2.Response:
    return await client.post("/api/web/sign-in", json=body)


def sign_in_of(world: World) -> SignIn:
    return world.app.state.gateway.sign_in


# Files.


@pytest.fixture
def assets(tmp_path: Path) -> Path:
    folder = tmp_path / "assets"
    folder.mkdir()
    (folder / "index.html").write_text("<!doctype html><title>Nacre</title>")
    (folder / "app-1a2b.js").write_text("plain")
    (folder / "app-1a2b.js.gz").write_text("gzipped")
    (folder / "app-1a2b.js.br").write_text("brotli")
    (folder / "icon-1.svg").write_text("<svg/>")
    (folder / "manifest.txt").write_text("not for browsers")
    (tmp_path / "secret.js").write_text("secret")
    return folder


async def test_the_page_is_served_for_every_view_with_a_strict_policy(
    tmp_path: Path, assets: Path
) -> None:
    async with (
        ScriptedProvider(()) as model,
        open_world(tmp_path, model, assets=assets) as world,
        browser(world) as client,
    ):
        for path in ("/app/", "/app/sessions/x", "/app/runs/../catalog", "/app/sign-in"):
            page = await client.get(path)
            assert (page.status_code, page.headers["cache-control"]) == (200, "no-store"), path
            policy = page.headers["content-security-policy"]
            assert "default-src 'none'" in policy
            assert "unsafe" not in policy
            assert "frame-ancestors 'none'" in policy
            assert page.headers["x-content-type-options"] == "nosniff"
        moved = await client.get("/", headers={"accept": "text/html,*/*"})
        assert (moved.status_code, moved.headers["location"]) == (307, "/app/")
        assert (await client.get("/app")).headers["location"] == "/app/"
        assert (await client.get("/")).json()["app"] == "/app/"


async def test_files_are_sent_compressed_as_the_browser_accepts(
    tmp_path: Path, assets: Path
) -> None:
    expected = {
        "gzip, deflate, br": "brotli",
        "gzip;q=1.0, br;q=0": "gzipped",
        "identity": "plain",
        "gzip;q=0.000": "plain",
        "": "plain",
    }
    async with ScriptedProvider(()) as model, open_world(tmp_path, model, assets=assets) as world:
        for accepted, content in expected.items():
            headers = {"accept-encoding": accepted}
            path = "/app/assets/app-1a2b.js"
            async with world.client.stream("GET", path, headers=headers) as got:
                body = b"".join([chunk async for chunk in got.aiter_raw()])
            assert (got.status_code, body.decode()) == (200, content), accepted
            assert "immutable" in got.headers["cache-control"]
            assert got.headers["vary"] == "Accept-Encoding"
            assert got.headers["content-type"].startswith("text/javascript")


async def test_no_path_leads_out_of_the_folder(tmp_path: Path, assets: Path) -> None:
    names = (
        "../secret.js",
        "..%2fsecret.js",
        "%2e%2e/secret.js",
        "..%5csecret.js",
        "%2fetc%2fpasswd",
        "./app-1a2b.js",
        "app-1a2b.js%00",
        "app-1a2b.js.br",
        ".app-1a2b.js",
        "index.html",
        "manifest.txt",
        "nothing-9.js",
        "x" * 5000 + ".js",
        "",
    )
    async with ScriptedProvider(()) as model, open_world(tmp_path, model, assets=assets) as world:
        for name in names:
            head, _, body = (await raw_get(world, f"/app/assets/{name}")).partition(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 404"), name
            assert b"not_found" in body


async def raw_get(world: World, path: str) -> bytes:
    """The response to exactly this path; a client of HTTP would resolve its dots."""
    host, _, port = world.url.removeprefix("http://").partition(":")
    async with await anyio.connect_tcp(host, int(port)) as stream:
        head = f"GET {path} HTTP/1.1\r\nHost: {host}:{port}\r\nConnection: close\r\n\r\n"
        await stream.send(head.encode())
        return b"".join([chunk async for chunk in stream])


async def test_a_gateway_without_the_built_app_says_so(tmp_path: Path) -> None:
    async with (
        ScriptedProvider(()) as model,
        open_world(tmp_path, model, assets=tmp_path / "none") as world,
    ):
        answer = await world.client.get("/app/")
    assert answer.status_code == 503
    assert "make install" in answer.text


# Sign-in.


async def test_a_code_signs_in_once_and_the_cookie_works_until_sign_out(tmp_path: Path) -> None:
    async with open_gateway(tmp_path) as world, browser(world) as client:
        before = (await client.get("/api/web/session")).json()
        code = await new_code(world)
        answer = await sign_in(client, code=code)
        assert answer.status_code == 204, answer.text
        cookie = answer.headers["set-cookie"]
        assert re.fullmatch(r"nacre_session_\d+=1\.[^;]+;.*", cookie)
        for part in ("HttpOnly", "SameSite=strict", "Path=/", "Max-Age=2592000"):
            assert part in cookie
        assert "Secure" not in cookie
        assert TOKEN not in cookie

        session = (await client.get("/api/web/session")).json()
        assert (before["isSignedIn"], session["isSignedIn"]) == (False, True)
        assert (session["scopes"], session["authMode"]) == (["admin"], "token")
        read = await client.get("/api/sessions")
        assert (read.status_code, read.headers["x-content-type-options"]) == (200, "nosniff")
        assert (await client.post("/api/runs", json={"text": "/status"})).status_code == 202

        async with browser(world) as other:
            assert (await sign_in(other, code=code)).status_code == 401

        value = client.cookies[cookie.partition("=")[0]]
        assert (await client.post("/api/web/sign-out")).status_code == 204
        assert (await client.get("/api/sessions")).status_code == 401
        stolen = {"cookie": f"{cookie.partition('=')[0]}={value}"}
        assert (await client.get("/api/sessions", headers=stolen)).status_code == 401


async def test_a_session_survives_a_restart_and_a_sign_out_does_too(tmp_path: Path) -> None:
    cookies: list[str] = []
    async with ScriptedProvider(()) as model:
        async with open_world(tmp_path, model) as world:
            for _ in range(2):
                async with browser(world) as client:
                    await sign_in(client, token=TOKEN)
                    cookies += client.cookies.values()
            async with browser(world) as client:
                client.cookies.set(port_cookie(world), cookies[1])
                assert (await client.post("/api/web/sign-out")).status_code == 204
        async with open_world(tmp_path, model) as world:
            statuses: list[int] = []
            for value in cookies:
                # The gateway has another port now.
                headers = {"cookie": f"{port_cookie(world)}={value}"}
                async with browser(world) as client:
                    statuses.append((await client.get("/api/agents", headers=headers)).status_code)
    assert statuses == [200, 401]


async def test_a_sign_out_counts_for_a_request_that_is_checked_at_the_same_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_gateway(tmp_path) as world:
        signing = sign_in_of(world)
        session = WebSession(
            id="x" * 22, expires=time.time() + 3600, scopes=frozenset(("read",)), token=TOKEN
        )

        async def read_before_the_sign_out(kind: str, key: str) -> None:
            await signing.sign_out(session)

        with monkeypatch.context() as patch:
            patch.setattr(world.system.store, "value", read_before_the_sign_out)
            assert not await signing.is_active(session)
        assert not await signing.is_active(session)


def port_cookie(world: World) -> str:
    return f"nacre_session_{world.url.rpartition(':')[2]}"


async def test_a_new_token_ends_the_sessions_and_codes_of_the_old_one(tmp_path: Path) -> None:
    async with open_gateway(tmp_path) as world, browser(world) as client:
        code = await new_code(world)
        await sign_in(client, token=TOKEN)
        gateway = replace(world.system.config.gateway, token="another-token-0123")
        await world.system.apply(replace(world.system.config, gateway=gateway))
        assert (await client.get("/api/agents")).status_code == 401
        assert not (await client.get("/api/web/session")).json()["isSignedIn"]
        assert (await sign_in(client, code=code)).status_code == 401
        assert (await sign_in(client, token="another-token-0123")).status_code == 204
        assert (await client.get("/api/agents")).status_code == 200


async def test_a_session_has_the_scopes_of_its_token(tmp_path: Path) -> None:
    async with open_gateway(tmp_path, document=SCOPED) as world, browser(world) as client:
        code = await new_code(world, authorization=f"Bearer {READER}")
        assert (await sign_in(client, code=code)).status_code == 204
        assert (await client.get("/api/web/session")).json()["scopes"] == ["read"]
        assert (await client.get("/api/sessions")).status_code == 200
        refused = await client.post("/api/runs", json={"text": "hi"})
        assert (refused.status_code, refused.json()["error"]["code"]) == (403, "missing_scope")
        # A link made by this browser allows no more.
        more = await client.post("/api/web/codes", json={})
        async with browser(world) as other:
            await sign_in(other, code=more.json()["code"])
            assert (await other.get("/api/web/session")).json()["scopes"] == ["read"]
            assert (await other.post("/api/web/sign-out")).status_code == 204


async def test_forged_and_foreign_cookies_are_refused(tmp_path: Path) -> None:
    async with open_gateway(tmp_path, document=SCOPED) as world, browser(world) as client:
        await sign_in(client, token=READER)
        name, value = next(iter(client.cookies.items()))
        version, session_id, created, signature = value.split(".")
        other = f"{'B' if signature[0] == 'A' else 'A'}{signature[1:]}"
        admin = sign_in_of(world).create_cookie("a-token-of-another-gateway")
        old = int(created) - 31 * 24 * 3600
        forged = (
            f"{version}.{session_id}.{int(created) + 1}.{signature}",
            f"{version}.{'A' * 22}.{created}.{signature}",
            f"{version}.{session_id}.{created}.{other}",
            f"{version}.{session_id}.{created}.",
            f"{version}.{session_id}.{old}.{signature}",
            f"{version}.{session_id}.{'9' * 12}.{signature}",
            f"2.{session_id}.{created}.{signature}",
            admin,
            sign_in_of(world).create_cookie(""),
            "",
            "x" * 5000,
            TOKEN,
        )
        async with browser(world) as attacker:
            for cookie in forged:
                headers = {"cookie": f"{name}={cookie}"}
                answer = await attacker.get("/api/sessions", headers=headers)
                assert answer.status_code == 401, cookie
            for header in (f"nacre_session={value}", f"{name}_x={value}", f'{name}="', "=;=,"):
                answer = await attacker.get("/api/sessions", headers={"cookie": header})
                assert answer.status_code == 401, header
            # Other servers on the host may have set malformed cookies.
            for others in ("", 'a={"b": [1,2]}; ', "x y=@; c=\\; "):
                headers = {"cookie": f"{others}{name}={value}"}
                assert (await attacker.get("/api/sessions", headers=headers)).status_code == 200


async def test_another_page_cannot_use_the_cookie_to_change_something(tmp_path: Path) -> None:
    cors: dict[str, Any] = {"gateway": {"corsOrigins": ["https://app.example.org"]}}
    async with open_gateway(tmp_path, document=cors) as world, browser(world) as client:
        await sign_in(client, token=TOKEN)
        cookie = {"cookie": "; ".join(f"{k}={v}" for k, v in client.cookies.items())}
        same_port = world.url.rpartition(":")[2]
        foreign: list[dict[str, str]] = [
            {},
            {"origin": "null"},
            {"origin": "https://evil.example"},
            {"origin": "https://app.example.org"},
            {"origin": "http://127.0.0.1:1"},
            {"origin": f"http://localhost:{same_port}"},
            {"origin": f"ftp://127.0.0.1:{same_port}"},
            {"sec-fetch-site": "same-site"},
            {"sec-fetch-site": "cross-site"},
            {"origin": "https://evil.example", "sec-fetch-site": "same-origin"},
        ]
        async with httpx2.AsyncClient(base_url=world.url, timeout=PATIENCE_SECONDS) as page:
            for headers in foreign:
                for path in ("/api/runs", "/api/web/codes", "/api/web/sign-out"):
                    answer = await page.post(
                        path, json={"text": "hi"}, headers={**cookie, **headers}
                    )
                    assert answer.status_code == 403, (path, headers)
                    assert answer.json()["error"]["code"] == "forbidden"
            own = {**cookie, "sec-fetch-site": "same-origin"}
            assert (await page.post("/api/web/codes", headers=own)).status_code == 200
            # The token of a program needs no origin, whatever else it sends.
            both = {**cookie, "authorization": f"Bearer {TOKEN}"}
            assert (await page.post("/api/web/codes", headers=both)).status_code == 200
            wrong = {**own, "authorization": "Bearer wrong"}
            assert (await page.get("/api/sessions", headers=wrong)).status_code == 401
    assert world.model.requests == []


async def test_guessing_is_limited_and_a_correct_guess_is_refused_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_gateway(tmp_path) as world, browser(world) as client:
        now = [1_800_000_000.0]
        monkeypatch.setattr(sign_in_of(world), "_clock", lambda: now[0])
        code = await new_code(world)
        for number in range(10):
            body = {"token": f"wrong-{number}"} if number % 2 else {"code": f"wrong-{number}"}
            refused = await sign_in(client, **body)
            assert refused.status_code == 401
            assert "nacre link" in refused.json()["error"]["message"]
        blocked = await sign_in(client, code=code)
        assert (blocked.status_code, blocked.headers["retry-after"]) == (429, "60")
        now[0] += 60
        assert (await sign_in(client, code=code)).status_code == 204


async def test_a_code_expires_and_the_oldest_of_many_is_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_gateway(tmp_path) as world, browser(world) as client:
        now = [1_800_000_000.0]
        monkeypatch.setattr(sign_in_of(world), "_clock", lambda: now[0])
        first = await new_code(world)
        late = await new_code(world)
        for _ in range(99):
            sign_in_of(world).create_code(TOKEN)
        assert (await sign_in(client, code=first)).status_code == 401
        now[0] += 600
        assert (await sign_in(client, code=late)).status_code == 401


async def test_a_sign_in_needs_one_secret_and_a_page_of_the_gateway(tmp_path: Path) -> None:
    async with open_gateway(tmp_path) as world, browser(world) as client:
        assert (await sign_in(client)).status_code == 400
        assert (await sign_in(client, code="x", token=TOKEN)).status_code == 400
        headers = {"origin": "https://evil.example"}
        foreign = await client.post("/api/web/sign-in", json={"token": TOKEN}, headers=headers)
        assert foreign.status_code == 403
        port = world.url.rpartition(":")[2]
        secure = {"origin": f"https://127.0.0.1:{port}"}
        answer = await client.post("/api/web/sign-in", json={"token": TOKEN}, headers=secure)
        assert "Secure" in answer.headers["set-cookie"]


async def test_without_authentication_nobody_has_to_sign_in(tmp_path: Path) -> None:
    none = {"gateway": {"auth": {"mode": "none"}}}
    async with open_gateway(tmp_path, document=none) as world, browser(world) as client:
        session = (await client.get("/api/web/session")).json()
        assert (session["isSignedIn"], session["authMode"]) == (True, "none")
        link = (await client.post("/api/web/codes", json={})).json()
        assert (link["code"], link["url"]) == ("", f"{world.url}/app/")
        assert (await client.post("/api/runs", json={"text": "/status"})).status_code == 202
        headers = (await client.get("/api/sessions")).headers
        assert headers["cross-origin-resource-policy"] == "same-origin"
        assert headers["x-content-type-options"] == "nosniff"
