"""What can be found out about the sandbox on this machine, by using it."""

import logging
import platform
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import nacre
from nacre.config import Language, default_cache_directory
from nacre.errors import SandboxError
from nacre.json_types import JsonObject
from nacre.sandbox.hardening import Measure
from nacre.sandbox.results import Completed, Failed
from nacre.sandbox.sandbox import Sandbox, SandboxOptions, SandboxReport
from nacre.sandbox.worker.wasm_runtime import WasmError, library_path

_PROGRAMS: tuple[tuple[Language, str], ...] = (
    ("javascript", "return 1 + 1"),
    ("typescript", "const one: number = 1; return one + one"),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class CellTrial:
    """How a small program fared."""

    language: Language
    wall_ms: float
    problem: str


@dataclass(kw_only=True, slots=True)
class SandboxHealth:
    """Everything that `doctor` tells."""

    version: str = nacre.__version__
    python: str = f"{platform.python_implementation()} {platform.python_version()}"
    executable: str = sys.executable
    platform: str = ""
    library: str = ""
    cache_directory: str = ""
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
                {"name": measure.name, "applied": measure.applied, "detail": measure.detail}
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


def examine_surroundings() -> SandboxHealth:
    """What can be told without starting the sandbox; reads files."""
    return SandboxHealth(
        platform=platform.platform(),
        library=_look_up(library_path),
        cache_directory=_look_up(default_cache_directory),
    )


async def examine_sandbox(health: SandboxHealth) -> None:
    """Start the sandbox, run a program in each language, and note what there is to say."""
    listener = _LogListener(health.warnings)
    logger = logging.getLogger("nacre")
    logger.addHandler(listener)
    try:
        async with Sandbox(SandboxOptions(workers=1)) as sandbox:
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
            problem = f"the program `{code}` gave {result}"
    return CellTrial(language=language, wall_ms=wall_ms, problem=problem)


def _look_up(look_up: Callable[[], Path]) -> str:
    try:
        return str(look_up())
    except (OSError, RuntimeError, WasmError):
        # What follows from it, a worker that does not start or a warning, is reported by itself.
        return ""


class _LogListener(logging.Handler):
    """Collects what the sandbox warns of; its errors come back as problems."""

    def __init__(self, warnings: list[str]) -> None:
        super().__init__()
        self._warnings = warnings

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno == logging.WARNING:
            self._warnings.append(record.getMessage())
