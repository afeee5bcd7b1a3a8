"""The programs of `tool_search_code`: each in a cell of the sandbox, from its start to its end.

There is nobody to resume a program here: it ends with its call. One that waits for a person is
waited for; one that has used up its time is killed, whatever it waits for.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from nacre.errors import CellStateError
from nacre.sandbox import Limits
from nacre.sandbox import results as cell_results
from nacre.telemetry import span
from nacre.tool_search.catalog_access import CatalogAccess, RunTools
from nacre.tool_search.code_bridge import SHARED, CodeBridge
from nacre.tool_search.program_clock import ProgramClock
from nacre.tool_search.results import Completed, Failed, ToolSearchResult

if TYPE_CHECKING:
    from nacre.json_types import JsonObject
    from nacre.run_context import RunContext
    from nacre.sandbox import Cell, CellResult, Output, Sandbox
    from nacre.trajectory import EventKind, TrajectoryRecorder

_LIMITS: Final = Limits()
_MAX_SHOWN_CALLS: Final = 5
_CANCELLED: Final = Failed(
    error="the caller was cancelled", code="internal_error", reason="aborted"
)


class Programs:
    """Runs programs for one run, and ends them when it is aborted."""

    def __init__(
        self,
        sandbox: Sandbox,
        tools: RunTools,
        *,
        context: RunContext,
        recorder: TrajectoryRecorder,
    ) -> None:
        self._sandbox = sandbox
        self._tools = tools
        self._context = context
        self._recorder = recorder
        self._timeout_ms = tools.config.code_timeout_ms
        # Those that run, and those that are over but not yet all of their calls.
        self._cells: set[Cell] = set()

    async def run(self, code: str, *, call_id: str) -> ToolSearchResult:
        """Run a program on behalf of the call with this id, and follow it to its end."""
        access = CatalogAccess(self._tools)
        clock = ProgramClock(self._timeout_ms / 1000)
        # Kept here as it comes: a leg that is cut off has no result to hold it.
        output: list[Output] = []
        with span("nacre.cell", {"nacre.call.id": call_id}) as current:
            bridge = CodeBridge(access, clock=clock, call_id=call_id, span=current)
            cell = self._sandbox.cell(
                code,
                limits=replace(_LIMITS, timeout_ms=self._timeout_ms),
                shared=SHARED,
                handler=bridge,
                on_output=output.append,
                owner=self._context.session_id,
            )
            self._keep(cell)
            self._record("cell.started", call_id, {"runId": cell.cell_id})
            result: ToolSearchResult = _CANCELLED
            try:
                result = await self._run_to_end(cell, clock, bridge, call_id=call_id)
            finally:
                self._record_end(call_id, cell, result, output)
        return replace(
            result,
            output=tuple(output),
            blocked_calls=tuple(access.blocked),
            unavailable_servers=access.unavailable_servers,
        )

    async def abort(self, reason: str) -> None:
        """End all of them, with the calls that they left behind."""
        for cell in list(self._cells):
            await cell.abort(reason)

    async def _run_to_end(
        self, cell: Cell, clock: ProgramClock, bridge: CodeBridge, *, call_id: str
    ) -> ToolSearchResult:
        result: CellResult | None = None
        with clock.scope:
            try:
                result = await cell.run()
                while isinstance(result, cell_results.Waiting) and self._may_go_on(result):
                    self._record_pause(call_id, result)
                    result = await cell.resume()
            except CellStateError:
                # Aborted between two legs.
                return Failed(error="the run was aborted", code="internal_error", reason="aborted")
        if isinstance(result, cell_results.Completed):
            return Completed(value=result.value, unfinished_calls=result.usage.unfinished_requests)
        if isinstance(result, cell_results.Failed) and result.reason == "timeout":
            # The sandbox names a setting of its own.
            return replace(self._timeout_failure([]), position=result.position)
        if isinstance(result, cell_results.Failed):
            return Failed(
                error=result.error,
                code=result.code,
                reason=result.reason,
                position=result.position,
            )
        # Taken before the calls are cancelled.
        failed = self._timeout_failure(bridge.unfinished)
        await cell.abort("the program used up its time")
        return failed

    def _may_go_on(self, waiting: cell_results.Waiting) -> bool:
        """Whether only people hold it up. One that has timers run meanwhile still pays for them."""
        asked = sum(request.is_with_person for request in waiting.pending)
        # The others wait for their turn, and the turns are taken by those who wait for people.
        is_with_people = 0 < asked == min(len(waiting.pending), _LIMITS.max_pending_tool_calls)
        return is_with_people and waiting.usage.worker_ms < self._timeout_ms

    def _timeout_failure(self, calls: list[str]) -> Failed:
        unfinished = f"; unfinished: {', '.join(calls[:_MAX_SHOWN_CALLS])}" if calls else ""
        return Failed(
            error=f"the program used up its time (codeTimeoutMs is {self._timeout_ms}){unfinished}",
            code="timeout",
            reason="timeout",
        )

    def _keep(self, cell: Cell) -> None:
        self._cells = {kept for kept in self._cells if not _is_over(kept)} | {cell}

    def _record_pause(self, call_id: str, waiting: cell_results.Waiting) -> None:
        data: JsonObject = {"runId": waiting.run_id}
        size = waiting.usage.snapshot_bytes
        suspended: JsonObject = {**data, "reason": waiting.reason, "snapshotBytes": size}
        self._record("cell.suspended", call_id, suspended)
        self._record("cell.resumed", call_id, data)

    def _record_end(
        self, call_id: str, cell: Cell, result: ToolSearchResult, output: list[Output]
    ) -> None:
        for item in output:
            match item:
                case cell_results.TextOutput():
                    self._record("cell.output", call_id, {"runId": cell.cell_id, "text": item.text})
                case cell_results.JsonOutput():
                    data: JsonObject = {"runId": cell.cell_id, "result": item.value}
                    self._record("cell.output", call_id, data)
        ended: JsonObject = {"runId": cell.cell_id}
        match result:
            case Completed():
                ended |= {"status": "completed", "unfinishedCalls": result.unfinished_calls}
            case Failed(reason="aborted"):
                ended |= {"status": "aborted", "reason": result.error}
            case Failed():
                ended |= {"status": "failed", "reason": result.reason}
        self._record("cell.ended", call_id, ended)

    def _record(self, kind: EventKind, call_id: str, data: JsonObject) -> None:
        self._recorder.record(kind, call_id=call_id, data=data)


def _is_over(cell: Cell) -> bool:
    return cell.state.value in ("completed", "failed", "aborted") and not cell.pending
