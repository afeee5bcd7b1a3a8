"""The cells of one run: started, resumed, kept while they wait, listed and aborted."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from nacre.code_mode.bridge import CellBridge, RunTools
from nacre.code_mode.cell import CellInfo, CodeModeCell
from nacre.code_mode.results import CodeModeResult, Failed, Waiting
from nacre.code_mode.suspended_runs import UNAVAILABLE, CellRefused, CellScope
from nacre.errors import CellStateError
from nacre.sandbox import Limits
from nacre.sandbox import results as cell_results

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from nacre.code_mode.exec_tool import ExecInput
    from nacre.code_mode.guest_view import GuestViews
    from nacre.code_mode.live_cells import LiveCells
    from nacre.code_mode.run_telemetry import RunTelemetry
    from nacre.code_mode.suspended_runs import SuspendedCells
    from nacre.run_context import RunContext
    from nacre.sandbox import CellResult, Sandbox
    from nacre.trajectory import TrajectoryRecorder


class RunCells:
    """Whoever leaves this with a `Waiting` finds the cell in the store of suspended runs."""

    def __init__(
        self,
        *,
        sandbox: Sandbox,
        suspended: SuspendedCells,
        live: LiveCells,
        context: RunContext,
        recorder: TrajectoryRecorder,
        telemetry: RunTelemetry,
        views: GuestViews,
    ) -> None:
        self._sandbox = sandbox
        self._suspended = suspended
        self._live = live
        self._context = context
        self._scope = CellScope.of(context)
        self._recorder = recorder
        self._telemetry = telemetry
        self._views = views
        self._abort_reason: str | None = None

    async def start(self, program: ExecInput, tools: RunTools, *, call_id: str) -> CodeModeResult:
        """Run a program on behalf of the call of `exec` with this id; raises CellRefused."""
        self._refuse_after_abort()
        listings = await tools.mcp.servers.listings()
        self._refuse_after_abort()
        bridge = CellBridge(tools, exec_call_id=call_id)
        cell = CodeModeCell(
            self._sandbox.cell(
                program.code,
                language=program.language,
                limits=Limits.from_config(tools.config),
                shared=self._views.view(tools.namespaces, listings),
                handler=bridge,
                owner=self._context.session_id,
            ),
            bridge=bridge,
            context=self._context,
            call_id=call_id,
            ttl_seconds=tools.config.snapshot_ttl_seconds,
            recorder=self._recorder,
            counts=self._telemetry.snapshots,
        )
        self._live.add(cell)
        return await self._leg(cell, cell.run)

    async def resume(self, cell_id: str) -> CodeModeResult:
        """Continue a suspended program; raises CellRefused, with the run as it was."""
        self._refuse_after_abort()
        cell = self._suspended.begin_resume(cell_id, self._scope)
        return await self._leg(cell, cell.resume)

    async def abort(self, reason: str) -> None:
        """End all of them, with the calls that they left behind; none can be started any more."""
        self._abort_reason = reason
        await self._live.abort(self._is_mine, reason)

    async def abort_one(self, cell_id: str, reason: str) -> bool:
        """End one of them; False if there is none of that id."""
        return bool(
            await self._live.abort(
                lambda cell: self._is_mine(cell) and cell.cell_id == cell_id, reason
            )
        )

    def infos(self) -> list[CellInfo]:
        """Those that run, wait, or left calls behind that still run; oldest first."""
        return self._live.infos(self._is_mine)

    def _is_mine(self, cell: CodeModeCell) -> bool:
        return cell.recorder is self._recorder

    async def _leg(
        self, cell: CodeModeCell, leg: Callable[[], Awaitable[CellResult]]
    ) -> CodeModeResult:
        is_stored = False
        try:
            ended = await leg()
            if isinstance(ended, cell_results.Failed):
                # Before the report, so that a result counts its own failure.
                self._telemetry.count_failure(ended.reason)
            result = cell.to_result(ended, self._telemetry.report)
            if isinstance(result, Waiting):
                result = await self._store_suspended(cell, result)
                is_stored = isinstance(result, Waiting)
            return result
        except CellStateError:
            # Aborted between the look into the store and the first step.
            raise CellRefused(UNAVAILABLE, "run_unavailable") from None
        finally:
            if not is_stored:
                self._suspended.remove(cell.cell_id)

    async def _store_suspended(self, cell: CodeModeCell, waiting: Waiting) -> Waiting | Failed:
        try:
            if cell.abort_reason is not None:
                raise CellRefused(cell.abort_reason, "aborted")
            self._suspended.add(cell, self._scope)
        except CellRefused as refusal:
            await cell.abort(refusal.message)
            self._telemetry.count_failure(refusal.reason)
            return Failed(
                error=refusal.message,
                reason=refusal.reason,
                output=waiting.output,
                telemetry=replace(
                    waiting.telemetry,
                    snapshots=self._telemetry.snapshots.to_json(),
                    limit_failures=dict(self._telemetry.limit_failures),
                ),
            )
        return waiting

    def _refuse_after_abort(self) -> None:
        if self._abort_reason is not None:
            raise CellRefused(self._abort_reason, "aborted")
