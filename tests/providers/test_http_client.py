"""The HTTP client of the providers: limits on responses, stream events and debug logs."""

import gzip
import logging
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
from nacre.providers.http_client import SseEvent, SseParser, WireLog
from nacre.providers.provider_secrets import ProviderSecrets
from nacre.providers.registry import Providers
from nacre.telemetry.debug_flags import DebugFlags
from nacre.testing import Fail, Say
from tests.providers.asking import API_KEY, SCRIPTED_APIS, WAIT_SECONDS, WEATHER, scripted

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
    monkeypatch.setattr(http_client, "MAX_RESPONSE_BYTES", 200_000)
    server = Server(head, b"data: " * 3000, is_endless=True)
    async with server.open():
        error = await failure_of(api, server)

    assert "test/model: the response has more than 200000 bytes" in error.message
    assert not error.is_retryable


@every_api
async def test_a_compressed_answer_is_refused_unread(api: ProviderApi) -> None:
    head = f"{STREAM_HEAD}Content-Encoding: gzip\r\n"
    server = Server(head, gzip.compress(bytes(1_000_000)))
    async with server.open():
        error = await failure_of(api, server)

    assert "the response is compressed ('gzip')" in error.message
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


STREAM = (
    b": a comment\n\n"
    b'data: {"object":"chunk","n":1}\n\n'
    b'event: message_start\r\ndata: {"type":"x"}\r\n\r\n'
    b"data: [DONE]\n\n"
    b"data: one\ndata: two\n\n"
    b"data: never ended\n"
)


def events_in(stream: bytes, *, piece_bytes: int) -> list[SseEvent]:
    watch = SseParser()
    pieces = (stream[at : at + piece_bytes] for at in range(0, len(stream), piece_bytes))
    return [event for piece in pieces for event in watch.feed(piece)]


@pytest.mark.parametrize("piece_bytes", [1, 2, 3, 7, 1000])
def test_events_are_told_apart_in_pieces_of_any_size(piece_bytes: int) -> None:
    events = events_in(STREAM, piece_bytes=piece_bytes)

    assert [event.kind for event in events] == ["chunk", "message_start", "[DONE]", "one\ntwo"]
    assert events[0].data == {"object": "chunk", "n": 1}
    assert events[2].data == "[DONE]"
    assert events[3].size_bytes == len(b"data: one\ndata: two\n\n")


@pytest.mark.parametrize("piece_bytes", [1000, 100_000, 1_000_000])
def test_a_huge_event_is_counted_and_not_kept(piece_bytes: int) -> None:
    huge = b"data: %b\n\n" % (b"x" * 300_000)
    events = events_in(huge + b"data: 1\n\n", piece_bytes=piece_bytes)

    assert [event.size_bytes for event in events] == [len(huge), len(b"data: 1\n\n")]
    assert len(str(events[0].data)) < 100_000
    assert events[1].data == 1


every_scripted_api = pytest.mark.parametrize("api", SCRIPTED_APIS)
HEADER_SECRET = "header-secret-98765"
TYPED_SECRET = "sk-abcdefghijklmnop0123"


