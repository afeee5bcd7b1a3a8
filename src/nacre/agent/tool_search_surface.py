"""Tool Search as the turn loop uses it."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from nacre.agent.tool_surface import (
    CallResult,
    format_error_result,
    make_tool_specs,
    truncate_result,
    unknown_tool,
    verify_names,
)
from nacre.json_types import encode_json
from nacre.tool_search import Failed

if TYPE_CHECKING:
    from collections.abc import Sequence, Set

    from nacre.agent.tool_surface import SurfaceKind
    from nacre.json_types import JsonObject
    from nacre.messages import SentPayload, ToolCallPart, ToolSpec
    from nacre.tool_search import ToolSearchRun
    from nacre.trajectory import TrajectoryEvent, TrajectoryRecorder


class ToolSearchSurface:
    """`tool_search_code`, or `tool_search`, `tool_describe` and `tool_call`."""

    def __init__(self, run: ToolSearchRun, *, instructions: str) -> None:
        self.kind: SurfaceKind = "tool_search"
        self._run = run
        self._instructions = instructions
        self._definitions = run.definitions()
        # The calls that run inside of a call of the model.
        self._nested: defaultdict[str, set[str]] = defaultdict(set)
        self.specs: Sequence[ToolSpec] = make_tool_specs(run.definitions("anthropic"))
        run.trajectory.subscribe(self._note)

    @property
    def trajectory(self) -> TrajectoryRecorder:
        return self._run.trajectory

    def verify(self, sent: SentPayload) -> None:
        verify_names(sent.tool_names, expected=self._run.visible_names)
        self._run.note_request(self._definitions, prompt=self._instructions)

    async def call(self, call: ToolCallPart) -> CallResult:
        if call.name not in self._run.visible_names:
            return unknown_tool(call.name, self._run.visible_names)
        arguments = call.arguments if call.arguments.strip() else None
        result = await self._run.call(call.name, arguments, call_id=call.call_id)
        if isinstance(result, Failed) and result.code == "invalid_input":
            return format_error_result(result.error)
        text = encode_json(result.to_json()).decode()
        return CallResult(content=truncate_result(text), is_error=isinstance(result, Failed))

    def is_held(self, call: ToolCallPart, *, open_ids: Set[str]) -> bool:
        nested = self._nested.get(call.call_id, set())
        return call.call_id in open_ids or (bool(nested) and nested <= open_ids)

    async def abort(self, reason: str) -> None:
        await self._run.abort(reason)

    def telemetry(self) -> JsonObject:
        return self._run.telemetry().to_json()

    def _note(self, event: TrajectoryEvent) -> None:
        if not event.parent_id:
            return
        if event.kind == "call.started":
            self._nested[event.parent_id].add(event.call_id)
        elif event.kind == "call.ended":
            self._nested[event.parent_id].discard(event.call_id)
