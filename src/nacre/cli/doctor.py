"""Command `nacre doctor`: checks whether the sandbox works on this machine."""

from __future__ import annotations

import logging
import platform
import sys
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Final

import typer

import nacre
from nacre.cli.output import ExitStatus, Printer
from nacre.cli.runner import run_async
from nacre.cli.system_config import read_required_protections
from nacre.config import default_cache_directory
from nacre.errors import SandboxError
from nacre.sandbox.results import Completed, Failed
from nacre.sandbox.sandbox import Sandbox, SandboxOptions, SandboxReport
from nacre.sandbox.worker.wasm_runtime import WasmError, library_path

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from nacre.config import Language, Protection
    from nacre.json_types import JsonObject
    from nacre.sandbox.hardening import Measure


_IMAGE_DIGITS: Final = 12

_ADVICE: Final = {
    "landlock": "use Linux 5.13 or newer with `landlock` in its list of security modules",
    "seccomp": "use Linux with libseccomp 2.5 or newer and the pyseccomp package",
    "no_new_executable_memory": "use Linux 6.3 or newer",
}
_GENERAL_ADVICE: Final = "run Nacre on Linux, in a container that does not forbid it"


def health_text(health: SandboxHealth) -> str:
    """The report as text, with the summary as its last line."""
    lines = [f"{name:<18}{value}" for name, value in _facts(health)]
    return "\n".join((*lines, "", *_summary(health), ""))


def _facts(health: SandboxHealth) -> Iterator[tuple[str, str]]:
    yield "nacre", health.version
    yield "python", f"{health.python}, {health.executable}"
    yield "platform", health.platform
    yield "wasmtime", health.library or "not found"
    yield "module cache", health.cache_directory or "not found"
    if health.engine:
        yield "engine", f"{health.engine}, image {health.image[:_IMAGE_DIGITS]}"
    if health.module_origin:
        yield (
            "compiled module",
            {"cache": "from the cache", "built": "built now"}.get(
                health.module_origin, health.module_origin
            ),
        )
    for pid in health.worker_pids:
        yield (
            "worker",
            (
                f"process {pid}, ready after {health.worker_start_ms:.0f} ms, "
                f"first result after {health.first_result_ms:.0f} ms"
            ),
        )
    if health.measures:
        active = len(health.measures) - len(health.missing)
        yield "hardening", f"{active} of {len(health.measures)} measures are active"
    for measure in health.measures:
        yield "", f"{'yes' if measure.applied else 'NO':<4}{measure.name}: {measure.detail}"
    for cell in health.cells:
        yield f"{cell.language} cell", cell.problem or f"works, result after {cell.wall_ms:.0f} ms"


def _summary(health: SandboxHealth) -> Iterator[str]:
    for warning in health.warnings:
        yield f"warning: {warning}"
    for measure in health.missing:
        yield f"warning: {measure.name} is not active ({measure.detail}); " + _ADVICE.get(
            measure.name, _GENERAL_ADVICE
        )
    if health.problems:
        yield from (f"problem: {problem}" for problem in health.problems)
        yield "broken: programs cannot run on this machine."
    elif health.missing or health.warnings:
        yield "usable: programs run, but some protections are missing."
    else:
        yield "ok: programs run with all protections."


def doctor_command(
    is_json: Annotated[
        bool, typer.Option("--json", help="Print the report as one JSON document.")
    ] = False,
) -> int:
    """Check that the sandbox works on this machine.

    Starts a worker, runs a JavaScript and a TypeScript program, and lists the active protections.
    Exit status: 0 if programs run, even if a protection is missing, and 1 if they do not.
    """
    health = examine_installation()
    run_async(lambda: examine_sandbox(health))
    printer = Printer()
    if is_json:
        printer.write_json(health.to_json(), is_indented=printer.is_terminal)
    else:
        printer.write(health_text(health))
    if printer.problem is not None:
        return printer.problem
    return ExitStatus.FAILED if health.problems else ExitStatus.COMPLETED


def register(app: typer.Typer) -> None:
    app.command("doctor")(doctor_command)


