"""Servers on standard input and output: environment, standard error and noise."""

import json
from pathlib import Path

import pytest

from nacre.errors import ToolServerError
from nacre.json_types import JsonValue
from nacre.mcp_client import stdio_transport, transport
from nacre.mcp_client.process import OutputTail
from tests.mcp_client.conftest import Opening
from tests.mcp_client.peers import (
    call,
    call_tool,
    raw,
    text_of,
    tool_of,
)


async def test_a_command_that_does_not_exist_is_named(opening: Opening) -> None:
    server = await opening.one(raw(command="no-such-command"))
    with pytest.raises(ToolServerError, match="there is no command 'no-such-command'"):
        await server.tools()
    assert server.status().state == "failed"


async def test_a_directory_that_does_not_exist_is_named(opening: Opening) -> None:
    server = await opening.one(raw(cwd="/no/such/directory"))
    with pytest.raises(ToolServerError, match="there is no directory /no/such/directory"):
        await server.tools()


async def test_the_environment_is_what_is_configured_and_little_else(
    opening: Opening, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "not for servers")
    server = await opening.one(raw(env={"TOKEN": "for-this-server"}, cwd=str(tmp_path)))
    found = json.loads(text_of(await call(server, "environment")))
    assert found["env"]["TOKEN"] == "for-this-server"
    assert "OPENAI_API_KEY" not in found["env"]
    assert found["cwd"] == str(tmp_path)


async def test_a_flood_on_standard_error_blocks_nothing_and_leaves_its_end(
    opening: Opening,
) -> None:
    server = await opening.one(raw(env={"TOKEN": "correct-horse"}))
    assert text_of(await call(server, "flood_errors", lines=20_000)) == "done"
    with pytest.raises(ToolServerError):
        await call(server, "exit", status=0)
    output = server.status().last_output
    assert output[-2:] == ("the secret is [redacted]", "about to go")
    assert len(output) == 20
    assert sum(map(len, output)) < 10_000


async def test_a_flood_of_progress_is_dropped_unread(
    opening: Opening, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Slow enough that a busy machine reads no more.
    monkeypatch.setattr(transport, "_NOTIFICATIONS_PER_SECOND", 1)
    parsed: list[object] = []
    check_message = stdio_transport._check_message  # pyright: ignore[reportPrivateUsage]

    def count(value: JsonValue, line: bytes, tail: OutputTail) -> object:
        parsed.append(None)
        return check_message(value, line, tail)

    monkeypatch.setattr(stdio_transport, "_check_message", count)
    server = await opening.one(raw())
    updates: list[JsonValue] = []
    result = await call_tool(await tool_of(server, "progress"), {"steps": 200_000}, updates)
    assert text_of(result) == "done"
    assert 0 < len(updates) <= 200
    assert len(parsed) < 3_000
    assert any("too many notifications" in line for line in server.status().last_output)


async def test_a_flood_of_requests_whose_responses_nobody_reads_is_dropped(
    opening: Opening,
) -> None:
    server = await opening.one(raw())
    assert text_of(await call(server, "requests", count=20_000)) == "done"
    assert text_of(await call(server, "echo", a=1)) == '{"a": 1}'
    assert any("too many requests" in line for line in server.status().last_output)


async def test_what_a_server_prints_between_messages_is_kept_apart(opening: Opening) -> None:
    server = await opening.one(raw())
    assert text_of(await call(server, "chatter")) == "done"
    assert server.status().last_output == (
        "stdout: Listening on standard input!",
        'stdout: [1, 2, {"not": "a message"}]',
    )
