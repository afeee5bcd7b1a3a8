"""Connections that send little by little, or nothing at all."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.abc
import pytest

from nacre.gateway.http_server import HeaderTimeoutProtocol, http_server
from nacre.gateway.server import listen_on

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
    with listen_on("127.0.0.1", 0) as listener:
        async with http_server(app or Answering(), listener):
            yield listener.getsockname()[1]


async def connected(port: int) -> anyio.abc.SocketStream:
    return await anyio.connect_tcp("127.0.0.1", port)


def be_impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on: a test has as long as it needs for what it sends before."""
    monkeypatch.setattr(HeaderTimeoutProtocol, "header_seconds", 0.05)


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


async def test_more_connections_than_there_is_room_for_are_closed_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("nacre.gateway.http_server._MAX_CONNECTIONS", 2)
    monkeypatch.setattr("nacre.gateway.http_server._MAX_REJECTED", 1)
    async with (
        serving() as port,
        await connected(port) as _first,
        await connected(port) as _second,
        await connected(port) as third,
        await connected(port) as fourth,
    ):
        assert await all_of(fourth) == b""
        await third.send(HEAD + b"connection: close\r\n\r\n")
        assert (await all_of(third)).startswith(b"HTTP/1.1 503 ")
