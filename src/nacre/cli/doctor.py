"""`nacre doctor`: checks whether the sandbox works on this machine."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Annotated, Final

import typer

from nacre.cli.output import ExitStatus, Printer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nacre.cli.sandbox_health import SandboxHealth


_IMAGE_DIGITS: Final = 12

_ADVICE: Final = {
    "landlock": "use Linux 5.13 or newer with `landlock` in its list of security modules",
    "seccomp": "use Linux with libseccomp 2.5 or newer and the pyseccomp package",
    "no_new_executable_memory": "use Linux 6.3 or newer",
}
_GENERAL_ADVICE: Final = "run Nacre on Linux, in a container that does not forbid it"


def health_text(health: SandboxHealth) -> str:
    """All lines, the verdict last."""
    lines = [f"{name:<18}{value}" for name, value in _facts(health)]
    return "\n".join((*lines, "", *_verdict(health), ""))


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
            {"cache": "from the cache", "built": "built just now"}.get(
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
        held = len(health.measures) - len(health.missing)
        yield "hardening", f"{held} of {len(health.measures)} measures hold"
    for measure in health.measures:
        yield "", f"{'yes' if measure.applied else 'NO':<4}{measure.name}: {measure.detail}"
    for cell in health.cells:
        yield f"{cell.language} cell", cell.problem or f"runs, result after {cell.wall_ms:.0f} ms"


def _verdict(health: SandboxHealth) -> Iterator[str]:
    for warning in health.warnings:
        yield f"warning: {warning}"
    for measure in health.missing:
        yield f"warning: {measure.name} does not hold ({measure.detail}); " + _ADVICE.get(
            measure.name, _GENERAL_ADVICE
        )
    if health.problems:
        yield from (f"problem: {problem}" for problem in health.problems)
        yield "broken: programs cannot run here."
    elif health.missing or health.warnings:
        yield "usable: programs run, but not with every protection."
    else:
        yield "ok: programs run, with every protection."


def doctor_command(
    is_json: Annotated[
        bool, typer.Option("--json", help="Print the report as one JSON document.")
    ] = False,
) -> int:
    """Check whether and how well the sandbox works here.

    Starts a worker, runs a program in JavaScript and one in TypeScript, and says which protections
    hold. Exit status: 0 if programs run (the last line tells if a protection is missing), 1 if not.
    """
    import anyio

    from nacre.cli.sandbox_health import examine_sandbox, examine_surroundings

    gc.enable()
    health = examine_surroundings()
    anyio.run(examine_sandbox, health)
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
