"""`nacre mcp` on standard input and output, with pipes and real clients."""

import json
import os
import signal
import sys
import threading
from collections.abc import AsyncIterator
from typing import Any

import anyio
import anyio.to_thread
import pytest
from mcp import Client
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCRequest, JSONRPCResponse

from nacre.json_types import JsonObject, decode_json
from nacre.mcp_server.stdio import MAX_LINE_BYTES, StdioWire, stdio_streams
from tests.mcp_server.clients import Era, FormFiller, Heard, exec_in
from tests.mcp_server.processes import (
    ServerProcess,
    server_process,
    stdio_parameters,
    still_running,
)

INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    },
}


def connect(era: Era, **options: Any) -> Client:
    return Client(stdio_parameters(), mode=era, cache=None, read_timeout_seconds=60, **options)


def send(server: ServerProcess, message: dict[str, Any]) -> None:
    server.stdin.write(json.dumps(message).encode() + b"\n")
    server.stdin.flush()


def call_exec(server: ServerProcess, code: str) -> None:
    params = {"name": "exec", "arguments": {"code": code}, "_meta": {"progressToken": "p"}}
    send(server, {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params})


def initialize(server: ServerProcess) -> dict[str, Any]:
    send(server, INITIALIZE)
    answer = json.loads(server.stdout.readline())
    send(server, {"jsonrpc": "2.0", "method": "notifications/initialized"})
    return answer


@pytest.fixture(scope="module")
async def shared(era: Era) -> AsyncIterator[tuple[Client, FormFiller]]:
    """One process for all tests that leave it as it was, and the person behind its client."""
    person = FormFiller("accept", decision="allow-once", city="Ulm")
    async with connect(era, elicitation_callback=person) as client:
        yield client, person


@pytest.fixture
def client(shared: tuple[Client, FormFiller]) -> Client:
    return shared[0]


@pytest.fixture
def person(shared: tuple[Client, FormFiller]) -> FormFiller:
    shared[1].asked.clear()
    return shared[1]


async def test_a_program_calls_a_real_server_and_the_client_hears_of_it(client: Client) -> None:
    heard = Heard()
    names = [tool.name for tool in (await client.list_tools()).tools]
    code = "return (await MCP.curious.echo({n: 1})).structuredContent"
    result = await exec_in(client, code, progress_callback=heard)
    assert names == ["exec", "wait"]
    assert result["value"] == {"n": 1}
    assert heard.messages == ["curious: echo (running)", "curious: echo (done)"]


async def test_a_question_of_a_server_reaches_the_person_behind_the_client(
    client: Client, person: FormFiller
) -> None:
    result = await exec_in(client, "return (await MCP.curious.ask({})).structuredContent")
    value: Any = result["value"]
    assert (value["action"], value["content"]["city"]) == ("accept", "Ulm")
    assert person.messages == ["curious asks: Where?"]


async def test_a_required_approval_reaches_the_person_behind_the_client(
    client: Client, person: FormFiller
) -> None:
    code = "return (await MCP.guarded.echo({n: 2})).structuredContent"
    result = await exec_in(client, code)
    assert result["value"] == {"n": 2}
    assert len(person.asked) == 1


async def test_a_server_that_is_missing_breaks_nothing_else(client: Client) -> None:
    code = "return MCP.missing.anything({}).catch(e => e.code)"
    assert (await exec_in(client, code))["value"] == "server_unavailable"
    assert (await exec_in(client, "return 1"))["value"] == 1


async def test_what_a_tool_prints_does_not_reach_the_wire(client: Client) -> None:
    assert (await exec_in(client, "return tools.shout({})"))["value"] == "shouted"


async def test_a_cancelled_program_ends_its_call_and_the_client_goes_on(era: Era) -> None:
    class Hanging(Heard):
        is_hanging = anyio.Event()

        async def __call__(self, progress: float, total: float | None, message: str | None) -> None:
            await super().__call__(progress, total, message)
            if message and "hanging" in message:
                self.is_hanging.set()

    hanging = Hanging()
    async with connect(era) as client:
        with anyio.fail_after(30):
            async with anyio.create_task_group() as tasks:

                async def hang() -> None:
                    await exec_in(client, "return MCP.curious.hang({})", progress_callback=hanging)

                tasks.start_soon(hang)
                await hanging.is_hanging.wait()
                tasks.cancel_scope.cancel()
            assert (await exec_in(client, "return 1"))["value"] == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_it_with_all_that_it_started(number: signal.Signals) -> None:
    with server_process("stdio") as server:
        initialize(server)
        # A server and a worker are in the middle of something, and standard input stays open.
        call_exec(server, "return MCP.curious.hang({})")
        server.read_until(b"hanging")
        children = server.children()
        assert len(children) >= 2
        server.signal(number)
        assert server.wait() == 128 + number
        assert still_running(children) == []


def test_a_second_signal_ends_it_at_once_and_no_server_outlives_it() -> None:
    with server_process("stdio", "--stubborn") as server:
        initialize(server)
        call_exec(server, "return MCP.curious.hang({})")
        server.read_until(b"hanging")
        children = server.children()
        # A child of a server ignores SIGTERM: a clean end waits for it for a while.
        server.signal(signal.SIGTERM)
        server.signal(signal.SIGINT)
        assert server.wait() in (128 + signal.SIGTERM, 128 + signal.SIGINT)
        assert still_running(children) == []


def test_an_ignored_hang_up_stays_ignored() -> None:
    with server_process("stdio", starter=("nohup", sys.executable)) as server:
        initialize(server)
        server.signal(signal.SIGHUP)
        send(server, {"jsonrpc": "2.0", "id": 3, "method": "ping"})
        assert json.loads(server.stdout.readline())["id"] == 3


def test_a_program_with_half_a_surrogate_pair_is_run() -> None:
    with server_process("stdio") as server:
        initialize(server)
        call_exec(server, "return '\ud800'")
        answer = json.loads(server.stdout.readline())
        assert answer["result"]["structuredContent"]["value"] == "\ufffd"


def test_the_end_of_input_ends_it_with_all_that_it_started() -> None:
    with server_process("stdio") as server:
        initialize(server)
        call_exec(server, "return MCP.curious.hang({})")
        server.read_until(b"hanging")
        children = server.children()
        server.stdin.close()
        assert server.wait() == 0
        assert still_running(children) == []


def test_it_says_who_it_is_without_a_word_on_standard_error() -> None:
    with server_process("stdio") as server:
        answer = initialize(server)
        assert answer["result"]["serverInfo"]["name"] == "nacre"
        server.stdin.close()
        server.wait()
        assert server.stderr.read() == b""


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
