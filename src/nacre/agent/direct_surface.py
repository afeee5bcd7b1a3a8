"""All tools of a run shown as they are, for agents without code mode and Tool Search."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nacre.agent.tool_surface import (
    CallResult,
    assign_tool_names,
    format_error_result,
    format_result,
    parse_arguments,
    unknown_tool,
    verify_names,
)
from nacre.code_mode import DirectResult
from nacre.errors import ToolError
from nacre.providers.base import ToolSpec
from nacre.run_context import AbortController
from nacre.tools import CallSite

if TYPE_CHECKING:
    from collections.abc import Sequence, Set

    from nacre.agent.tool_surface import SurfaceKind
    from nacre.json_types import JsonObject
    from nacre.messages import ToolCallPart
    from nacre.providers.base import SentPayload
    from nacre.tools import Tool, ToolExecutor
    from nacre.trajectory import TrajectoryRecorder


class DirectSurface:
    """Tools that policy left, each under a name of its own."""

    def __init__(
        self, tools: Sequence[Tool], *, executor: ToolExecutor, trajectory: TrajectoryRecorder
    ) -> None:
        self.kind: SurfaceKind = "direct"
        self._tools = assign_tool_names(tools)
        self._executor = executor
        self._abort = AbortController()
        self._call_count = 0
        self.trajectory = trajectory
        self.specs: Sequence[ToolSpec] = [
            ToolSpec(name=name, description=tool.description, parameters=tool.parameters)
            for name, tool in self._tools.items()
        ]

    def verify(self, sent: SentPayload) -> None:
        verify_names(sent.tool_names, expected=tuple(self._tools))

    async def call(self, call: ToolCallPart) -> CallResult:
        tool = self._tools.get(call.name)
        if tool is None:
            return unknown_tool(call.name, tuple(self._tools))
        arguments = parse_arguments(call.arguments)
        if isinstance(arguments, CallResult):
            return arguments
        self._call_count += 1
        site = CallSite(call_id=call.call_id, abort=self._abort.signal)
        try:
            value = await self._executor.call_directly(tool, arguments, site=site)
        except ToolError as error:
            return format_error_result(error.message)
        # What JSON cannot hold is named by its type.
        shown = DirectResult(value=value).to_json()["value"]
        return format_result(shown, is_mcp=tool.source == "mcp")

    def is_held(self, call: ToolCallPart, *, open_ids: Set[str]) -> bool:
        return call.call_id in open_ids

    async def abort(self, reason: str) -> None:
        self._abort.abort(reason)

    def telemetry(self) -> JsonObject:
        return {"visibleTools": list(self._tools), "callCount": self._call_count}
