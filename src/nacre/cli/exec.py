"""Command `nacre exec`: runs one program in the sandbox."""

from __future__ import annotations

from typing import Annotated

import typer

from nacre.cli.exec_program import config_from, read_program, run_program
from nacre.cli.options import OwnToolsOption
from nacre.cli.output import warn
from nacre.config import LANGUAGES, LIMITS


def limit_help(field: str, meaning: str) -> str:
    limit = LIMITS[field]
    return f"{meaning} [default: {limit.default}; {limit.least} to {limit.most}]"


def exec_command(
    file: Annotated[
        str | None,
        typer.Argument(
            metavar="FILE",
            help="The file of the program; `-` or none reads standard input.",
            show_default=False,
        ),
    ] = None,
    code: Annotated[
        str | None, typer.Option("-e", "--eval", metavar="CODE", help="The code of the program.")
    ] = None,
    language: Annotated[
        str | None,
        typer.Option(
            "--language",
            "-l",
            metavar="|".join(LANGUAGES),
            help="The language. [default: typescript for .ts files, else javascript]",
        ),
    ] = None,
    tools: OwnToolsOption = None,
    timeout_ms: Annotated[
        str | None,
        typer.Option(metavar="MS", help=limit_help("timeout_ms", "Time limit of one leg.")),
    ] = None,
    memory_limit_bytes: Annotated[
        str | None,
        typer.Option(metavar="BYTES", help=limit_help("memory_limit_bytes", "Memory limit.")),
    ] = None,
    max_output_bytes: Annotated[
        str | None,
        typer.Option(metavar="BYTES", help=limit_help("max_output_bytes", "Size of the output.")),
    ] = None,
    max_snapshot_bytes: Annotated[
        str | None,
        typer.Option(metavar="BYTES", help=limit_help("max_snapshot_bytes", "Size of a snapshot.")),
    ] = None,
    max_pending_tool_calls: Annotated[
        str | None,
        typer.Option(
            metavar="N", help=limit_help("max_pending_tool_calls", "Concurrent tool calls.")
        ),
    ] = None,
    is_json: Annotated[
        bool, typer.Option("--json", help="Print the result as one JSON document.")
    ] = False,
    is_not_resumed: Annotated[
        bool, typer.Option("--no-wait", help="Stop when the program first waits or yields.")
    ] = False,
    is_verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Print the time and waits of the program.")
    ] = False,
) -> int:
    """Run a program in the sandbox.

    The program is the body of an async function and can call the tools of --tools. Its output (from
    text, json and console) goes to standard output, followed by the returned value as JSON, unless
    it is null. Everything else goes to standard error.

    Exit status: 0 completed, 1 failed, 2 bad usage, 3 waiting (only with --no-wait), 130 aborted by
    Ctrl-C, 143 aborted by SIGTERM, 141 the reader of the output is gone.
    """
    program = read_program(file, code=code, language=language)
    config = config_from(
        {
            "timeout_ms": timeout_ms,
            "memory_limit_bytes": memory_limit_bytes,
            "max_output_bytes": max_output_bytes,
            "max_snapshot_bytes": max_snapshot_bytes,
            "max_pending_tool_calls": max_pending_tool_calls,
        },
        note=_ignore if is_json else warn,
    )
    return run_program(
        program,
        config,
        tools=tools or (),
        is_json=is_json,
        is_resumed=not is_not_resumed,
        is_verbose=is_verbose,
    )


def _ignore(_note: str) -> None:
    pass


def register(app: typer.Typer) -> None:
    app.command("exec")(exec_command)