_PROGRAMS: tuple[tuple[Language, str], ...] = (
    ("javascript", "return 1 + 1"),
    ("typescript", "const one: number = 1; return one + one"),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class CellTrial:
    """The result of a small program."""

    language: Language
    wall_ms: float
    problem: str


@dataclass(kw_only=True, slots=True)
class SandboxHealth:
    """The findings of `nacre doctor`."""

    version: str = nacre.__version__
    python: str = f"{platform.python_implementation()} {platform.python_version()}"
    executable: str = sys.executable
    platform: str = ""
    library: str = ""
    cache_directory: str = ""
    require: tuple[Protection, ...] | None = None
    engine: str = ""
    image: str = ""
    module_origin: str = ""
    worker_pids: tuple[int, ...] = ()
    worker_start_ms: float = 0.0
    first_result_ms: float = 0.0
    measures: tuple[Measure, ...] = ()
    cells: list[CellTrial] = field(default_factory=list[CellTrial])
    warnings: list[str] = field(default_factory=list[str])
    problems: list[str] = field(default_factory=list[str])

    @property
    def missing(self) -> tuple[Measure, ...]:
        return tuple(measure for measure in self.measures if not measure.applied)

    def to_json(self) -> JsonObject:
        return {
            "status": self.status,
            "version": self.version,
            "python": self.python,
            "executable": self.executable,
            "platform": self.platform,
            "wasmtimeLibrary": self.library,
            "engine": self.engine,
            "image": self.image,
            "cacheDirectory": self.cache_directory,
            "moduleOrigin": self.module_origin,
            "workers": list(self.worker_pids),
            "workerStartMs": round(self.worker_start_ms, 3),
            "firstResultMs": round(self.first_result_ms, 3),
            "hardening": [
                {
                    "name": measure.name,
                    "applied": measure.applied,
                    "available": measure.available,
                    "detail": measure.detail,
                }
                for measure in self.measures
            ],
            "cells": [
                {"language": c.language, "wallMs": round(c.wall_ms, 3), "problem": c.problem}
                for c in self.cells
            ],
            "warnings": list(self.warnings),
            "problems": list(self.problems),
        }

    @property
    def status(self) -> str:
        if self.problems:
            return "broken"
        return "degraded" if self.missing or self.warnings else "ok"


def examine_installation() -> SandboxHealth:
    """Collect what is known without starting the sandbox. Reads files."""
    return SandboxHealth(
        platform=platform.platform(),
        library=_find_path(library_path),
        cache_directory=_find_path(default_cache_directory),
        require=read_required_protections(),
    )


async def examine_sandbox(health: SandboxHealth) -> None:
    """Start the sandbox, run a program in each language, and add the findings to `health`."""
    listener = _WarningCollector(health.warnings)
    logger = logging.getLogger("nacre")
    logger.addHandler(listener)
    try:
        options = SandboxOptions(workers=1, require=health.require)
        async with Sandbox(options) as sandbox:
            await _examine_workers(sandbox, health)
            if not health.problems:
                health.cells = [await _try_cell(sandbox, *program) for program in _PROGRAMS]
                health.first_result_ms = health.worker_start_ms + health.cells[0].wall_ms
    finally:
        logger.removeHandler(listener)
    health.problems += [
        f"{c.language} does not run: {c.problem}" for c in health.cells if c.problem
    ]


async def _examine_workers(sandbox: Sandbox, health: SandboxHealth) -> None:
    started = time.monotonic()
    try:
        report = await sandbox.check()
    except SandboxError as error:
        health.problems.append(str(error))
        return
    health.worker_start_ms = (time.monotonic() - started) * 1000
    _note_report(report, health)


def _note_report(report: SandboxReport, health: SandboxHealth) -> None:
    health.engine = report.engine
    health.image = report.image
    health.module_origin = report.module_origin
    health.worker_pids = report.workers
    if report.hardening is not None:
        health.measures = report.hardening.measures
    if report.problem:
        health.problems.append(report.problem)


async def _try_cell(sandbox: Sandbox, language: Language, code: str) -> CellTrial:
    started = time.monotonic()
    result = await sandbox.cell(code, language=language).run()
    wall_ms = (time.monotonic() - started) * 1000
    match result:
        case Completed(value=2):
            problem = ""
        case Failed():
            problem = result.error
        case _:
            problem = f"the program `{code}` returned {result}"
    return CellTrial(language=language, wall_ms=wall_ms, problem=problem)


def _find_path(find: Callable[[], Path]) -> str:
    try:
        return str(find())
    except (OSError, RuntimeError, WasmError):
        # The worker that does not start, or a warning, is reported instead.
        return ""


class _WarningCollector(logging.Handler):
    """Collects warnings of the sandbox. Its errors are reported as problems."""

    def __init__(self, warnings: list[str]) -> None:
        super().__init__()
        self._warnings = warnings

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno == logging.WARNING:
            self._warnings.append(record.getMessage())
