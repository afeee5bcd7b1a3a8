"""Calling core tools as the executor does, without the rest of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio

from nacre.run_context import AbortController, RunContext
from nacre.tools import ToolCall

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nacre.json_types import JsonValue
    from nacre.tools import Tool


class Calls:
    """Tools by their names, and what they told meanwhile."""

    def __init__(self, tools: Sequence[Tool]) -> None:
        self.tools = {tool.name: tool for tool in tools}
        self.abort = AbortController()
        self.updates: list[JsonValue] = []
        self.updated = anyio.Event()

    async def call(self, name: str, **given: object) -> Any:
        session_id = str(given.pop("session_id", "session_1"))
        call = ToolCall(
            id="call_1",
            parent_id="",
            context=RunContext(session_id=session_id),
            abort=self.abort.signal,
            update=self._update,
        )
        with anyio.fail_after(20):
            return await self.tools[name].execute(given, call)

    def _update(self, update: JsonValue) -> None:
        self.updates.append(update)
        self.updated.set()
