"""Runs one cell from its start to its end, or until a signal says that it is enough."""

import signal
from collections.abc import AsyncIterable

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
                await run.follow(is_resumed=is_resumed)
                tasks.cancel_scope.cancel()
    return run.exit_status


class _CellRun:
    """One cell, its report, and the signal that ended it, if one did."""

    def __init__(self, cell: Cell, report: CellReport) -> None:
        self.exit_status = ExitStatus.FAILED
        self._cell = cell
        self._report = report
        self._stop_signal: signal.Signals | None = None

    async def follow(self, *, is_resumed: bool) -> None:
        result = await self._cell.run()
        self._report.add_leg(result)
        while is_resumed and isinstance(result, Waiting):
            # A signal that came with the end of a leg found nothing to abort.
            result = await self._aborted(result) if self._is_over else await self._cell.resume()
            self._report.add_leg(result)
        self._report.end(result)
        self.exit_status = self._report.printer.problem or self._status_of(result)

    async def abort_at(self, signals: AsyncIterable[signal.Signals]) -> None:
        async for number in signals:
            self._stop_signal = number
            await self._cell.abort(f"aborted by {number.name}")

    @property
    def _is_over(self) -> bool:
        return self._stop_signal is not None or self._report.printer.problem is not None

    async def _aborted(self, waiting: Waiting) -> Failed:
        await self._cell.abort()
        return Failed(error="aborted while it waited", reason="aborted", usage=waiting.usage)

    def _status_of(self, result: CellResult) -> ExitStatus:
        match result:
            case Completed():
                return ExitStatus.COMPLETED
            case Waiting():
                return ExitStatus.WAITING
            case Failed(reason="aborted") if self._stop_signal is not None:
                return ExitStatus(128 + self._stop_signal)
            case Failed():
                return ExitStatus.FAILED
