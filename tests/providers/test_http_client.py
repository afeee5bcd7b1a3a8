"""Servers that answer with more, or with something else, than they were asked for."""

import gzip
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio
import pytest
from anyio.abc import SocketAttribute, SocketStream

from nacre.config.models import ModelsConfig, ProviderApi, ProviderConfig
from nacre.errors import ProviderError
from nacre.messages import user_message
from nacre.providers import http_client
from nacre.providers.base import ModelRequest
from nacre.providers.registry import Providers
from tests.providers.asking import API_KEY, WAIT_SECONDS

EVERY_API: tuple[ProviderApi, ...] = (
    "openai-completions",
    "openai-responses",
    "anthropic-messages",
    "google-generative-ai",
)
every_api = pytest.mark.parametrize("api", EVERY_API)
STREAM_HEAD = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"


class Server:
    """Answers every request with a head, and then with the same bytes again and again."""

    def __init__(self, head: str, body: bytes, *, is_endless: bool = False) -> None:
        self._answer = f"{head}Connection: close\r\n\r\n".encode()
        self._body = body
        self._is_endless = is_endless
        self.port = 0
        self.requests: list[bytes] = []

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[None]:
        listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
        self.port = listener.extra(SocketAttribute.local_port)
        async with listener, anyio.create_task_group() as tasks:
            tasks.start_soon(listener.serve, self._serve)
            yield
            tasks.cancel_scope.cancel()

    async def _serve(self, stream: SocketStream) -> None:
        async with stream:
            request = b""
            while b"\r\n\r\n" not in request:
                request += await stream.receive()
            self.requests.append(request)
            try:
                await stream.send(self._answer + self._body)
                while self._is_endless:
                    await stream.send(self._body)
            except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                # The client has had enough.
                pass


async def failure_of(api: ProviderApi, server: Server) -> ProviderError:
    url = f"http://127.0.0.1:{server.port}"
    config = ProviderConfig(
        name="test", api=api, base_url=url, api_key=API_KEY, max_retries=2, timeout_seconds=30
    )
    providers = Providers(ModelsConfig(providers={"test": config}), first_retry_seconds=0.0)
    request = ModelRequest(instructions="", messages=[user_message("hello")])
    try:
        with anyio.fail_after(WAIT_SECONDS), pytest.raises(ProviderError) as caught:
            async with providers.get("test/model").stream(request) as events:
                async for _ in events:
                    pass
    finally:
        await providers.aclose()
    return caught.value


@every_api
@pytest.mark.parametrize("head", [STREAM_HEAD, "HTTP/1.1 400 Bad Request\r\n"])
async def test_an_answer_without_end_is_not_read_for_ever(
    api: ProviderApi, head: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_client, "MAX_ANSWER_BYTES", 200_000)
    server = Server(head, b"data: " * 3000, is_endless=True)
    async with server.open():
        error = await failure_of(api, server)

    assert "test/model: the answer has more than 200000 bytes" in error.message
    assert not error.is_retryable


@every_api
async def test_a_compressed_answer_is_refused_unread(api: ProviderApi) -> None:
    head = f"{STREAM_HEAD}Content-Encoding: gzip\r\n"
    server = Server(head, gzip.compress(bytes(1_000_000)))
    async with server.open():
        error = await failure_of(api, server)

    assert "the answer is compressed ('gzip')" in error.message
    assert len(server.requests) == 1
    assert b"accept-encoding: identity" in server.requests[0].lower()


@every_api
async def test_a_redirect_is_not_followed_with_the_key(api: ProviderApi) -> None:
    other = Server(STREAM_HEAD, b"")
    async with other.open():
        server = Server(
            f"HTTP/1.1 307 Moved\r\nLocation: http://127.0.0.1:{other.port}/\r\n"
            "Content-Length: 0\r\n",
            b"",
        )
        async with server.open():
            await failure_of(api, server)

    assert other.requests == []
