"""`doctor`: what the sandbox needs on this machine, what it has, and what to do about the rest."""

import gc
from typing import Annotated

import typer

from nacre.cli.output import ExitStatus, Printer


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
        from nacre.cli.health_text import health_text

        printer.write(health_text(health))
    if printer.problem is not None:
        return printer.problem
    return ExitStatus.FAILED if health.problems else ExitStatus.COMPLETED
