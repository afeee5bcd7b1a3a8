"""Standard input and output as a wire: lines in and out, whatever they hold."""

import os
import threading
from collections.abc import AsyncIterator
from typing import Any

import anyio
import anyio.to_thread
import pytest
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCRequest, JSONRPCResponse

from nacre.json_types import JsonObject, decode_json
from nacre.mcp_server.stdio import MAX_LINE_BYTES, StdioWire, stdio_streams

PING = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'


class Pipes:
    """The wire, and the client's ends of it."""

    def __init__(self) -> None:
        input_fd, self.to_server = os.pipe()
        self.from_server, output_fd = os.pipe()
        self.wire = StdioWire(input_fd=input_fd, output_fd=output_fd)
        self._client_ends = [self.to_server, self.from_server]

    def close(self, fd: int) -> None:
        self._client_ends.remove(fd)
        os.close(fd)

    async def aclose(self) -> None:
        for fd in self._client_ends:
            os.close(fd)
        # It sees that the input has ended. One that has yet to look would find another file under
        # the same number: what the next test sends.
        for thread in threading.enumerate():
            if thread.name.endswith("(_read_lines)"):
                await anyio.to_thread.run_sync(thread.join, 30)
                assert not thread.is_alive()
        os.close(self.wire.input_fd)
        os.close(self.wire.output_fd)

    # Threads that would block for ever are left behind, so that a test fails instead of hanging.

    async def send(self, data: bytes) -> None:
        await anyio.to_thread.run_sync(os.write, self.to_server, data, abandon_on_cancel=True)

    async def receive(self) -> JsonObject:
        data = await anyio.to_thread.run_sync(
            os.read, self.from_server, 65536, abandon_on_cancel=True
        )
        value = decode_json(data)
        assert isinstance(value, dict)
        return value


@pytest.fixture
async def pipes() -> AsyncIterator[Pipes]:
    pipes = Pipes()
    yield pipes
    await pipes.aclose()


async def test_messages_go_in_and_out(pipes: Pipes) -> None:
    with anyio.fail_after(30):
        async with stdio_streams(pipes.wire) as (inbound, outbound):
            await pipes.send(PING + b"\n")
            received = await inbound.receive()
            assert isinstance(received, SessionMessage)
            assert isinstance(received.message, JSONRPCRequest)
            answer = JSONRPCResponse(jsonrpc="2.0", id=1, result={"a": "ü"})
            await outbound.send(SessionMessage(answer))
            assert await pipes.receive() == {"jsonrpc": "2.0", "id": 1, "result": {"a": "ü"}}
            pipes.close(pipes.to_server)
            with pytest.raises(anyio.EndOfStream):
                await inbound.receive()


async def test_the_last_answer_is_written_before_the_end(pipes: Pipes) -> None:
    async with stdio_streams(pipes.wire) as (_inbound, outbound):
        answer = JSONRPCResponse(jsonrpc="2.0", id=1, result={})
        await outbound.send(SessionMessage(answer))
    assert (await pipes.receive())["id"] == 1


@pytest.mark.parametrize("line", [b"not json", b"[]", b"\xff\xfe", b"[" * 10_000, b'{"id": NaN}'])
async def test_a_line_that_is_no_message_is_answered_and_the_next_is_read(
    pipes: Pipes, line: bytes
) -> None:
    with anyio.fail_after(30):
        async with stdio_streams(pipes.wire) as (inbound, _outbound):
            await pipes.send(line + b"\n" + PING + b"\n")
            refused: Any = await pipes.receive()
            assert refused["error"]["code"] == -32700
            assert refused["error"]["message"].startswith("not a JSON-RPC message")
            assert refused["id"] is None
            assert isinstance(await inbound.receive(), SessionMessage)


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b'{"jsonrpc":"2.0","id":7,"method":5}', "not a JSON-RPC message"),
        (b'{"jsonrpc":"2.0","id":7,"method":"x","params":[}', "is not JSON"),
        (b'{"jsonrpc":"2.0","id":7,"method":"x","params":%s}' % (b"[" * 999), "nested more than"),
        (b'{"method":"x","params":{"a":NaN},"jsonrpc":"2.0","id":7}', "NaN is not"),
    ],
)
async def test_a_request_that_cannot_be_read_is_answered_with_its_id(
    pipes: Pipes, line: bytes, problem: str
) -> None:
    with anyio.fail_after(30):
        async with stdio_streams(pipes.wire):
            await pipes.send(line + b"\n")
            refused: Any = await pipes.receive()
            assert (refused["id"], refused["error"]["code"]) == (7, -32700)
            assert problem in refused["error"]["message"]


async def test_half_a_surrogate_pair_and_deep_nesting_are_read(pipes: Pipes) -> None:
    deep = b"[" * 250 + b"]" * 250
    params = b'{"half":"\\ud800","odd":"\xff","deep":%s}' % deep
    line = b'{"jsonrpc":"2.0","id":7,"method":"x","params":%s}' % params
    with anyio.fail_after(30):
        async with stdio_streams(pipes.wire) as (inbound, _outbound):
            await pipes.send(line + b"\n")
            received = await inbound.receive()
    assert isinstance(received, SessionMessage)
    assert isinstance(received.message, JSONRPCRequest)
    assert received.message.params is not None
    assert (received.message.params["half"], received.message.params["odd"]) == ("\ufffd",) * 2


@pytest.mark.parametrize(
    ("start", "end"),
    [
        (b'{"jsonrpc":"2.0","id":7,"method":"x","params":{"a":"', b'"}}'),
        (b'{"method":"x","params":{"a":"', b'"},"jsonrpc":"2.0","id":7}'),
    ],
)
async def test_an_endless_line_is_answered_with_its_id_and_the_next_is_read(
    pipes: Pipes, start: bytes, end: bytes
) -> None:
    async def send() -> None:
        await pipes.send(start)
        for _ in range(MAX_LINE_BYTES // 65536 + 2):
            await pipes.send(b"x" * 65536)
        await pipes.send(end + b"\n" + PING + b"\n")

    with anyio.fail_after(60):
        async with (
            stdio_streams(pipes.wire) as (inbound, _outbound),
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(send)
            refused: Any = await pipes.receive()
            assert refused["id"] == 7
            assert str(MAX_LINE_BYTES) in refused["error"]["message"]
            assert isinstance(await inbound.receive(), SessionMessage)


async def test_an_answer_that_utf8_cannot_hold_becomes_an_error(pipes: Pipes) -> None:
    with anyio.fail_after(30):
        async with stdio_streams(pipes.wire) as (_inbound, outbound):
            answer = JSONRPCResponse(jsonrpc="2.0", id=7, result={"a": "\ud800"})
            await outbound.send(SessionMessage(answer))
            received: Any = await pipes.receive()
    assert (received["id"], received["error"]["code"]) == (7, -32603)


async def test_a_client_that_reads_no_more_ends_the_connection(pipes: Pipes) -> None:
    with anyio.fail_after(30):
        async with stdio_streams(pipes.wire) as (inbound, outbound):
            pipes.close(pipes.from_server)
            answer = JSONRPCResponse(jsonrpc="2.0", id=1, result={})
            await outbound.send(SessionMessage(answer))
            with pytest.raises(anyio.EndOfStream):
                await inbound.receive()
