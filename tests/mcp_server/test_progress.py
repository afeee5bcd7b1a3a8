"""What a client hears of nested calls while it waits for a program."""

from typing import Any

import anyio
import pytest

from nacre import Runtime, Tool, ToolCall
from nacre.json_types import JsonObject
from nacre.mcp_server import CodeModeMcpServer
from nacre.mcp_server.served_calls import NestedCalls, ProgressFeed
from nacre.mcp_server.sessions import share_servers
from nacre.tools.definition import ListedServer
from nacre.trajectory import EventKind, TrajectoryEvent
from tests.code_mode.tools import echo_tool
from tests.mcp_server.clients import Era, Heard, connect, exec_in, wait_in


def event(kind: EventKind, data: JsonObject, *, parent_id: str = "exec_1") -> TrajectoryEvent:
    return TrajectoryEvent(
        sequence=1, time=0.0, kind=kind, call_id="call_1", parent_id=parent_id, data=data
    )


STARTED = event("call.started", {"toolName": "create_issue", "owner": "github", "source": "mcp"})


async def test_nested_calls_are_named_as_they_happen(runtime: Runtime, era: Era) -> None:
    async def upload(given: dict[str, Any], call: ToolCall) -> object:
        call.update({"progress": 1, "total": 2, "message": "half way"})
        return {}

    upload_tool = Tool(name="upload", source="mcp", owner="drive", execute=upload)
    servers = share_servers([ListedServer("drive", [upload_tool])])
    server = CodeModeMcpServer(runtime, servers=servers, tools=[echo_tool()])
    heard = Heard()
    async with connect(server, era) as client:
        code = "await MCP.drive.upload({}); await tools.echo({}); return 1"
        await exec_in(client, code, progress_callback=heard)
    assert heard.messages == [
        "drive: upload (running)",
        "drive: upload (1/2 half way)",
        "drive: upload (done)",
        "echo (running)",
        "echo (done)",
    ]
    assert heard.numbers == sorted(set(heard.numbers))


async def test_a_wait_hears_the_calls_of_the_program_that_it_continues(
    runtime: Runtime, era: Era
) -> None:
    heard = Heard()
    async with connect(CodeModeMcpServer(runtime, tools=[echo_tool()]), era) as client:
        waiting = await exec_in(client, "await yield_control(); return tools.echo({})")
        await wait_in(client, waiting["runId"], progress_callback=heard)
    assert heard.messages == ["echo (running)", "echo (done)"]


async def test_a_client_hears_nothing_of_another_program(runtime: Runtime, era: Era) -> None:
    loud, quiet = Heard(), Heard()
    server = CodeModeMcpServer(runtime, tools=[echo_tool()])
    async with connect(server, era) as client, anyio.create_task_group() as tasks:
        code = "for (const n of [1, 2]) await tools.echo({n}); return 1"
        tasks.start_soon(lambda: exec_in(client, code, progress_callback=loud))
        tasks.start_soon(lambda: exec_in(client, "return 1", progress_callback=quiet))
    assert (len(loud.messages), quiet.messages) == (4, [])


@pytest.mark.parametrize(
    ("kind", "data", "words"),
    [
        ("call.ended", {"outcome": "failed", "error": "404\nnot found"}, "(failed: 404 not found)"),
        ("call.updated", {"update": "half\ud800 way"}, "(half way)"),
        ("call.updated", {"update": "\x1b[2Jhi\x07\u202e\r\nyou"}, "([2Jhi you)"),
        ("call.updated", {"update": {"rows": 3}}, '({"rows":3})'),
        ("approval.requested", {"reason": "x"}, "(needs an approval)"),
        ("approval.answered", {"answer": "allow"}, "(approved)"),
        ("approval.answered", {"answer": "deny"}, "(not approved)"),
    ],
)
def test_a_step_is_one_line_in_plain_words(kind: EventKind, data: JsonObject, words: str) -> None:
    calls = NestedCalls()
    calls.describe_event(STARTED)
    assert calls.describe_event(event(kind, data)) == f"github: create_issue {words}"


def test_long_words_are_cut() -> None:
    calls = NestedCalls()
    calls.describe_event(STARTED)
    words = calls.describe_event(event("call.updated", {"update": "x" * 100_000}))
    assert words is not None
    assert (len(words), words[-1]) == (301, "…")


def test_calls_of_the_client_itself_are_no_steps() -> None:
    assert NestedCalls().describe_event(event("call.started", {}, parent_id="")) is None


def test_a_server_is_in_use_while_a_call_of_it_runs() -> None:
    calls = NestedCalls()
    assert not calls.is_running("github", parent_id="exec_1")
    calls.describe_event(STARTED)
    assert calls.is_running("github", parent_id="exec_1")
    assert not calls.is_running("github", parent_id="exec_2")
    calls.describe_event(event("call.ended", {"outcome": "completed"}))
    assert not calls.is_running("github", parent_id="exec_1")


async def test_a_flood_of_steps_is_cut_and_says_so() -> None:
    feed, sent = ProgressFeed(), list[tuple[int, str]]()
    for number in range(1000):
        feed.add(f"step {number}")
    feed.close()

    async def send(number: int, words: str) -> None:
        sent.append((number, words))

    await feed.send_all(send)
    assert sent[0] == (1, "step 900 (900 earlier messages were dropped)")
    assert sent[-1] == (100, "step 999")
