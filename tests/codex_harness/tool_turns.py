"""A turn that calls Nacre's tools as the app-server would."""

from collections.abc import Awaitable, Callable
from typing import Any, cast

import anyio

from nacre.agent import TurnContext, make_executor
from nacre.code_mode import Runtime
from nacre.codex_harness.dynamic_tools import (
    DynamicToolOptions,
    DynamicTools,
    open_dynamic_tools,
)
from nacre.json_types import JsonObject, JsonValue

Act = Callable[[DynamicTools], Awaitable[None]]


class ToolTurns:
    """A harness whose turns only do what the test says with the tools."""

    def __init__(self, **options: Any) -> None:
        given: dict[str, Any] = {"version": (0, 163, 0), **options}
        self.options = DynamicToolOptions(**given)
        self.act: Act = _do_nothing
        self._runtime = Runtime(approval_seconds=60)

    def plan_surface(self, turn: TurnContext, /) -> str:
        return "codex"

    def needs_history(self, turn: TurnContext, /) -> bool:
        return True

    async def run(self, turn: TurnContext, /) -> None:
        executor = make_executor(turn, self._runtime)
        async with (
            anyio.create_task_group() as tasks,
            open_dynamic_tools(turn, executor, self.options, tasks=tasks) as tools,
        ):
            await self.act(tools)


async def _do_nothing(tools: DynamicTools) -> None:
    pass


def call_params(tool: str, arguments: JsonObject | None = None, call_id: str = "c1") -> JsonObject:
    """The parameters of `item/tool/call`."""
    return {
        "threadId": "t1",
        "turnId": "u1",
        "callId": call_id,
        "tool": tool,
        "arguments": arguments or {},
    }


def text_of(answer: JsonObject) -> str:
    items = cast("list[dict[str, JsonValue]]", answer["contentItems"])
    return str(items[0]["text"])


def names_in(specs: list[JsonObject]) -> tuple[list[str], list[str]]:
    """The direct names and the searchable names."""
    direct = [str(spec["name"]) for spec in specs if spec["type"] == "function"]
    groups = [cast("list[JsonObject]", s["tools"]) for s in specs if s["type"] == "namespace"]
    return direct, [str(tool["name"]) for group in groups for tool in group]
