"""Tools for tests: one that records its calls, and one whose calls end when the test says so."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import anyio

from nacre.tools import Tool

if TYPE_CHECKING:
    from nacre.json_types import JsonObject
    from nacre.tools import ToolCall

_ANY_OBJECT: Final[JsonObject] = {"type": "object"}
_PATIENCE_SECONDS: Final = 10


class RecordingTool:
    """Takes any object, remembers it, and returns always the same; raises it if it is an error.

    `fields` are those of a `Tool`, such as `description` or `owner`.
    """

    def __init__(self, name: str, result: object = None, **fields: Any) -> None:
        self.inputs: list[dict[str, Any]] = []
        self._result = result
        given: dict[str, Any] = {"parameters": _ANY_OBJECT, **fields}
        self.tool = Tool(name=name, execute=self._execute, **given)

    async def _execute(self, input: dict[str, Any], call: ToolCall) -> object:
        self.inputs.append(input)
        if isinstance(self._result, Exception):
            raise self._result
        return self._result


class HeldTool:
    """Remembers its calls and holds them until the test answers or they are cancelled."""

    def __init__(self, name: str = "held", **fields: Any) -> None:
        self.inputs: list[dict[str, Any]] = []
        self.cancelled: list[str] = []
        """The ids of the calls that were cancelled."""
        self._changed = anyio.Event()
        self._released = anyio.Event()
        self._result: object = None
        given: dict[str, Any] = {"parameters": _ANY_OBJECT, **fields}
        self.tool = Tool(name=name, execute=self._execute, **given)

    def answer(self, result: object) -> None:
        """Let all calls go, those to come as well."""
        self._result = result
        self._released.set()

    async def received(self, count: int = 1) -> None:
        """Wait until so many calls have come in."""
        with anyio.fail_after(_PATIENCE_SECONDS):
            while len(self.inputs) < count:
                await self._changed.wait()

    async def _execute(self, input: dict[str, Any], call: ToolCall) -> object:
        self.inputs.append(input)
        self._changed.set()
        self._changed = anyio.Event()
        try:
            await self._released.wait()
        except BaseException:
            self.cancelled.append(call.id)
            raise
        return self._result
