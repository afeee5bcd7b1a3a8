"""MCP servers for tests: listed, started when they are asked, held while they start, broken."""

from collections.abc import Sequence
from typing import Any

import anyio

from nacre import Runtime, Tool, ToolCall
from nacre.errors import ToolServerError
from nacre.json_types import JsonObject
from nacre.tools.definition import ListedServer
from tests.code_mode.outcomes import value_of

TITLED: JsonObject = {
    "type": "object",
    "properties": {
        "title": {"type": "string", "description": "What it is about"},
        "labels": {"type": "array", "items": {"type": "string"}, "default": ["new"]},
    },
    "required": ["title"],
}
CAUGHT = (
    ".then(value => ({value}), e => "
    "({name: e.name, code: e.code, message: e.message, toolId: e.toolId, server: e.server}))"
)


async def _native(input: dict[str, Any], call: ToolCall) -> object:
    return {"content": [], "structuredContent": input}


def mcp_tool(name: str = "create_issue", owner: str = "github", **fields: Any) -> Tool:
    """Returns its input, as a result of the protocol."""
    given: dict[str, Any] = {
        "name": name,
        "owner": owner,
        "source": "mcp",
        "description": f"{name} of {owner}",
        "parameters": {"type": "object"},
        "execute": _native,
        **fields,
    }
    return Tool(**given)


def listed(name: str = "github", *tool_names: str) -> ListedServer:
    """A server whose tools are known from the start."""
    return ListedServer(name, [mcp_tool(tool_name, name) for tool_name in tool_names])


class LazyServer:
    """Lists its tools when it is asked; if it is held, not before the test lets it."""

    def __init__(self, name: str, *tool_names: str, is_held: bool = False) -> None:
        self.name = name
        self.description = ""
        self.known_tools: Sequence[Tool] | None = None
        self.starts = 0
        self._found = [mcp_tool(tool_name, name) for tool_name in tool_names]
        self._starting = anyio.Lock()
        self._asked = anyio.Event()
        self._gate = anyio.Event()
        if not is_held:
            self._gate.set()

    async def tools(self) -> Sequence[Tool]:
        self._asked.set()
        async with self._starting:
            if self.known_tools is None:
                self.starts += 1
                await self._gate.wait()
                self.known_tools = self._found
        return self.known_tools

    async def asked(self) -> None:
        """Wait until somebody wants its tools."""
        with anyio.fail_after(5):
            await self._asked.wait()

    def let_go(self) -> None:
        self._gate.set()


class BrokenServer:
    """Cannot be started."""

    def __init__(self, name: str = "broken", error: Exception | None = None) -> None:
        self.name = name
        self.description = ""
        self.known_tools: Sequence[Tool] | None = None
        self._error = error or ToolServerError(
            f"the MCP server {name} does not start: no such file", server=name
        )

    async def tools(self) -> Sequence[Tool]:
        raise self._error


async def outcome(runtime: Runtime, code: str, *servers: Any, **options: Any) -> Any:
    """The value of a program that has these servers."""
    with anyio.fail_after(10):
        return value_of(await runtime.run(mcp=servers, **options).exec(code))
