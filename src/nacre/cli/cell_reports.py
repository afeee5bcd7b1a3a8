"""What `exec` prints of a cell: as text while it runs, or as one JSON document at its end."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Protocol, assert_never

from nacre.cli.failure_text import failure_text
from nacre.cli.output import Printer, say
from nacre.code_mode.results import CodeModeResult, Completed, Failed, Waiting
from nacre.sandbox.results import JsonOutput, Output, TextOutput, Usage

if TYPE_CHECKING:
    from nacre.cli.exec_command import ProgramText


class CellReport(Protocol):
    """Is told of every leg of a cell, in order, and at the end once more of the last one."""

    printer: Printer

    def add_leg(self, result: CodeModeResult) -> None: ...

    def end(self, result: CodeModeResult) -> None: ...


class JsonReport:
    """One document: the last result, with the output of all legs in it."""

    def __init__(self) -> None:
        self.printer = Printer()
        self._output: list[Output] = []

    def add_leg(self, result: CodeModeResult) -> None:
        self._output += result.output

    def end(self, result: CodeModeResult) -> None:
        wire = replace(result, output=tuple(self._output)).to_json()
        self.printer.write_json(wire, is_indented=self.printer.is_terminal)


class TextReport:
    """Output and value on standard output; what is said about them on standard error."""

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
                # A program that returns nothing has the value null, and nothing to show for it.
                if result.value is not None:
                    self.printer.write_json(result.value, is_indented=True)
            case Failed(reason="aborted"):
                # The command line says so itself.
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
            case _:
                assert_never(output)


def _waiting_text(waiting: Waiting) -> str:
    pending = ", ".join(call.tool_id for call in waiting.pending)
    return (
        f"waiting: {waiting.reason}{f' ({pending})' if pending else ''}; "
        "leave out --no-wait to have the cell go on"
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
    return f"{how} after {_costs_text(result.telemetry.cell)}, {_count_text(waits, 'wait')}"


def _costs_text(usage: Usage) -> str:
    bursts = _count_text(usage.guest_bursts, "burst")
    return f"{usage.wall_ms:.0f} ms ({usage.worker_ms:.1f} ms of them in {bursts})"


def _count_text(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
