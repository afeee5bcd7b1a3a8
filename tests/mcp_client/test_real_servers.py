"""Servers that people use."""

from pathlib import Path
from typing import Any

import anyio

from tests.mcp_client.conftest import Opening
from tests.mcp_client.peers import call, call_tool, npm, python_server, text_of, tool_of


async def test_everything_server(opening: Opening) -> None:
    server = await opening.one(npm("server-everything", "stdio"))
    assert text_of(await call(server, "echo", message="hi")) == "Echo: hi"
    weather = await call(server, "get-structured-content", location="New York")
    assert weather["structuredContent"] == {
        "temperature": 33,
        "conditions": "Cloudy",
        "humidity": 82,
    }
    listed = await call(server, "$resources.list")
    assert isinstance(listed["resources"], list)
    resource = listed["resources"][0]
    assert isinstance(resource, dict)
    read = await call(server, "$resources.read", uri=resource["uri"])
    assert isinstance(read["contents"], list)
    assert await call(server, "$resources.templates")
    assert await call(server, "$prompts.list")
    prompt = await call(server, "$prompts.get", name="simple-prompt")
    assert isinstance(prompt["messages"], list)


async def test_everything_server_reports_progress(opening: Opening) -> None:
    server = await opening.one(npm("server-everything", "stdio"))
    updates: list[Any] = []
    slow = await tool_of(server, "trigger-long-running-operation")
    await call_tool(slow, {"duration": 0.2, "steps": 2}, updates)
    assert updates == [{"progress": 1, "total": 2}, {"progress": 2, "total": 2}]


async def test_filesystem_server(opening: Opening, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("remember the milk", encoding="utf-8")
    server = await opening.one(npm("server-filesystem", str(tmp_path)))
    read = await call(server, "read_text_file", path=str(tmp_path / "notes.txt"))
    assert "remember the milk" in str(read)
    refused = await call(server, "read_text_file", path="/etc/passwd")
    assert refused["isError"] is True


async def test_memory_server(opening: Opening) -> None:
    server = await opening.one(npm("server-memory"))
    tools = await server.tools()
    assert "search_nodes" in {tool.name for tool in tools}


async def test_time_server(opening: Opening) -> None:
    server = await opening.one(python_server("mcp-server-time"))
    result = await call(server, "get_current_time", timezone="Europe/Berlin")
    assert "Europe/Berlin" in text_of(result)
    assert server.status().problem == ""


async def test_git_server(opening: Opening, tmp_path: Path) -> None:
    await anyio.run_process(["git", "init", str(tmp_path)])
    server = await opening.one(python_server("mcp-server-git", "--repository", str(tmp_path)))
    result = await call(server, "git_status", repo_path=str(tmp_path))
    assert "No commits yet" in text_of(result)
