"""Entry point and command table of `nacre`."""

from __future__ import annotations

import gc
import sys
from typing import TYPE_CHECKING, Any

from nacre.cli.exit_status import ExitStatus, UsageProblem
from nacre.cli.terminal import warn

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return the exit status of the process."""
    # Nothing that imports make is garbage, and looking for it takes 20 ms; commands enable it.
    gc.disable()
    try:
        status = _run_command(list(sys.argv[1:] if arguments is None else arguments))
    except KeyboardInterrupt:
        status = ExitStatus.INTERRUPTED
    finally:
        gc.enable()
    if status in (ExitStatus.INTERRUPTED, ExitStatus.TERMINATED):
        warn("aborted")
    return status


def _run_command(arguments: list[str]) -> int:
    # Imported here, so that Ctrl-C during the import is answered like any other.
    import typer
    from typer.main import get_command

    try:
        command = get_command(_app())
        status: object = command.main(
            arguments or ["--help"], prog_name="nacre", standalone_mode=False
        )
    except UsageProblem as problem:
        return _bad_usage(str(problem))
    except typer.TyperException as problem:
        message = problem.format_message().rstrip(".")
        return _bad_usage(f"{message}; see `{_help_command(problem)}`")
    return status if isinstance(status, int) else ExitStatus.COMPLETED


def _app() -> Any:
    import typer

    from nacre.cli.doctor_command import doctor_command
    from nacre.cli.exec_command import exec_command
    from nacre.cli.global_options import global_options

    app = typer.Typer(
        add_completion=False,
        context_settings={"help_option_names": ["-h", "--help"]},
        pretty_exceptions_enable=False,
        # With markup, help and errors would need rich, which takes as long to import as typer.
        rich_markup_mode=None,
    )
    app.callback()(global_options)
    app.command("exec")(exec_command)
    app.command("doctor")(doctor_command)
    return app


def _help_command(problem: object) -> str:
    context = getattr(problem, "ctx", None)
    return f"{context.command_path if context else 'nacre'} --help"


def _bad_usage(problem: str) -> ExitStatus:
    warn(problem)
    return ExitStatus.BAD_USAGE


if __name__ == "__main__":
    sys.exit(main())
