"""Servers at a URL."""

import os
import zlib
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

import anyio
import httpx2
import pytest
from anyio.abc import SocketAttribute, SocketStream

from nacre.config.mcp_entry import McpServerConfig
from nacre.errors import ToolFailedError, ToolServerError
from nacre.mcp_client import McpConnections, http_transport, transport
from nacre.mcp_client.process import OutputTail
from tests.forked_python import FORKED_PYTHON
from tests.mcp_client.conftest import Opening
from tests.mcp_client.peers import HTTP_SERVER, Person, call, call_tool, text_of, tool_of


@dataclass(frozen=True, kw_only=True, slots=True)
class Running:
    """A server of `http_server.py`."""

    pid: int
    port: int

    def config(self, **headers: str) -> McpServerConfig:
        url = f"http://127.0.0.1:{self.port}/mcp"
        return McpServerConfig(name="http", transport="http", url=url, headers=headers)


@asynccontextmanager
async def serving(*options: str, port: int = 0) -> AsyncGenerator[Running]:
    command = [FORKED_PYTHON, str(HTTP_SERVER), str(port), *options]
    async with await anyio.open_process(command, stderr=None) as process:
        assert process.stdout is not None
        with anyio.fail_after(30):
            found = int(await process.stdout.receive())
        yield Running(pid=process.pid, port=found)
        with suppress(ProcessLookupError):
            process.kill()


async def test_a_call_over_streamable_http(opening: Opening) -> None:
    async with serving() as running:
        server = await opening.one(running.config())
        assert text_of(await call(server, "echo", text="grüße")) == "grüße"
        assert text_of(await call(server, "echo", text="half \ud800")) == "half \ufffd"
        assert server.status().version == "http 1"
        assert server.status().restarts == 0


async def test_a_call_over_sse(opening: Opening) -> None:
    async with serving("--sse") as running:
        url = f"http://127.0.0.1:{running.port}/sse"
        server = await opening.one(McpServerConfig(name="sse", transport="sse", url=url))
        assert text_of(await call(server, "echo", text="hi")) == "hi"


async def test_headers_are_sent(opening: Opening) -> None:
    async with serving("--token", "correct-horse") as running:
        server = await opening.one(running.config(Authorization="Bearer correct-horse"))
        assert text_of(await call(server, "authorization")) == "Bearer correct-horse"


async def test_a_missing_token_is_told_by_its_status(opening: Opening) -> None:
    async with serving("--token", "correct-horse") as running:
        server = await opening.one(running.config())
        with pytest.raises(ToolServerError, match="answered HTTP 401 Unauthorized; it needs a tok"):
            await server.tools()


async def test_a_refusal_over_sse_does_not_tell_the_secrets_of_the_url(opening: Opening) -> None:
    async with serving("--sse", "--token", "correct-horse") as running:
        url = f"http://127.0.0.1:{running.port}/sse?key=battery-staple"
        server = await opening.one(McpServerConfig(name="sse", transport="sse", url=url))
        with pytest.raises(ToolServerError, match="401 Unauthorized") as caught:
            await server.tools()
    assert "battery-staple" not in caught.value.message
    assert "battery-staple" not in server.status().problem


async def test_ten_megabytes_are_named(opening: Opening) -> None:
    async with serving() as running:
        server = await opening.one(running.config())
        assert await call(server, "large", characters=10_000_000) == {
            "content": [{"type": "text", "omitted": "text of 10,000,000 characters"}],
            "isError": False,
        }


async def test_a_message_beyond_all_bounds_fails_its_call(opening: Opening) -> None:
    async with serving() as running:
        server = await opening.one(running.config())
        with pytest.raises(ToolServerError, match="exceeded the 33554432 byte limit"):
            await call(server, "large", characters=40_000_000)
        assert text_of(await call(server, "echo", text="hi")) == "hi"


async def test_a_server_that_is_not_there_is_named_without_its_secrets(opening: Opening) -> None:
    url = "http://127.0.0.1:1/mcp?key=correct-horse"
    server = await opening.one(McpServerConfig(name="gone", transport="http", url=url))
    with pytest.raises(ToolServerError) as caught:
        await server.tools()
    assert caught.value.message == (
        "the MCP server gone cannot be reached at http://127.0.0.1:1: "
        "All connection attempts failed"
    )


async def test_a_server_that_dies_fails_the_call_and_is_found_again_when_it_is_back(
    opening: Opening,
) -> None:
    async with serving() as running:
        server = await opening.one(running.config())
        echo, die = await tool_of(server, "echo"), await tool_of(server, "die")
        with pytest.raises(ToolServerError, match="was lost during the call"):
            await call_tool(die, {})
    async with serving(port=running.port):
        assert text_of(await call_tool(echo, {"text": "again"})) == "again"


async def test_a_server_that_was_restarted_is_asked_again_without_an_error(
    opening: Opening,
) -> None:
    async with serving() as running:
        server = await opening.one(running.config())
        echo = await tool_of(server, "echo")
        os.kill(running.pid, 9)
    async with serving(port=running.port):
        # The connection is gone, and the session with it: both are made again.
        assert text_of(await call_tool(echo, {"text": "again"})) == "again"


@asynccontextmanager
async def answering(head: bytes, body: bytes) -> AsyncGenerator[McpServerConfig]:
    """A server that answers everything with a head, and a body that it sends for ever."""

    async def answer(stream: SocketStream) -> None:
        async with stream:
            await stream.receive()
            await stream.send(b"HTTP/1.1 200 OK\r\nConnection: close\r\n" + head + b"\r\n\r\n")
            try:
                while True:
                    await stream.send(body)
            except anyio.BrokenResourceError:
                # The reader has had enough.
                return

    listener = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=0)
    url = f"http://127.0.0.1:{listener.extra(SocketAttribute.local_port)}/mcp"
    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, answer)
        yield McpServerConfig(name="flood", transport="http", url=url)
        tasks.cancel_scope.cancel()


