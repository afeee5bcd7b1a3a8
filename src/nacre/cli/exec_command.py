"""`exec`: run one program in the sandbox and print what it writes and returns."""

import gc
import logging
from typing import Annotated

import typer

from nacre.cli.limit_options import config_from, limit_help
from nacre.cli.options import OwnToolsOption
from nacre.cli.output import errors_are_on_terminal, warn
from nacre.cli.program_text import read_program
from nacre.config.code_mode import LANGUAGES


def exec_command(
    file: Annotated[
        str | None,
        typer.Argument(
            metavar="FILE",
            help="The program; `-` or none for standard input.",
            show_default=False,
        ),
    ] = None,
    code: Annotated[
        str | None, typer.Option("-e", "--eval", metavar="CODE", help="The program itself.")
    ] = None,
    language: Annotated[
        str | None,
        typer.Option(
            "--language",
            "-l",
            metavar="|".join(LANGUAGES),
            help="By default typescript for .ts files, else javascript.",
        ),
    ] = None,
    tools: OwnToolsOption = None,
    timeout_ms: Annotated[
        str | None,
        typer.Option(metavar="MS", help=limit_help("timeout_ms", "Time of one leg.")),
    ] = None,
    memory_limit_bytes: Annotated[
        str | None,
        typer.Option(metavar="BYTES", help=limit_help("memory_limit_bytes", "Memory.")),
    ] = None,
    max_output_bytes: Annotated[
        str | None,
        typer.Option(metavar="BYTES", help=limit_help("max_output_bytes", "Output; and value.")),
    ] = None,
    max_snapshot_bytes: Annotated[
        str | None,
        typer.Option(metavar="BYTES", help=limit_help("max_snapshot_bytes", "Suspended size.")),
    ] = None,
    max_pending_tool_calls: Annotated[
        str | None,
        typer.Option(metavar="N", help=limit_help("max_pending_tool_calls", "Calls at once.")),
    ] = None,
    is_json: Annotated[
        bool, typer.Option("--json", help="Print the result as one JSON document.")
    ] = False,
    is_not_resumed: Annotated[
        bool, typer.Option("--no-wait", help="Stop where the program first waits or yields.")
    ] = False,
    is_verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Say at the end what the program cost.")
    ] = False,
) -> int:
    """Run a program in the sandbox.

    The program is the body of an async function, with tools of your own if you name some. What it
    writes with text, json or console goes to standard output, followed by the value it returns, as
    JSON, unless that is null. All else goes to standard error.

    Exit status: 0 completed, 1 failed, 2 bad usage, 3 waiting (only with --no-wait), 130 aborted by
    Ctrl-C, 143 aborted by SIGTERM, 141 nobody reads the output any more.
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
    # Slow to import, and no help to somebody who mistyped an option.
    import anyio

    from nacre.cli.cell_reports import JsonReport, TextReport
    from nacre.cli.cell_run import run_cell
    from nacre.cli.tool_modules import load_tools

    logging.getLogger("nacre").addHandler(_WARNINGS)
    is_status_shown = is_verbose or errors_are_on_terminal()
    report = JsonReport() if is_json else TextReport(program, is_status_shown=is_status_shown)

    loaded = load_tools(tools or ())

    async def run() -> int:
        return await run_cell(
            program, config, tools=loaded, report=report, is_resumed=not is_not_resumed
        )

    gc.enable()
    return anyio.run(run)


def _ignore(_note: str) -> None:
    pass


class _WarningsOnly(logging.Handler):
    """Shows what the sandbox warns of; its errors come as the result of the cell."""

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno == logging.WARNING:
            warn(record.getMessage())


_WARNINGS = _WarningsOnly()
