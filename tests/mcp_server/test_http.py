"""`nacre mcp serve --http`: authentication, responses and shutdown."""

import signal
import socket
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import httpx2
import psutil
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from nacre.config import is_loopback
from nacre.errors import ConfigError
from nacre.mcp_server import ServeOptions, serve_http
from nacre.mcp_server.http import (
    TOKEN_VARIABLE,
    AccessCheck,
    load_token,
    new_token,
)
from tests.mcp_server.clients import Era, FormFiller, Heard, exec_in, wait_in
from tests.mcp_server.processes import ServerProcess, http_server, still_running

Served = tuple[ServerProcess, str, str]
BODY = {"jsonrpc": "2.0", "id": 1, "method": "ping"}


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with http_server() as served:
        yield served


@asynccontextmanager
async def connect(served: Served, era: Era, **options: Any) -> AsyncGenerator[Client]:
    _, url, token = served
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with httpx2.AsyncClient(headers=headers, timeout=60) as http:
        transport = streamable_http_client(url, http_client=http)
        options = {"cache": None, "read_timeout_seconds": 60, **options}
        async with Client(transport, mode=era, **options) as client:
            yield client


def status_of(served: Served, headers: dict[str, str], *, content: bytes | None = None) -> int:
    _, url, token = served
    given = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
    given["Authorization"] = f"Bearer {token}"
    json = None if content else BODY
    given.update(headers)
    return httpx2.post(url, headers=given, json=json, content=content, timeout=60).status_code


async def test_a_program_calls_a_real_server_and_the_client_hears_of_it(
    served: Served, era: Era
) -> None:
    heard = Heard()
    async with connect(served, era) as client:
        names = [tool.name for tool in (await client.list_tools()).tools]
        code = "return (await MCP.curious.echo({n: 1})).structuredContent"
        result = await exec_in(client, code, progress_callback=heard)
    assert (names, result["value"]) == (["exec", "wait"], {"n": 1})
    assert heard.messages == ["curious: echo (running)", "curious: echo (done)"]


async def test_approvals_and_questions_reach_the_person(served: Served, era: Era) -> None:
    approving = FormFiller("accept", decision="allow-once", city="Ulm")
    async with connect(served, era, elicitation_callback=approving) as client:
        code = """
            await MCP.guarded.echo({});
            return (await MCP.curious.ask({})).structuredContent
        """
        value: Any = (await exec_in(client, code))["value"]
    assert value["action"] == "accept"
    assert len(approving.asked) == 2


async def test_a_program_is_continued_by_a_later_request(served: Served, era: Era) -> None:
    async with connect(served, era) as client:
        waiting = await exec_in(client, "await yield_control(); return 5")
        assert (await wait_in(client, waiting["runId"]))["value"] == 5


async def test_sessions_are_kept_apart(served: Served) -> None:
    async with connect(served, "legacy") as first, connect(served, "legacy") as second:
        waiting = await exec_in(first, "await yield_control(); return 5")
        refused = await wait_in(second, waiting["runId"])
    assert refused["reason"] == "run_scope_mismatch"


async def test_the_servers_of_a_session_end_with_it(served: Served) -> None:
    server, _, _ = served
    before = set(server.children())
    async with connect(served, "legacy") as client:
        await exec_in(client, "return MCP.curious.echo({})")
        own = [child for child in server.children() if child not in before]
        upstream = [child for child in own if is_upstream(child)]
    assert upstream
    assert still_running(upstream) == []


def is_upstream(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):
        return "upstream_server" in " ".join(process.cmdline())
    return False


def test_without_the_token_nobody_gets_in(served: Served) -> None:
    assert status_of(served, {"Authorization": ""}) == 401
    assert status_of(served, {"Authorization": "Bearer wrong"}) == 401


def test_a_page_under_a_name_of_its_own_does_not_get_in(served: Served) -> None:
    assert status_of(served, {"Host": "evil.example"}) == 421
    assert status_of(served, {"Host": "user@127.0.0.1"}) == 400
    assert status_of(served, {"Origin": "https://evil.example"}) == 403


def test_a_body_that_is_too_large_is_not_read(served: Served) -> None:
    assert status_of(served, {}, content=b" " * (4 * 1024 * 1024 + 1)) == 413


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_a_signal_ends_it_with_all_that_it_started(number: signal.Signals) -> None:
    with http_server("--no-token") as served:
        server, _, token = served
        assert token == ""
        async with connect(served, "legacy") as client:
            await exec_in(client, "return MCP.curious.echo({})")
            children = server.children()
            assert len(children) >= 2
            server.signal(number)
            assert server.wait() == 128 + number
            assert still_running(children) == []


def test_without_a_token_only_this_machine_is_served() -> None:
    with pytest.raises(ConfigError, match="--no-token"):
        serve_http(ServeOptions(), "0.0.0.0", is_token_required=False)


def test_a_port_that_is_taken_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"{port}: another program uses it at 127.0.0.1"):
            serve_http(ServeOptions(), port=port)


@pytest.mark.parametrize(
    ("host", "is_own"),
    [
        ("127.0.0.1", True),
        ("127.8.8.8", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("localhost.evil.example", False),
        ("", False),
    ],
)
def test_which_addresses_are_this_machine_alone(host: str, is_own: bool) -> None:
    assert is_loopback(host) is is_own


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
    await AccessCheck(app, host="0.0.0.0", token=TOKEN)(
        {"type": kind, "headers": headers}, receive, send
    )
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
    assert load_token(file, {TOKEN_VARIABLE: f"{TOKEN}-env"}) == f"{TOKEN}-file"
    assert load_token(None, {TOKEN_VARIABLE: f"{TOKEN}-env"}) == f"{TOKEN}-env"
    assert load_token(None, {}) is None


@pytest.mark.parametrize(
    "token", ["", "short", "has spaces in it and is long", "naïve-naïve-naïve"]
)
def test_a_bad_token_is_refused_without_being_shown(token: str) -> None:
    with pytest.raises(ConfigError, match="characters") as caught:
        load_token(None, {TOKEN_VARIABLE: token})
    assert not token or token not in str(caught.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no-such-file"):
        load_token(tmp_path / "no-such-file", {})


def test_a_new_token_is_a_token() -> None:
    token = new_token()
    assert load_token(None, {TOKEN_VARIABLE: token}) == token
    assert token != new_token()
