"""Servers to talk to: real ones that are installed, and faulty ones of our own."""

import sys
from pathlib import Path
from typing import Any, cast

import anyio
import psutil

from nacre.config.mcp_entry import McpServerConfig
from nacre.json_types import JsonObject, JsonValue
from nacre.mcp_client import McpServer, UpstreamRefusal
from nacre.run_context import AbortSignal, RunContext
from nacre.tools.definition import Tool, ToolCall

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
RAW_SERVER = HERE / "fault_servers" / "raw_server.py"
HTTP_SERVER = HERE / "fault_servers" / "http_server.py"
# Longer than any sound server needs on a busy machine.
PATIENCE_SECONDS = 60


def raw(behaviour: str = "plain", **settings: Any) -> McpServerConfig:
    """A server of `raw_server.py`."""
    started: dict[str, Any] = {
        "name": behaviour,
        "command": sys.executable,
        "args": (str(RAW_SERVER), behaviour),
    }
    return McpServerConfig(transport="stdio", **{**started, **settings})


def npm(package: str, *args: str) -> McpServerConfig:
    """A server of the Model Context Protocol's own on npm."""
    modules = ROOT / "tooling" / "peers" / "node_modules"
    script = modules / "@modelcontextprotocol" / package / "dist" / "index.js"
    assert script.exists(), f"{package} is missing; `make test` installs it"
    return McpServerConfig(
        name=package, transport="stdio", command="node", args=(str(script), *args)
    )


def python_server(command: str, *args: str) -> McpServerConfig:
    """A server that is installed beside this Python."""
    script = Path(sys.executable).with_name(command)
    return McpServerConfig(name=command, transport="stdio", command=str(script), args=args)


async def tool_of(server: McpServer, name: str) -> Tool:
    with anyio.fail_after(PATIENCE_SECONDS):
        (found,) = [tool for tool in await server.tools() if tool.name == name]
    return found


async def call(server: McpServer, name: str, /, **given: JsonValue) -> JsonObject:
    """The result of a tool of this server."""
    return await call_tool(await tool_of(server, name), given)


async def call_tool(
    tool: Tool, given: JsonObject, updates: list[JsonValue] | None = None
) -> JsonObject:
    noted: list[JsonValue] = [] if updates is None else updates
    context = ToolCall(
        id="call-1",
        parent_id="",
        context=RunContext(),
        abort=AbortSignal(),
        update=noted.append,
    )
    with anyio.fail_after(PATIENCE_SECONDS):
        result = await tool.execute(given, context)
    assert isinstance(result, dict)
    return cast("JsonObject", result)


async def ended(*pids: int | None) -> None:
    """Return when these processes are gone; nobody has to have asked what became of them."""
    with anyio.fail_after(PATIENCE_SECONDS):
        # A process sets no event.
        while any(pid is not None and is_alive(pid) for pid in pids):  # noqa: ASYNC110
            await anyio.sleep(0.01)


def is_alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def text_of(result: JsonObject) -> str:
    """The text of a result with one part."""
    match result:
        case {"content": [{"type": "text", "text": str(text)}]}:
            return text
        case _:
            raise AssertionError(result)


class Person:
    """Answers elicitations; may take long, or refuse."""

    def __init__(self, *, seconds: float = 0, refusal: str = "") -> None:
        self._seconds = seconds
        self._refusal = refusal
        self.asked: list[tuple[str, JsonObject]] = []

    @property
    def capabilities(self) -> JsonObject:
        return {"elicitation": {"form": {}}, "roots": {}, "somethingElse": {}}

    async def elicit(self, server: str, params: JsonObject) -> JsonObject:
        self.asked.append((server, params))
        await anyio.sleep(self._seconds)
        if self._refusal:
            raise UpstreamRefusal(self._refusal)
        return {"action": "accept", "content": {"half": "\ud800"}}

    async def sample(self, server: str, params: JsonObject) -> JsonObject:
        raise AssertionError("not announced, so never asked")

    async def roots(self, server: str, params: JsonObject) -> JsonObject:
        raise RuntimeError("the inside of this must not reach a server")
