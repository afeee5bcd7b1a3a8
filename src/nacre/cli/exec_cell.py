"""Runs the cell of `nacre exec` and prints its output, value or error."""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING, Final, Protocol, assert_never

import anyio

from nacre.cli.output import ExitStatus, Printer, UsageError, escape_controls, say
from nacre.code_mode.cell import CodeModeResult, Completed, Failed, Waiting
from nacre.code_mode.runtime import Runtime
from nacre.errors import CatalogError
from nacre.lazy_dataclasses import replace
from nacre.sandbox.results import ImageOutput, JsonOutput, Output, TextOutput, Usage

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from nacre.cli.exec_program import ProgramText
    from nacre.code_mode.run import CodeModeRun
    from nacre.config import CodeModeConfig, Protection
    from nacre.run_context import AbortSignal
    from nacre.sandbox import Launcher
    from nacre.sandbox.results import Position
    from nacre.tools import Tool


# Longer lines are cut around the position.
_MAX_SHOWN_CHARACTERS: Final = 100


def failure_text(failed: Failed, program: ProgramText) -> str:
    """The error, its position in the program, and its code."""
    lines = [f"failed: {failed.error}"]
    if failed.position is not None:
        lines += _excerpt(failed.position, program)
    lines.append(f"  reason {failed.reason}, code {failed.code}")
    return "\n".join(lines)


def _excerpt(position: Position, program: ProgramText) -> list[str]:
    lines = [f"  --> {program.name}:{position.line}:{position.column}"]
    source = program.text.split("\n")
    # A program can change its stack, so the position may be wrong.
    if position.line <= len(source):
        before, after = _cut_around(source[position.line - 1].removesuffix("\r"), position.column)
        number = str(position.line)
        lines.append(f"  {number} | {before}{after}")
        lines.append(f"  {' ' * len(number)} | {' ' * _width(before)}^")
    return lines


def _cut_around(line: str, column: int) -> tuple[str, str]:
    """The shown parts of the line before and after the column."""
    at = min(column - 1, len(line))
    start = max(0, min(at - _MAX_SHOWN_CHARACTERS // 2, len(line) - _MAX_SHOWN_CHARACTERS))
    before, after = line[start:at], line[at : start + _MAX_SHOWN_CHARACTERS]
    return _escape_source(before), _escape_source(after)


def _escape_source(text: str) -> str:
    return escape_controls(text.expandtabs(4).replace("\r", " "))


def _width(text: str) -> int:
    """The number of terminal columns of the text."""
    return sum(
        0 if unicodedata.combining(character)
        else 2 if unicodedata.east_asian_width(character) in "WF"
        else 1
        for character in text
    )  # fmt: skip


class CellReport(Protocol):
    """Receives every leg of a cell, in order, and the last one again at the end."""

    printer: Printer

    def add_leg(self, result: CodeModeResult) -> None: ...

    def end(self, result: CodeModeResult) -> None: ...


class JsonReport:
    """Prints one JSON document: the last result, with the output of all legs."""

    def __init__(self) -> None:
        self.printer = Printer()
        self._output: list[Output] = []

    def add_leg(self, result: CodeModeResult) -> None:
        self._output += result.output

    def end(self, result: CodeModeResult) -> None:
        wire = replace(result, output=tuple(self._output)).to_json()
        self.printer.write_json(wire, is_indented=self.printer.is_terminal)


class TextReport:
    """Prints output and value to standard output, and errors and status to standard error."""

    def __init__(self, program: ProgramText, *, is_status_shown: bool) -> None:
        self.printer = Printer()
        self._program = program
        self._is_status_shown = is_status_shown
        self._waits = 0

    def add_leg(self, result: CodeModeResult) -> None:
        for output in result.output:
            self._print_output(output)
        if isinstance(result, Waiting):
            self._waits += 1

    def end(self, result: CodeModeResult) -> None:
        match result:
            case Completed():
                # A program without a return value has the value null.
                if result.value is not None:
                    self.printer.write_json(result.value, is_indented=True)
            case Failed(reason="aborted"):
                # `nacre` itself reports the abort.
                pass
            case Failed():
                say(failure_text(result, self._program))
            case Waiting():
                say(_waiting_text(result))
            case _:
                assert_never(result)
        if self._is_status_shown:
            say(_status_text(result, waits=self._waits))

    def _print_output(self, output: Output) -> None:
        match output:
            case TextOutput():
                self.printer.write(f"{output.text}\n")
            case JsonOutput():
                self.printer.write_json(output.value, is_indented=True)
            case ImageOutput():
                self.printer.write(f"[image {output.media_type}, {output.size_bytes} bytes]\n")
            case _:
                assert_never(output)


def _waiting_text(waiting: Waiting) -> str:
    pending = ", ".join(call.tool_id for call in waiting.pending)
    return (
        f"waiting: {waiting.reason}{f' ({pending})' if pending else ''}; "
        "leave out --no-wait to continue"
    )


def _status_text(result: CodeModeResult, *, waits: int) -> str:
    match result:
        case Completed():
            how = "completed"
        case Failed():
            how = "aborted" if result.reason == "aborted" else "failed"
        case Waiting():
            how = "waiting"
        case _:
            assert_never(result)
    return f"{how} after {_costs_text(result.usage)}, {_count_text(waits, 'wait')}"


def _costs_text(usage: Usage) -> str:
    bursts = _count_text(usage.guest_bursts, "burst")
    return f"{usage.wall_ms:.0f} ms ({usage.worker_ms:.1f} ms in {bursts})"


def _count_text(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


async def run_cell(
    program: ProgramText,
    config: CodeModeConfig,
    *,
    tools: Sequence[Tool],
    require: Collection[Protection] | None,
    launcher: Launcher,
    report: CellReport,
    is_resumed: bool,
    abort: AbortSignal,
) -> ExitStatus:
    """Run the program and report each leg; INTERRUPTED if it was aborted.

    `launcher` may have started a worker. Resumes a waiting cell if `is_resumed`. Raises UsageError.
    """
    async with Runtime(config, workers=1, require=require, launcher=launcher) as runtime:
        try:
            run = _CellRun(runtime.run(tools=tools), report, abort)
        except CatalogError as error:
            raise UsageError(f"these tools cannot be used together: {error}") from None
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run.stop_on_abort)
            await run.follow(program, is_resumed=is_resumed)
            tasks.cancel_scope.cancel()
    return run.exit_status


class _CellRun:
    """One cell and its report."""

    def __init__(self, run: CodeModeRun, report: CellReport, abort: AbortSignal) -> None:
        self.exit_status = ExitStatus.FAILED
        self._run = run
        self._report = report
        self._abort = abort

    async def follow(self, program: ProgramText, *, is_resumed: bool) -> None:
        result = await self._run.exec(program.text, language=program.language)
        self._report.add_leg(result)
        while is_resumed and isinstance(result, Waiting):
            # An abort that came between two legs found nothing to stop.
            result = await (
                self._abort_waiting(result) if self._is_over else self._run.wait(result.cell_id)
            )
            self._report.add_leg(result)
        self._report.end(result)
        self.exit_status = self._report.printer.problem or self._status_of(result)

    async def stop_on_abort(self) -> None:
        await self._abort.wait()
        await self._run.abort(self._abort.reason)

    @property
    def _is_over(self) -> bool:
        return self._abort.is_aborted or self._report.printer.problem is not None

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
            case Failed(reason="aborted") if self._abort.is_aborted:
                return ExitStatus.INTERRUPTED
            case Failed():
                return ExitStatus.FAILED
