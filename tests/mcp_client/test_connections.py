"""All connections of a client: they share nothing, and all end when the client does."""

import sys

import anyio
import pytest

from nacre.errors import ToolServerError
from nacre.mcp_client import McpConnections
from tests.mcp_client.conftest import Opening
from tests.mcp_client.peers import (
    call,
    call_tool,
    is_alive,
    raw,
    text_of,
    tool_of,
)


async def test_a_hanging_server_holds_up_nobody_else(opening: Opening) -> None:
    connections = await opening.all(raw("silent", startup_seconds=60), raw())
    hanging, sound = connections.servers()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(hanging.tools)
        assert text_of(await call(sound, "echo")) == "{}"
        assert hanging.status().state == "starting"
        tasks.cancel_scope.cancel()


async def test_closing_fails_the_calls_that_are_open(opening: Opening) -> None:
    connections = await opening.all(raw())
    (server,) = connections.servers()
    hold = await tool_of(server, "hold")
    problems: list[str] = []

    async def wait_for_it() -> None:
        with pytest.raises(ToolServerError) as caught:
            await call_tool(hold, {})
        problems.append(caught.value.message)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wait_for_it)
        await call(server, "echo")
        await connections.aclose()
    assert "was closed" in problems[0]


async def test_servers_are_stopped_when_the_block_fails() -> None:
    pids: list[int] = []
    with pytest.raises(ZeroDivisionError):
        async with McpConnections([raw()]) as connections:
            (server,) = connections.servers()
            await server.tools()
            pids.append(server.status().pid or 0)
            raise ZeroDivisionError
    assert not is_alive(pids[0])


async def test_servers_are_stopped_when_their_user_is_cancelled() -> None:
    pids: list[int] = []
    async with anyio.create_task_group() as tasks, McpConnections([raw()]) as connections:
        (server,) = connections.servers()
        await server.tools()
        pids.append(server.status().pid or 0)
        tasks.cancel_scope.cancel()
        await anyio.sleep_forever()
    assert not is_alive(pids[0])


def test_importing_the_client_does_not_import_the_sdk() -> None:
    import subprocess

    code = "import sys, nacre.mcp_client; print('mcp' in sys.modules, 'pydantic' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "False False\n"


async def test_disabled_servers_are_left_out_and_shown_in_the_status(opening: Opening) -> None:
    connections = await opening.all(raw(is_disabled=True), raw(name="other"))
    assert [server.name for server in connections.servers()] == ["other"]
    assert [(found.name, found.state) for found in connections.status()] == [
        ("other", "idle"),
        ("plain", "closed"),
    ]


async def test_sessions_have_connections_of_their_own_and_runs_share_them(
    opening: Opening,
) -> None:
    connections = await opening.all(raw())
    (first,), (second,) = connections.servers("one"), connections.servers("two")
    await call(first, "echo")
    await call(second, "echo")
    assert first.status().pid != second.status().pid
    assert connections.servers("one") == [first]
    assert [found.session_id for found in connections.status()] == ["two", "one"]


async def test_old_sessions_without_running_servers_are_forgotten(opening: Opening) -> None:
    connections = await opening.all(raw())
    (running,) = connections.servers("running")
    await running.tools()
    for number in range(400):
        connections.servers(f"session {number}")
    # The 256 newest, and the one that is in use.
    assert len(connections.status()) == 257
    assert connections.servers("running") == [running]
