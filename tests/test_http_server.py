"""Connections that send little by little, or nothing at all."""

import socket
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any

import anyio
import anyio.abc
import pytest

from nacre.errors import ConfigError
from nacre.http_server import LimitedProtocol, http_server, is_own_host, listen_on

HEAD = b"GET / HTTP/1.1\r\nhost: here\r\n"


class Answering:
    """An application that answers at once, and `/slow` when the test says so."""

    def __init__(self) -> None:
        self.is_asked = anyio.Event()
        self.release = anyio.Event()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.is_asked.set()
        if scope["path"] == "/slow":
            await self.release.wait()
        headers = [(b"content-length", b"2")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"ok"})


@asynccontextmanager
async def serving(app: Answering | None = None) -> AsyncGenerator[int]:
    """The port where it answers."""
    with listen_on("127.0.0.1", 0, setting="port") as listener:
        async with http_server(app or Answering(), listener):
            yield listener.getsockname()[1]


async def connected(port: int) -> anyio.abc.SocketStream:
    return await anyio.connect_tcp("127.0.0.1", port)


def be_impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on: a test has as long as it needs for what it sends before."""
    monkeypatch.setattr(LimitedProtocol, "header_seconds", 0.05)


@pytest.fixture
def impatience(monkeypatch: pytest.MonkeyPatch) -> None:
    be_impatient(monkeypatch)


async def all_of(stream: anyio.abc.SocketStream) -> bytes:
    """What comes until the other end closes."""
    read = b""
    with anyio.fail_after(30):
        try:
            while True:
                read += await stream.receive()
        except (anyio.EndOfStream, anyio.BrokenResourceError):
            return read


@pytest.mark.usefixtures("impatience")
async def test_who_says_nothing_is_not_waited_for() -> None:
    async with serving() as port, await connected(port) as stream:
        assert await all_of(stream) == b""


@pytest.mark.usefixtures("impatience")
async def test_headers_that_never_end_are_not_waited_for() -> None:
    async with serving() as port, await connected(port) as stream:
        await stream.send(HEAD)
        assert await all_of(stream) == b""


async def test_the_rest_of_a_body_is_not_waited_for_once_it_was_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with serving() as port, await connected(port) as stream:
        await stream.send(HEAD.replace(b"GET", b"POST") + b"content-length: 9\r\n\r\n")
        answer = await stream.receive()
        be_impatient(monkeypatch)
        # From here on uvicorn's own timer, for the pause between two requests, is off.
        await stream.send(b"x")
        answer += await all_of(stream)
    assert answer.endswith(b"ok")


async def test_an_answer_may_take_longer_than_headers(monkeypatch: pytest.MonkeyPatch) -> None:
    app = Answering()
    async with serving(app) as port, await connected(port) as stream:
        await stream.send(HEAD.replace(b" / ", b" /slow ") + b"connection: close\r\n\r\n")
        with anyio.fail_after(30):
            await app.is_asked.wait()
        be_impatient(monkeypatch)
        async with await connected(port) as later:
            assert await all_of(later) == b""
        app.release.set()
        assert (await all_of(stream)).endswith(b"ok")


async def test_headers_in_pieces_are_fine() -> None:
    async with serving() as port, await connected(port) as stream:
        for piece in (HEAD, b"connection: close\r\n", b"\r\n"):
            await stream.send(piece)
        assert (await all_of(stream)).endswith(b"ok")


async def test_unfinished_headers_do_not_keep_other_clients_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("nacre.http_server._MAX_CONNECTIONS", 10)
    async with serving() as port, AsyncExitStack() as stack:
        unfinished = [await stack.enter_async_context(await connected(port)) for _ in range(50)]
        for stream in unfinished:
            # The first ones have been closed by now.
            with suppress(anyio.BrokenResourceError):
                await stream.send(HEAD)
        async with await connected(port) as client:
            await client.send(HEAD + b"connection: close\r\n\r\n")
            assert (await all_of(client)).endswith(b"ok")
        assert await all_of(unfinished[0]) == b""


async def test_more_requests_than_there_is_room_for_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("nacre.http_server._MAX_CONNECTIONS", 2)
    monkeypatch.setattr("nacre.http_server._MAX_REJECTED", 1)
    app = Answering()
    slow = HEAD.replace(b" / ", b" /slow ") + b"connection: close\r\n\r\n"
    async with serving(app) as port, await connected(port) as first:
        await first.send(slow)
        with anyio.fail_after(30):
            await app.is_asked.wait()
        async with await connected(port) as second:
            await second.send(slow)
            assert (await all_of(second)).startswith(b"HTTP/1.1 503 ")
        app.release.set()
        assert (await all_of(first)).endswith(b"ok")


_CHUNKED = b"transfer-encoding: chunked\r\n"
REFUSED = {
    "two lengths": b"POST / HTTP/1.1\r\nhost: here\r\ncontent-length: 5\r\n" + _CHUNKED,
    "chunks in HTTP/1.0": b"POST / HTTP/1.0\r\nhost: here\r\nconnection: keep-alive\r\n" + _CHUNKED,
    "user in host": b"POST / HTTP/1.1\r\nhost: user@here\r\n",
    "path in host": b"POST / HTTP/1.1\r\nhost: here/there\r\n",
    "space in host": b"POST / HTTP/1.1\r\nhost: he re\r\n",
    "no port": b"POST / HTTP/1.1\r\nhost: here:http\r\n",
    "open bracket": b"POST / HTTP/1.1\r\nhost: [::1\r\n",
    "empty host": b"POST / HTTP/1.1\r\nhost:\r\n",
}


@pytest.mark.parametrize("head", REFUSED.values(), ids=REFUSED)
async def test_ambiguous_requests_are_refused_and_their_connection_is_closed(
    head: bytes,
) -> None:
    app = Answering()
    async with serving(app) as port, await connected(port) as stream:
        smuggled = HEAD + b"\r\n"
        await stream.send(head + b"\r\n0\r\n\r\n" + smuggled)
        answer = await all_of(stream)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert answer.count(b"HTTP/1.1 ") == 1
    assert not app.is_asked.is_set()


@pytest.mark.parametrize(
    ("header", "host", "is_own"),
    [
        ("127.0.0.1:80", "127.0.0.1", True),
        ("LOCALHOST", "127.0.0.1", True),
        ("[::1]:8080", "localhost", True),
        ("proxy.example", "127.0.0.1", True),
        ("10.0.0.7", "10.0.0.7", True),
        ("localhost", "10.0.0.7", False),
        ("evil.example", "127.0.0.1", False),
        ("127.0.0.1.evil.example", "127.0.0.1", False),
        ("x@127.0.0.1", "127.0.0.1", False),
        ("", "127.0.0.1", False),
    ],
)
def test_which_host_headers_name_the_server(header: str, host: str, is_own: bool) -> None:
    assert is_own_host(header, host=host, others=["Proxy.example"]) is is_own


def test_small_messages_do_not_wait_for_acknowledgements() -> None:
    """asyncio sets TCP_NODELAY only for sockets that name their protocol."""
    with (
        listen_on("127.0.0.1", 0, setting="port") as listener,
        socket.create_connection(listener.getsockname()),
    ):
        accepted, _ = listener.accept()
        with accepted:
            assert accepted.proto == socket.IPPROTO_TCP


def test_an_address_that_is_not_ours_is_named() -> None:
    with pytest.raises(ConfigError, match=r"--port.*192\.0\.2\.1"):
        listen_on("192.0.2.1", 0, setting="--port")
