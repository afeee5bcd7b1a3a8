"""Command `nacre doctor`: checks the sandbox, the configuration and all that it names."""

from __future__ import annotations

import logging
import os
import platform
import shutil
import sys
import time
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer

import nacre
from nacre.cli.config_document import check, config_file, origin_text
from nacre.cli.configured_servers import configured_servers, survey_servers
from nacre.cli.options import TIMEOUT_SECONDS, ConfigOption
from nacre.cli.output import ExitStatus, Printer, UsageError, count_text, duration_text, size_text
from nacre.cli.runner import run_async
from nacre.cli.stored_records import read_stored
from nacre.config import (
    DEFAULT_DOCUMENT,
    choose_runtime,
    default_cache_directory,
    is_missing_secret,
    read_config_file,
    required_protections_from,
    user_folder,
)
from nacre.errors import ConfigError, NacreError, SandboxError
from nacre.providers import get_api_key
from nacre.sandbox.image import WasmError, library_path
from nacre.sandbox.results import Completed, Failed, Limits
from nacre.sandbox.sandbox import Sandbox, SandboxOptions, SandboxReport

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from nacre.cli.configured_servers import ServerSurvey
    from nacre.config import ConfigFile, Language, Protection, ProviderConfig, SystemConfig
    from nacre.json_types import JsonObject
    from nacre.sandbox.hardening import Measure
    from nacre.storage import Store


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
    for found in health.checks:
        yield found.name, found.detail


def _summary(health: SandboxHealth) -> Iterator[str]:
    for warning in health.warnings:
        yield f"warning: {warning}"
    for measure in health.missing:
        yield f"warning: {measure.name} is not active ({measure.detail}); " + _ADVICE.get(
            measure.name, _GENERAL_ADVICE
        )
    for found in health.checks:
        if found.status != "ok":
            yield f"{found.status}: {found.name}: {found.detail}; {found.advice}"
    yield from (f"problem: {problem}" for problem in health.problems)
    yield _verdict(health)


def _verdict(health: SandboxHealth) -> str:
    if health.problems:
        return "broken: programs cannot run on this machine."
    if health.status == "broken":
        return "broken: programs run, but agents do not; see the problems above."
    if health.missing:
        return "usable: programs run, but some protections are missing."
    if health.status == "degraded":
        return "usable: programs run with all protections; see the warnings above."
    return "ok: programs run with all protections."


def doctor_command(
    config: ConfigOption = None,
    is_json: Annotated[
        bool, typer.Option("--json", help="Print the report as one JSON document.")
    ] = False,
) -> int:
    """Check the sandbox, the configuration and the servers.

    Runs a JavaScript and a TypeScript program, lists the active protections, looks for the keys of
    the models, opens the database, and starts the MCP servers. Prints advice for each problem.
    Exit status: 0 if all of it works, also with warnings, and 1 if something does not.
    """
    health = examine_all(config)
    if isinstance(health, ExitStatus):
        return health
    printer = Printer()
    if is_json:
        printer.write_json(health.to_json(), is_indented=printer.is_terminal)
    else:
        printer.write(health_text(health))
    if printer.problem is not None:
        return printer.problem
    return ExitStatus.FAILED if health.status == "broken" else ExitStatus.COMPLETED


def examine_all(config: str | None) -> SandboxHealth | ExitStatus:
    """All findings; the exit status if the user has interrupted the command."""
    health = examine_installation()
    system = _examine_config(config, health)
    run_async(lambda: examine_sandbox(health))
    health.checks += [*_check_keys(system), *_check_codex(system)]
    health.checks += [_check_database(system), _check_disk(system), _check_web_app()]
    surveys = _survey_servers(config)
    if isinstance(surveys, ExitStatus):
        return surveys
    health.checks += map(_check_server, surveys)
    return health


def register(app: typer.Typer) -> None:
    app.command("doctor")(doctor_command)


