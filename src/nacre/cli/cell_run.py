"""Runs one cell from its start to its end, or until a signal says that it is enough."""

import signal
from collections.abc import AsyncIterable, Sequence

import anyio

from nacre.cli.cell_reports import CellReport
from nacre.cli.exec_command import ProgramText
from nacre.cli.output import STOP_SIGNALS, ExitStatus, UsageProblem
from nacre.code_mode.results import CodeModeResult, Completed, Failed, Waiting
from nacre.code_mode.run import CodeModeRun
from nacre.code_mode.runtime import Runtime
from nacre.config.code_mode import CodeModeConfig
from nacre.errors import CatalogError
from nacre.tools.definition import Tool


async def run_cell(
    program: ProgramText,
    config: CodeModeConfig,
    *,
    tools: Sequence[Tool],
    report: CellReport,
    is_resumed: bool,
) -> ExitStatus:
    """Run the program and report each leg; a cell that waits is resumed if `is_resumed`."""
    with anyio.open_signal_receiver(*STOP_SIGNALS) as signals:
        async with Runtime(config, workers=1) as runtime:
            try:
                run = _CellRun(runtime.run(tools=tools), report)
            except CatalogError as error:
                raise UsageProblem(f"these tools cannot be used together: {error}") from None
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(run.abort_at, signals)
                await run.follow(program, is_resumed=is_resumed)
                tasks.cancel_scope.cancel()
    return run.exit_status


class _CellRun:
    """One cell, its report, and the signal that ended it, if one did."""

    def __init__(self, run: CodeModeRun, report: CellReport) -> None:
        self.exit_status = ExitStatus.FAILED
        self._run = run
        self._report = report
        self._stop_signal: signal.Signals | None = None

    async def follow(self, program: ProgramText, *, is_resumed: bool) -> None:
        result = await self._run.exec(program.text, language=program.language)
        self._report.add_leg(result)
        while is_resumed and isinstance(result, Waiting):
            # A signal that came with the end of a leg found nothing to abort.
            result = await (
                self._abort_waiting(result) if self._is_over else self._run.wait(result.run_id)
            )
            self._report.add_leg(result)
        self._report.end(result)
        self.exit_status = self._report.printer.problem or self._status_of(result)

    async def abort_at(self, signals: AsyncIterable[signal.Signals]) -> None:
        async for number in signals:
            self._stop_signal = number
            await self._run.abort(f"aborted by {number.name}")

    @property
    def _is_over(self) -> bool:
        return self._stop_signal is not None or self._report.printer.problem is not None

    async def _abort_waiting(self, waiting: Waiting) -> Failed:
        await self._run.abort()
        return Failed(
            error="aborted while it waited", reason="aborted", telemetry=waiting.telemetry
        )

    def _status_of(self, result: CodeModeResult) -> ExitStatus:
        match result:
            case Completed():
                return ExitStatus.COMPLETED
            case Waiting():
                return ExitStatus.WAITING
            case Failed(reason="aborted") if self._stop_signal is not None:
                return ExitStatus(128 + self._stop_signal)
            case Failed():
                return ExitStatus.FAILED
