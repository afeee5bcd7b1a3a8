"""Tools for tests: recording, echoing, failing, and held until a test lets them go."""

from typing import Any

import anyio

from nacre import Tool, ToolCall
from nacre.json_types import JsonObject

ANY_OBJECT: JsonObject = {"type": "object"}


async def _echo(input: dict[str, Any], call: ToolCall) -> object:
    return input


def echo_tool(name: str = "echo", **fields: Any) -> Tool:
    """Returns its input."""
    given: dict[str, Any] = {
        "name": name,
        "description": f"Return the input of {name}",
        "parameters": ANY_OBJECT,
        "execute": _echo,
        **fields,
    }
    return Tool(**given)


class HeldTool:
    """A tool that records its calls and answers each when the test lets it."""

    def __init__(self, name: str = "held", **fields: Any) -> None:
        self.calls: list[tuple[dict[str, Any], ToolCall]] = []
        self.cancelled: list[str] = []
        self._arrived = anyio.Event()
        self._gate = anyio.Event()
        self._answer: object = None
        given: dict[str, Any] = {
            "name": name,
            "parameters": ANY_OBJECT,
            "execute": self._execute,
            **fields,
        }
        self.tool = Tool(**given)

    async def _execute(self, input: dict[str, Any], call: ToolCall) -> object:
        self.calls.append((input, call))
        self._arrived.set()
        try:
            await self._gate.wait()
        except BaseException:
            self.cancelled.append(call.id)
            raise
        return self._answer

    def answer(self, answer: object) -> None:
        """Let all calls go, those to come as well."""
        self._answer = answer
        self._gate.set()

    async def wait_for_calls(self, count: int = 1) -> None:
        """Wait until so many calls have come in."""
        with anyio.fail_after(30):
            while len(self.calls) < count:
                self._arrived = anyio.Event()
                await self._arrived.wait()
