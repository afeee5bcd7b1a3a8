"""One connection, to a server that fails in many ways."""

import asyncio
import os

import anyio
import anyio.lowlevel
import pytest

from nacre.config.mcp_entry import McpServerConfig
from nacre.errors import ToolFailedError, ToolServerError
from tests.mcp_client.conftest import Opening
from tests.mcp_client.peers import (
    PATIENCE_SECONDS,
    RAW_SERVER,
    call,
    call_tool,
    ended,
    raw,
    text_of,
    tool_of,
)


async def test_a_server_is_not_started_before_it_is_asked_something(opening: Opening) -> None:
    server = await opening.one(raw())
    assert server.status().state == "idle"
    assert server.known_tools is None
    await server.tools()
    assert server.status().state == "ready"
    assert server.status().version == "raw 1.0"
    assert server.description == "A server for tests."


async def test_callers_at_the_same_time_share_one_process(opening: Opening) -> None:
    server = await opening.one(raw())
    pids: set[int | None] = set()

    async def ask() -> None:
        await call(server, "echo")
        pids.add(server.status().pid)

    async with anyio.create_task_group() as tasks:
        for _ in range(10):
            tasks.start_soon(ask)
    assert len(pids) == 1
    assert server.status().restarts == 0


async def test_a_killed_server_fails_the_open_call_and_the_next_call_starts_it_again(
    opening: Opening,
) -> None:
    server = await opening.one(raw())
    hold = await tool_of(server, "hold")
    problems: list[str] = []

    async def wait_for_it() -> None:
        with pytest.raises(ToolServerError) as caught:
            await call_tool(hold, {})
        problems.append(caught.value.message)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wait_for_it)
        # Answered after `hold` was read, so that the other call is open.
        await call(server, "echo")
        os.kill(server.status().pid or 0, 9)
    (problem,) = problems
    assert "was lost during the call" in problem
    assert "was killed by SIGKILL" in problem
    assert text_of(await call(server, "echo", a=1)) == '{"a": 1}'
    assert server.status().restarts == 1


async def test_a_server_that_exits_leaves_its_status_and_last_words(opening: Opening) -> None:
    server = await opening.one(raw())
    with pytest.raises(ToolServerError) as caught:
        await call(server, "exit", status=7)
    assert "it exited with status 7; its last line was: about to go" in caught.value.message
    assert caught.value.details == {"server": "plain"}


async def test_a_server_that_fails_again_and_again_is_left_alone_for_a_while(
    opening: Opening,
) -> None:
    server = await opening.one(raw(command="sh", args=("-c", "exit 3")))
    for _ in range(2):
        with pytest.raises(ToolServerError, match="exited with status 3"):
            await server.tools()
    with pytest.raises(ToolServerError, match=r"exited with status 3; the next try is in \d+ s"):
        await server.tools()
    assert server.status().state == "failed"
    assert server.status().restarts == 1


async def test_a_server_that_hangs_at_its_start_is_given_up(opening: Opening) -> None:
    server = await opening.one(raw("silent", startup_seconds=0.5))
    with pytest.raises(ToolServerError, match=r"did not start within 0\.5 seconds"):
        await server.tools()
    assert server.status().pid is None


async def test_a_caller_that_gives_up_does_not_stop_the_start_for_others(opening: Opening) -> None:
    server = await opening.one(raw())
    with anyio.move_on_after(0):
        await server.tools()
    with anyio.fail_after(PATIENCE_SECONDS):
        assert await server.tools()
    assert server.status().restarts == 0


async def test_a_call_without_answer_ends_with_its_timeout_and_is_cancelled_upstream(
    opening: Opening,
) -> None:
    # As long as a busy machine may take for the calls that are answered.
    server = await opening.one(raw(timeout_seconds=3))
    with pytest.raises(ToolServerError, match="did not answer tools/call within 3 seconds"):
        await call(server, "hold")
    assert text_of(await call(server, "cancelled")) == "true"


async def test_cancelling_a_call_cancels_it_upstream(opening: Opening) -> None:
    server = await opening.one(raw())
    await server.tools()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(call, server, "hold")
        await call(server, "echo")
        tasks.cancel_scope.cancel()
    assert text_of(await call(server, "cancelled")) == "true"


