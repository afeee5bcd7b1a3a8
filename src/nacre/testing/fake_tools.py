"""Tools for tests: one that records its calls, and one that blocks until the test releases it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import anyio

from nacre.tools import Tool

if TYPE_CHECKING:
    from nacre.json_types import JsonObject
    from nacre.tools import ToolCall

_ANY_OBJECT: Final[JsonObject] = {"type": "object"}
_MAX_WAIT_SECONDS: Final = 10


class RecordingTool:
    """Records its inputs and returns `result`, or raises it if it is an exception.

    `fields` are fields of `Tool`, such as `description` or `owner`.
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
    """Records its calls, which block until `answer` is called or they are cancelled."""

    def __init__(self, name: str = "held", **fields: Any) -> None:
        self.inputs: list[dict[str, Any]] = []
        self.cancelled: list[str] = []
        """The ids of the cancelled calls."""
        self._changed = anyio.Event()
        self._released = anyio.Event()
        self._result: object = None
        given: dict[str, Any] = {"parameters": _ANY_OBJECT, **fields}
        self.tool = Tool(name=name, execute=self._execute, **given)

    def answer(self, result: object) -> None:
        """Release all calls with this result, including later ones."""
        self._result = result
        self._released.set()

    async def wait_for_calls(self, count: int = 1) -> None:
        """Wait until the tool has been called `count` times."""
        with anyio.fail_after(_MAX_WAIT_SECONDS):
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