async def test_a_body_without_end_is_refused() -> None:
    async with (
        answering(b"Content-Type: application/json", b" " * 1_000_000) as config,
        McpConnections([config]) as connections,
    ):
        (server,) = connections.servers()
        with pytest.raises(ToolServerError, match="the response has more than 33,554,432 bytes"):
            await server.tools()


async def test_a_compressed_body_is_refused_because_it_may_be_any_size() -> None:
    head = b"Content-Type: application/json\r\nContent-Encoding: gzip"
    async with (
        answering(head, zlib.compress(b" " * 1_000_000)) as config,
        McpConnections([config]) as connections,
    ):
        (server,) = connections.servers()
        with pytest.raises(ToolServerError, match="the response is compressed"):
            await server.tools()


async def test_an_error_status_during_a_call_is_told(opening: Opening) -> None:
    async with serving("--token", "correct-horse") as running:
        server = await opening.one(running.config(Authorization="Bearer correct-horse"))
        echo = await tool_of(server, "echo")
        # Nothing of ours can take the token back, so a second server at the port refuses it.
        os.kill(running.pid, 9)
    async with serving("--token", "another", port=running.port):
        with pytest.raises((ToolServerError, ToolFailedError), match="HTTP 401 Unauthorized"):
            await call_tool(echo, {})


@pytest.mark.parametrize(("transport_name", "path"), [("http", "mcp"), ("sse", "sse")])
async def test_a_flood_over_http_is_dropped_as_over_stdio(
    opening: Opening, monkeypatch: pytest.MonkeyPatch, transport_name: Any, path: str
) -> None:
    monkeypatch.setattr(transport, "_MAX_NOTIFICATIONS", 50)
    monkeypatch.setattr(transport, "_NOTIFICATIONS_PER_SECOND", 0)
    monkeypatch.setattr(transport, "_MAX_OPEN_REQUESTS", 5)
    read: list[object] = []
    admits = transport.Inflow.admits

    def count(inflow: transport.Inflow, message: Any) -> bool:
        read.append(message)
        return admits(inflow, message)

    monkeypatch.setattr(transport.Inflow, "admits", count)
    # It takes long to answer, so that the requests stay open.
    person = Person(seconds=3600)
    async with serving("--flood") as running:
        url = f"http://127.0.0.1:{running.port}/{path}"
        config = McpServerConfig(name="flood", transport=transport_name, url=url)
        server = await opening.one(config, upstream=person)
        updates: list[Any] = []
        flood = await tool_of(server, "flood")
        result = await call_tool(flood, {"notifications": 500}, updates)
        assert text_of(result) == "done"
        assert len(updates) == 50
        assert len(read) < 100
        assert server.status().last_output == ("limit: too many notifications; some are dropped",)

        assert text_of(await call_tool(flood, {"requests": 20})) == "done"
        assert len(person.asked) == 5
        assert server.status().last_output[-1] == "limit: too many requests; some are dropped"
        assert text_of(await call_tool(flood, {})) == "done"


@pytest.mark.parametrize("size", [1, 3, 7, 50, 100_000])
@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
async def test_events_are_dropped_whole_whatever_the_chunks(
    monkeypatch: pytest.MonkeyPatch, size: int, end: bytes
) -> None:
    monkeypatch.setattr(transport, "_MAX_NOTIFICATIONS", 3)
    monkeypatch.setattr(transport, "_NOTIFICATIONS_PER_SECOND", 0)

    def event(text: str) -> bytes:
        return b"event: message" + end + b"data: " + text.encode() + end * 2

    progress = event('{"jsonrpc":"2.0","method":"notifications/progress","params":{}}')
    result = event('{"id":1,"result":"' + "a" * 5_000 + '"}')
    large = event('{"method":"notifications/message","params":"' + "b" * 5_000 + '"}')
    stream = result + progress * 3 + result + progress + large + result + b"data: end"

    class Chunks(httpx2.AsyncByteStream):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            for start in range(0, len(stream), size):
                yield stream[start : start + size]

    inflow = transport.Inflow(OutputTail())
    bounded = http_transport._BoundedEvents(Chunks(), inflow)  # pyright: ignore[reportPrivateUsage]
    found = b"".join([chunk async for chunk in bounded])
    # More empty lines between events do no harm.
    assert found.split() == (result + progress * 3 + result * 2 + b"data: end").split()


MANY_PARTS = b'{"jsonrpc":"2.0","id":1,"result":{"a":[' + b"[]," * 30_000


@pytest.mark.parametrize(
    ("kind", "body"), [(b"application/json", b"[]," * 30_000), (b"text/event-stream", MANY_PARTS)]
)
async def test_an_answer_of_too_many_parts_is_refused(kind: bytes, body: bytes) -> None:
    body = b"data: " + body + b"\n" if kind == b"text/event-stream" else body
    async with (
        answering(b"Content-Type: " + kind, body) as config,
        McpConnections([config]) as connections,
    ):
        (server,) = connections.servers()
        with pytest.raises(ToolServerError, match="the response has more than 200,000 parts"):
            await server.tools()


async def test_the_sdk_logs_neither_messages_nor_tracebacks(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("DEBUG")
    async with (
        answering(b"Content-Type: application/json", b'{"hunter2": ' * 1_000_000) as config,
        McpConnections([config]) as connections,
    ):
        (server,) = connections.servers()
        with pytest.raises(ToolServerError):
            await server.tools()
    assert "hunter2" not in caplog.text
    assert "Traceback" not in caplog.text
    assert not [record for record in caplog.records if record.name.startswith("mcp.client")]
