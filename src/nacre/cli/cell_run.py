"""Runs one cell from its start to its end, or until a signal says that it is enough."""

import signal
from collections.abc import AsyncIterable
from dataclasses import replace

import anyio

from nacre.cli.cell_reports import CellReport
from nacre.cli.exit_status import ExitStatus
from nacre.cli.program_text import ProgramText
from nacre.cli.terminal import STOP_SIGNALS
from nacre.sandbox.cell import Cell
from nacre.sandbox.limits import Limits
from nacre.sandbox.results import CellResult, Completed, Failed, Waiting
from nacre.sandbox.sandbox import Sandbox, SandboxOptions


async def run_cell(
    program: ProgramText, limits: Limits, *, report: CellReport, is_resumed: bool
) -> ExitStatus:
    """Run the program and report each leg; a cell that waits is resumed if `is_resumed`."""
    with anyio.open_signal_receiver(*STOP_SIGNALS) as signals:
        async with Sandbox(SandboxOptions(workers=1)) as sandbox:
            cell = sandbox.cell(program.text, language=program.language, limits=limits)
            run = _CellRun(cell, report)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(run.abort_at, signals)
                result = await run.follow(is_resumed=is_resumed)
                tasks.cancel_scope.cancel()
            report.end(result)
            return run.exit_status(result)


class _CellRun:
    """One cell with its report and the signal that ended it, if one did."""

    def __init__(self, cell: Cell, report: CellReport) -> None:
        self._cell = cell
        self._report = report
        self._stop_status: ExitStatus | None = None

    async def follow(self, *, is_resumed: bool) -> CellResult:
        result = await self._cell.run()
        self._report.add_leg(result)
        while is_resumed and isinstance(result, Waiting):
            # No checkpoint between here and the next leg: an abort finds either.
            if self._is_stopped:
                return await self._aborted(result)
            result = await self._cell.resume()
            self._report.add_leg(result)
        return result

    async def abort_at(self, signals: AsyncIterable[signal.Signals]) -> None:
        async for number in signals:
            self._stop_status = ExitStatus(128 + number)
            await self._cell.abort(f"aborted by {number.name}")

    def exit_status(self, result: CellResult) -> ExitStatus:
        if self._report.printer.problem is not None:
            return self._report.printer.problem
        match result:
            case Completed():
                return ExitStatus.COMPLETED
            case Waiting():
                return ExitStatus.WAITING
            case Failed():
                is_aborted = result.reason == "aborted" and self._stop_status is not None
                return self._stop_status if is_aborted else ExitStatus.FAILED

    @property
    def _is_stopped(self) -> bool:
        return self._stop_status is not None or self._report.printer.problem is not None

    async def _aborted(self, waiting: Waiting) -> Failed:
        await self._cell.abort()
        return Failed(error="aborted while it waited", reason="aborted", usage=waiting.usage)