async def test_a_server_that_is_not_used_is_stopped_and_starts_again(opening: Opening) -> None:
    server = await opening.one(raw(idle_seconds=0.05))
    tools = await server.tools()
    await ended(server.status().pid)
    assert server.status().state == "idle"
    # What is known stays known, and nothing is started for it.
    assert await server.tools() is tools
    assert server.status().restarts == 0
    assert text_of(await call(server, "echo")) == "{}"
    assert server.status().restarts == 1


@pytest.mark.parametrize("turns", range(4))
async def test_a_call_at_the_very_moment_that_a_server_is_stopped_is_made_all_the_same(
    # First, so that the clock is put back last: closing has deadlines by it.
    monkeypatch: pytest.MonkeyPatch,
    opening: Opening,
    turns: int,
) -> None:
    server = await opening.one(raw(idle_seconds=500))
    echo = await tool_of(server, "echo")
    # Its time is over, and then others have some turns: from none to enough to stop it.
    loop = asyncio.get_running_loop()
    now = loop.time
    monkeypatch.setattr(loop, "time", lambda: now() + 1000)
    for _ in range(turns):
        await anyio.lowlevel.checkpoint()
    assert text_of(await call_tool(echo, {})) == "{}"


async def test_a_server_is_not_idle_while_a_call_is_open(opening: Opening) -> None:
    server = await opening.one(raw(idle_seconds=0.05, timeout_seconds=0.5))
    with pytest.raises(ToolServerError, match="did not answer"):
        await call(server, "hold")


async def test_a_closed_connection_says_so(opening: Opening) -> None:
    connections = await opening.all(raw())
    (server,) = connections.servers()
    echo = await tool_of(server, "echo")
    await connections.aclose()
    with pytest.raises(ToolServerError, match="the MCP server plain is closed"):
        await call_tool(echo, {})
    with pytest.raises(ToolServerError, match="the MCP server plain is closed"):
        await server.tools()
    with pytest.raises(RuntimeError, match="is not open"):
        connections.servers("another session")


async def test_a_server_that_lacks_a_secret_says_which(opening: Opening) -> None:
    server = await opening.one(raw(missing="`mcp.servers.raw.env.T` uses the variable T"))
    with pytest.raises(ToolServerError, match=r"cannot be used: `mcp\.servers\.raw\.env\.T` uses"):
        await server.tools()
    assert server.status().pid is None


async def test_secrets_of_the_configuration_are_not_in_messages(opening: Opening) -> None:
    script = "echo bad token $TOKEN >&2; exit 1"
    config = McpServerConfig(
        name="leaky",
        transport="stdio",
        command="sh",
        args=("-c", script),
        env={"TOKEN": "correct-horse"},
    )
    server = await opening.one(config)
    with pytest.raises(ToolServerError, match=r"bad token \[redacted\]"):
        await server.tools()
    assert "correct-horse" not in repr(server.status())


async def test_arguments_that_were_looked_up_are_not_in_errors_lists_and_status(
    opening: Opening,
) -> None:
    secret = "correct-horse"
    arguments = (str(RAW_SERVER), "plain", secret)
    server = await opening.one(raw(args=arguments, looked_up=(secret,)))
    with pytest.raises(ToolFailedError, match=r"bad argument \[redacted\]") as failure:
        await call(server, "leak")
    assert failure.value.details["data"] == {"args": ["[redacted]"]}
    refusing = (str(RAW_SERVER), "refusing", "tools/list", secret)
    listing = await opening.one(raw(name="b", args=refusing, looked_up=(secret,)))
    with pytest.raises(
        ToolServerError, match=r"cannot list its tools: no licence for \[redacted\]"
    ):
        await listing.tools()
    greeting = (str(RAW_SERVER), "refusing", "initialize", secret)
    shaking = await opening.one(raw(name="c", args=greeting, looked_up=(secret,)))
    with pytest.raises(ToolServerError, match=r"no licence for \[redacted\]"):
        await shaking.tools()
    assert secret not in repr([server.status(), listing.status(), shaking.status()])
