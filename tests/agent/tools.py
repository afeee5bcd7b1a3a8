"""Tools for turns: one that answers, one that fails, and one that a test holds and releases."""

from typing import Any

import anyio

from nacre.json_types import JsonObject
from nacre.tools import Tool, ToolCall

_TEXT: JsonObject = {"type": "object", "properties": {"text": {"type": "string"}}}


def echo_tool(name: str = "echo", *, needs_approval: str = "", owner: str = "core") -> Tool:
    async def execute(given: dict[str, Any], call: ToolCall) -> object:
        return f"echo: {given.get('text', '')}"

    return Tool(
        name=name,
        description="Says it again.",
        parameters=_TEXT,
        execute=execute,
        needs_approval=needs_approval,
        owner=owner,
    )


def failing_tool() -> Tool:
    async def execute(given: dict[str, Any], call: ToolCall) -> object:
        raise ValueError("no paper left")

    return Tool(name="print", execute=execute)


def returning_tool(value: object, name: str = "give") -> Tool:
    async def execute(given: dict[str, Any], call: ToolCall) -> object:
        return value

    return Tool(name=name, execute=execute)


class HeldTool:
    """A tool whose calls begin, and end when the test says so."""

    def __init__(self, name: str = "held") -> None:
        self.started = anyio.Event()
        self.release = anyio.Event()
        self.call_count = 0
        self.was_cancelled = False
        self.tool = Tool(name=name, parameters=_TEXT, execute=self._execute)

    async def _execute(self, given: dict[str, Any], call: ToolCall) -> object:
        self.call_count += 1
        self.started.set()
        try:
            await self.release.wait()
        except BaseException:
            self.was_cancelled = True
            raise
        return f"held: {given.get('text', '')}"
