"""The `nacre` application: its commands, and the exit status of a run of the process."""

import os
import sys
import threading
import time
from contextlib import suppress
from typing import Annotated, Final

import typer
from typer.main import get_command

import nacre
from nacre.cli.agent_commands import chat_command
from nacre.cli.agent_commands import run_command as run_agent_command
from nacre.cli.config_commands import config_app
from nacre.cli.doctor_command import doctor_command
from nacre.cli.exec_command import exec_command
from nacre.cli.gateway_command import gateway_command
from nacre.cli.mcp_commands import mcp_app, with_mcp_default
from nacre.cli.output import ExitStatus, Printer, UsageProblem, warn
from nacre.cli.plugins_commands import plugins_app
from nacre.cli.sessions_commands import sessions_app
from nacre.cli.tools_commands import tools_app
from nacre.cli.trajectory_commands import trajectory_app

# Much longer than threads take that only finish what they are at.
_GRACE_SECONDS: Final = 3.0


def exit_with_deadline(status: int) -> None:
    """To be called last. Python waits for threads without end; we do not."""
    others = (it for it in threading.enumerate() if it is not threading.main_thread())
    if any(not thread.daemon for thread in others):
        threading.Thread(target=_exit_after_grace, args=(status,), daemon=True).start()


def _exit_after_grace(status: int) -> None:
    time.sleep(_GRACE_SECONDS)
    try:
        warn("a tool or a plugin hangs in a thread; it was left behind")
        # Whoever reads it may be gone.
        with suppress(OSError, ValueError):
            sys.stdout.flush()
    finally:
        os._exit(status)


def _print_version(is_asked: bool) -> None:
    if is_asked:
        Printer().write(f"nacre {nacre.__version__}\n")
        raise typer.Exit


def global_options(
    _version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, help="Print the version and exit.", is_eager=True
        ),
    ] = False,
) -> None:
    """Agents that write programs: code mode, MCP servers, and a gateway."""


def run_command(arguments: list[str]) -> int:
    """Run the command that the arguments name; without any, help is shown."""
    command = get_command(_app())
    try:
        status: object = command.main(
            with_mcp_default(arguments) or ["--help"], prog_name="nacre", standalone_mode=False
        )
    except UsageProblem as problem:
        return _bad_usage(str(problem))
    except typer.TyperException as problem:
        message = problem.format_message().rstrip(".")
        return _bad_usage(f"{message}; see `{_help_command(problem)}`")
    if status in (ExitStatus.INTERRUPTED, ExitStatus.TERMINATED):
        warn("aborted")
    return status if isinstance(status, int) else ExitStatus.COMPLETED


def _app() -> typer.Typer:
    app = typer.Typer(
        add_completion=False,
        context_settings={"help_option_names": ["-h", "--help"]},
        pretty_exceptions_enable=False,
        # With markup, help and errors would need rich, which takes as long to import as typer.
        rich_markup_mode=None,
    )
    app.callback()(global_options)
    app.command("exec")(exec_command)
    app.command("run")(run_agent_command)
    app.command("chat")(chat_command)
    app.command("doctor")(doctor_command)
    app.command("gateway")(gateway_command)
    app.add_typer(mcp_app(), name="mcp")
    app.add_typer(config_app(), name="config")
    app.add_typer(tools_app(), name="tools")
    app.add_typer(plugins_app(), name="plugins")
    app.add_typer(sessions_app(), name="sessions")
    app.add_typer(trajectory_app(), name="trajectory")
    return app


def _help_command(problem: typer.TyperException) -> str:
    context = getattr(problem, "ctx", None)
    return f"{context.command_path if context else 'nacre'} --help"


def _bad_usage(problem: str) -> ExitStatus:
    warn(problem)
    return ExitStatus.BAD_USAGE