async def lines_of(
    api: ProviderApi,
    flags: DebugFlags,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> list[str]:
    """What is logged while a provider that fails once answers a question."""
    monkeypatch.setattr(http_client, "get_debug_flags", lambda: flags)
    turns = [Fail(500, f"trouble with {API_KEY}"), Say(f"Good morning {TYPED_SECRET} to you all")]
    headers = {"x-secret": HEADER_SECRET}
    with caplog.at_level(logging.INFO, logger="nacre.debug"):
        async with scripted(api, turns, max_retries=1, headers=headers) as test:
            await test.ask(f"my token is {TYPED_SECRET}, a b c", tools=[WEATHER])
    return [
        f"{record.name}: {record.getMessage()}"
        for record in caplog.records
        if record.name.startswith("nacre.debug")
    ]


ALL_FLAGS = [
    DebugFlags(model_transport=True),
    DebugFlags(model_payload="tools"),
    DebugFlags(model_payload="full-redacted"),
    DebugFlags(sse="events"),
    DebugFlags(sse="peek"),
]


@every_scripted_api
@pytest.mark.parametrize("flags", ALL_FLAGS)
async def test_no_secret_is_ever_logged(
    api: ProviderApi,
    flags: DebugFlags,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    lines = await lines_of(api, flags, monkeypatch, caplog)

    assert lines
    for secret in (API_KEY, HEADER_SECRET, TYPED_SECRET):
        assert secret not in "\n".join(lines)


async def test_without_a_switch_nothing_is_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert await lines_of("openai-completions", DebugFlags(), monkeypatch, caplog) == []


@every_scripted_api
async def test_the_transport_switch_tells_attempts_statuses_and_bytes(
    api: ProviderApi, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    flags = DebugFlags(model_transport=True)
    lines = await lines_of(api, flags, monkeypatch, caplog)

    assert all(line.startswith("nacre.debug.model_transport: POST http://1") for line in lines)
    log = "\n".join(lines)
    assert "attempt 1, " in log
    assert "status 500" in log
    assert "attempt 2, " in log
    assert "status 200" in log
    assert "bytes received" in lines[-1]


@every_scripted_api
async def test_the_payload_switch_names_the_tools_on_the_wire(
    api: ProviderApi, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    lines = await lines_of(api, DebugFlags(model_payload="tools"), monkeypatch, caplog)

    assert len(lines) == 2
    assert "tools: weather (" in lines[0]


@every_scripted_api
async def test_the_payload_switch_can_show_the_whole_body(
    api: ProviderApi, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    flags = DebugFlags(model_payload="full-redacted")
    lines = await lines_of(api, flags, monkeypatch, caplog)

    assert '"The weather of a town."' in lines[0]
    assert "my token is [redacted]" in lines[0]


@every_scripted_api
async def test_the_stream_switch_tells_the_kind_and_size_of_each_event(
    api: ProviderApi, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    lines = await lines_of(api, DebugFlags(sse="events"), monkeypatch, caplog)

    assert len(lines) > 5
    assert lines[0].startswith("nacre.debug.sse: 1: ")
    assert all(line.endswith(" bytes") for line in lines)
    assert "Good" not in "\n".join(lines)


@every_scripted_api
async def test_the_stream_switch_can_show_the_first_five_events(
    api: ProviderApi, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    lines = await lines_of(api, DebugFlags(sse="peek"), monkeypatch, caplog)

    assert [line.split(":")[1] for line in lines] == [" 1", " 2", " 3", " 4", " 5"]
    assert "{" in lines[0]


def test_a_large_body_is_shown_in_part(caplog: pytest.LogCaptureFixture) -> None:
    secrets = ProviderSecrets(ProviderConfig(name="p", api="openai-completions"))
    log = WireLog(DebugFlags(model_payload="full-redacted"), secrets)
    body = b'{"messages":[%b"end"]}' % (b'"%b",' % (b"x" * 1000) * 1000)
    with caplog.at_level(logging.INFO, logger="nacre.debug"):
        log.log_request(method="POST", url="http://a/b", body=body, attempt=1)

    assert 1000 < len(caplog.records[0].getMessage()) < 50_000


def test_a_body_that_cannot_be_read_is_said_to_be_so(caplog: pytest.LogCaptureFixture) -> None:
    secrets = ProviderSecrets(ProviderConfig(name="p", api="openai-completions"))
    log = WireLog(DebugFlags(model_payload="tools"), secrets)
    with caplog.at_level(logging.INFO, logger="nacre.debug"):
        log.log_request(method="POST", url="http://a/b", body=b"\xff\x00", attempt=1)

    assert "cannot be logged" in caplog.records[0].getMessage()


def test_an_address_is_shown_without_user_and_query() -> None:
    secrets = ProviderSecrets(ProviderConfig(name="p", api="openai-completions", api_key="k" * 20))
    shown = secrets.url(f"https://me:pass@host:81/v1/{'k' * 20}/chat?key=abc#d")
    assert shown == "https://host:81/v1/[redacted]/chat"
    assert secrets.url("http://[broken") == "[not a URL]"
