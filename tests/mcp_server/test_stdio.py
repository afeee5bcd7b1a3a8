"""`nacre mcp` on standard input and output, as a process with real clients and servers."""

import json
import signal
from typing import Any

import anyio
import pytest
from mcp import Client

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


async def test_a_program_calls_a_real_server_and_the_client_hears_of_it(era: Era) -> None:
    heard = Heard()
    async with connect(era) as client:
        names = [tool.name for tool in (await client.list_tools()).tools]
        code = "return (await MCP.curious.echo({n: 1})).structuredContent"
        result = await exec_in(client, code, progress_callback=heard)
    assert names == ["exec", "wait"]
    assert result["value"] == {"n": 1}
    assert heard.messages == ["curious: echo (running)", "curious: echo (done)"]


async def test_a_question_of_a_server_reaches_the_person_behind_the_client(era: Era) -> None:
    person = FormFiller("accept", city="Ulm")
    async with connect(era, elicitation_callback=person) as client:
        result = await exec_in(client, "return (await MCP.curious.ask({})).structuredContent")
    value: Any = result["value"]
    assert (value["action"], value["content"]) == ("accept", {"city": "Ulm"})
    assert person.messages == ["curious asks: Where?"]


async def test_a_required_approval_reaches_the_person_behind_the_client(era: Era) -> None:
    person = FormFiller("accept", decision="allow-once")
    async with connect(era, elicitation_callback=person) as client:
        code = "return (await MCP.guarded.echo({n: 2})).structuredContent"
        result = await exec_in(client, code)
    assert result["value"] == {"n": 2}
    assert len(person.asked) == 1


async def test_a_server_that_is_missing_breaks_nothing_else(era: Era) -> None:
    async with connect(era) as client:
        code = "return MCP.missing.anything({}).catch(e => e.code)"
        assert (await exec_in(client, code))["value"] == "server_unavailable"
        assert (await exec_in(client, "return 1"))["value"] == 1


async def test_what_a_tool_prints_does_not_reach_the_wire(era: Era) -> None:
    async with connect(era) as client:
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
    with server_process("stdio", starter=("nohup",)) as server:
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