_PROGRAMS: tuple[tuple[Language, str], ...] = (
    ("javascript", "return 1 + 1"),
    ("typescript", "const one: number = 1; return one + one"),
)
# The first TypeScript program also compiles an image, which is slow on a busy machine.
_TRIAL_LIMITS: Final = Limits(timeout_ms=60_000)


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
    checks: list[Check] = field(default_factory=list["Check"])
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
            "checks": [found.to_json() for found in self.checks],
            "warnings": list(self.warnings),
            "problems": list(self.problems),
        }

    @property
    def status(self) -> str:
        found = {it.status for it in self.checks}
        if self.problems or "problem" in found:
            return "broken"
        return "degraded" if self.missing or self.warnings or "warning" in found else "ok"


def examine_installation() -> SandboxHealth:
    """Collect what is known without starting the sandbox. Reads files."""
    return SandboxHealth(
        platform=platform.platform(),
        library=_find_path(library_path),
        cache_directory=_find_path(default_cache_directory),
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
    result = await sandbox.cell(code, language=language, limits=_TRIAL_LIMITS).run()
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


# The configuration, and everything that it names.

_MIN_FREE_BYTES: Final = 500_000_000


@dataclass(frozen=True, kw_only=True, slots=True)
class Check:
    """The state of one part of the system."""

    name: str
    detail: str
    status: Literal["ok", "warning", "problem"] = "ok"
    advice: str = ""
    """What to do, unless it is ok."""

    def to_json(self) -> JsonObject:
        return {
            "name": self.name,
            "status": self.status,
            "detail": self.detail,
            "advice": self.advice,
        }


def _examine_config(named: str | None, health: SandboxHealth) -> SystemConfig:
    """Check the configuration, and return it; the default one if it cannot be read."""
    file = config_file(named)
    try:
        document = read_config_file(file)
        health.require = required_protections_from(document)
        found = check(document or DEFAULT_DOCUMENT, file.path)
    except ConfigError as error:
        advice = "correct the file, or name another one with --config"
        health.checks.append(_problem("configuration", str(error), advice))
        return check(DEFAULT_DOCUMENT, file.path).config
    # Missing keys are reported for their models and servers.
    problems = [it for it in found.problems if not is_missing_secret(it)]
    health.checks += [
        _problem("configuration", str(it), f"change it in {file.path}") for it in problems
    ]
    health.warnings += found.warnings
    if not problems:
        health.checks.append(Check(name="configuration", detail=_describe_file(file)))
    return found.config


def _describe_file(file: ConfigFile) -> str:
    return f"{origin_text(file)}{'; valid' if file.path.exists() else ''}"


def _problem(name: str, detail: str, advice: str) -> Check:
    return Check(name=name, detail=detail, status="problem", advice=advice)


def _check_keys(config: SystemConfig) -> Iterator[Check]:
    """Check the keys of the models that agents use, without showing them."""
    agents = config.agents
    needed = agents.agent(agents.default_id).model.partition("/")[0]
    models = [
        model
        for agent in agents.by_id.values()
        for model in (agent.model, *agent.fallback_models)
        # Codex may have a login of its own.
        if choose_runtime(model, agent, config.models, config.codex).id != "codex"
    ]
    for name in dict.fromkeys(model.partition("/")[0] for model in models):
        provider = config.models.providers.get(name)
        if provider is not None and provider.api != "demo":
            yield _check_key(provider, is_needed=name == needed)


def _check_key(provider: ProviderConfig, *, is_needed: bool) -> Check:
    name = f"key of {provider.name}"
    try:
        get_api_key(provider)
    except ConfigError as error:
        return Check(
            name=name,
            detail=str(error),
            status="problem" if is_needed else "warning",
            advice="without it the model cannot be used",
        )
    return Check(name=name, detail="present" if provider.api_key else "none, and none is needed")


def _check_codex(config: SystemConfig) -> Iterator[Check]:
    """Check Codex for each agent whose model runs in it."""
    for agent in config.agents.by_id.values():
        if choose_runtime(agent.model, agent, config.models, config.codex).id != "codex":
            continue
        # Not every configuration needs it.
        from nacre.codex_harness import examine_codex

        name = f"codex of {agent.id}"
        if config.codex.refusal:
            yield _problem(name, config.codex.refusal, "enable it, or choose another model")
            continue
        work = partial(examine_codex, config.codex, agent.id, dict(os.environ))
        health = run_async(work)
        provider = config.models.providers.get(agent.model.partition("/")[0])
        needs_login = provider is not None and provider.is_official_openai and not provider.api_key
        if health.problem:
            yield _problem(name, health.problem, "turns of this agent fail without it")
        elif needs_login and not health.account:
            detail = f"version {health.version}, not logged in"
            advice = f"run `nacre codex login --agent {agent.id}`, or set OPENAI_API_KEY"
            yield _problem(name, detail, advice)
        else:
            login = f", logged in with {health.account}" if health.account else ""
            detail = f"version {health.version} ({health.program}){login}"
            yield Check(name=name, detail=detail)


def _check_database(config: SystemConfig) -> Check:
    file = database_file(config)
    if file is not None and not file.exists():
        return Check(name="database", detail=f"{file}, created by the first run")
    started = time.monotonic()
    try:
        address = read_stored(config, _read_address)
    except NacreError as error:
        advice = "correct `storage.url`, or make the database available"
        return _problem("database", str(error), advice)
    wall_ms = (time.monotonic() - started) * 1000
    return Check(name="database", detail=f"{address}, opened in {duration_text(wall_ms)}")


async def _read_address(store: Store) -> str:
    await store.sessions(limit=1)
    return store.address


def database_file(config: SystemConfig) -> Path | None:
    """The file of the database; None if the database is not a file."""
    kind, _, path = config.storage.url.partition(":///")
    return Path(path) if kind == "sqlite" and path != ":memory:" else None


def _check_disk(config: SystemConfig) -> Check:
    """Check the free space for the database and the compiled modules."""
    database = database_file(config)
    folders = [database.parent if database else user_folder("data", os.environ)]
    if cache := _find_path(default_cache_directory):
        folders.append(Path(cache))
    free = {folder: _free_bytes(folder) for folder in folders}
    detail = ", ".join(f"{size_text(size)} free in {folder}" for folder, size in free.items())
    if min(free.values()) >= _MIN_FREE_BYTES:
        return Check(name="disk", detail=detail)
    advice = f"free some space: less than {size_text(_MIN_FREE_BYTES)} is left"
    return Check(name="disk", detail=detail, status="warning", advice=advice)


def _free_bytes(folder: Path) -> int:
    existing = next(it for it in (folder, *folder.parents) if it.is_dir())
    return shutil.disk_usage(existing).free


def _check_web_app() -> Check:
    if find_spec("starlette") is None:
        detail = "not installed; run: pip install 'nacre-ai[gateway]'"
        return Check(name="web app", detail=detail)
    from nacre.gateway.web import find_missing_files

    missing = find_missing_files()
    if not missing:
        return Check(name="web app", detail="complete; `nacre gateway` serves it")
    detail = f"not complete: {count_text(len(missing), 'file')} missing, such as {missing[0]}"
    advice = "install the wheel again, or run `make install` in a source folder"
    return Check(name="web app", detail=detail, status="warning", advice=advice)


def _survey_servers(config: str | None) -> list[ServerSurvey] | ExitStatus:
    """Start the MCP servers and list their tools."""
    try:
        configured = configured_servers(config, ())
    except UsageError:
        # The configuration cannot be read, which is reported.
        return []
    if not configured.servers:
        return []
    return survey_servers(configured, timeout_seconds=TIMEOUT_SECONDS)


def _check_server(survey: ServerSurvey) -> Check:
    name = f"server {survey.name}"
    if survey.state == "disabled":
        return Check(name=name, detail="disabled")
    if survey.problem:
        advice = f"see `nacre mcp status {survey.name}`; agents work without its tools"
        return Check(name=name, detail=survey.problem, status="warning", advice=advice)
    tools = count_text(len(survey.tools), "tool")
    return Check(name=name, detail=f"{tools} after {duration_text(survey.wall_ms)}")
