"""Code mode as the turn loop uses it; continues cells that only waited for people or clients."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import anyio

from nacre.agent.tool_surface import (
    CallResult,
    format_error_result,
    format_result,
    make_tool_specs,
    parse_arguments,
    truncate_result,
    unknown_tool,
)
from nacre.code_mode import DirectResult, Failed, Waiting
from nacre.json_types import encode_json

if TYPE_CHECKING:
    from collections.abc import Sequence, Set

    from nacre.agent.tool_surface import SurfaceKind
    from nacre.agent.turn_context import ExternalWaits
    from nacre.code_mode import CellInfo, CodeModeResult, CodeModeRun
    from nacre.json_types import JsonObject
    from nacre.messages import SentPayload, ToolCallPart, ToolSpec
    from nacre.trajectory import TrajectoryRecorder

# A suspended cell is touched well before it would expire, for as long as somebody may answer.
_TOUCH_SHARE: Final = 0.5


class CodeModeSurface:
    """`exec`, `wait` and the direct-only tools of one run."""

    def __init__(
        self, run: CodeModeRun, *, outside: ExternalWaits, snapshot_ttl_seconds: float
    ) -> None:
        self.kind: SurfaceKind = "code_mode"
        self._run = run
        self._outside = outside
        self._touch_seconds = snapshot_ttl_seconds * _TOUCH_SHARE
        self.specs: Sequence[ToolSpec] = make_tool_specs(run.definitions("anthropic"))

    @property
    def trajectory(self) -> TrajectoryRecorder:
        return self._run.trajectory

    def verify(self, sent: SentPayload) -> None:
        self._run.verify_payload(sent.tool_names)

    async def call(self, call: ToolCallPart) -> CallResult:
        if call.name not in self._run.visible_names:
            return unknown_tool(call.name, self._run.visible_names)
        arguments = parse_arguments(call.arguments)
        if isinstance(arguments, CallResult):
            return arguments
        closed_before = self._outside.closed_count
        result = await self._run.call(call.name, arguments, call_id=call.call_id)
        if isinstance(result, DirectResult):
            return _format_direct(result)
        return _format_code_mode(await self._continue_cell(result, closed_before))

    def is_held(self, call: ToolCallPart, *, open_ids: Set[str]) -> bool:
        if call.call_id in open_ids:
            return True
        cells = [info for info in self._run.cells() if _belongs_to_call(info, call)]
        return bool(cells) and all(self._is_cell_held(info, open_ids) for info in cells)

    async def abort(self, reason: str) -> None:
        await self._run.abort(reason)

    def telemetry(self) -> JsonObject:
        return self._run.telemetry().to_json()

    async def _continue_cell(self, result: CodeModeResult, closed_before: int) -> CodeModeResult:
        """Where only people or clients held it up, the model need not even know."""
        output = result.output
        while isinstance(result, Waiting) and self._is_only_outside(result, closed_before):
            closed_before = self._outside.closed_count
            awaited = {call.id for call in result.pending if call.is_awaiting_somebody}
            # The program's own clock goes on only while it is resumed.
            if awaited and not result.has_timer:
                with anyio.move_on_after(self._touch_seconds):
                    await self._outside.any_closed(awaited)
            result = await self._run.wait(result.run_id)
            # Of all its legs: the model is shown one result.
            output = (*output, *result.output)
        return replace(result, output=output)

    def _is_only_outside(self, waiting: Waiting, closed_before: int) -> bool:
        if waiting.reason != "pending_tools":
            return False
        # Or it was answered while the program was being suspended: it goes on with the next leg.
        has_been_answered = self._outside.closed_count > closed_before
        return has_been_answered or self._run.waits_for_somebody(waiting.pending)

    def _is_cell_held(self, info: CellInfo, open_ids: Set[str]) -> bool:
        awaited = {call.id for call in info.pending if call.is_awaiting_somebody}
        return self._run.waits_for_somebody(info.pending) and awaited <= open_ids


def _belongs_to_call(info: CellInfo, call: ToolCallPart) -> bool:
    """Whether the call started the cell, or continues it; its arguments hold the cell's id then."""
    return info.call_id == call.call_id or info.run_id in call.arguments


def _format_direct(result: DirectResult) -> CallResult:
    if result.is_error:
        return format_error_result(result.error)
    return format_result(result.to_json()["value"])


def _format_code_mode(result: CodeModeResult) -> CallResult:
    text = encode_json(result.to_json()).decode()
    return CallResult(content=truncate_result(text), is_error=isinstance(result, Failed))
