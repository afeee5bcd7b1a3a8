"""Command `nacre exec`: runs one program in the sandbox."""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING, Annotated, Final, NamedTuple

import typer

from nacre.cli.options import OwnToolsOption
from nacre.cli.output import (
    ExitStatus,
    UsageError,
    is_stderr_terminal,
    show_sandbox_progress,
    warn,
)
from nacre.config import FIELDS, LANGUAGES, LIMITS, Language, code_mode_config_from
from nacre.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import BinaryIO

    from nacre.config import CodeModeConfig
    from nacre.run_context import AbortSignal


_TYPESCRIPT_ENDINGS: Final = (".ts", ".mts", ".cts", ".tsx")
# Far more than any real program; limits the memory that a wrong file takes.
_MAX_PROGRAM_BYTES: Final = 16 << 20


class ProgramText(NamedTuple):
    """The source of a program, and its name for messages."""

    text: str
    name: str
    language: Language


def read_program(file: str | None, *, code: str | None, language: str | None) -> ProgramText:
    """Read the program from `code`, the file, or standard input. Raises UsageError."""
    if language is not None and language not in LANGUAGES:
        raise UsageError(f'--language is "{language}"; allowed: {" and ".join(LANGUAGES)}')
    if code is not None:
        if file is not None:
            raise UsageError(f"got both a file ({file}) and -e; give one of them")
        text, name = _check_encoding(code), "-e"
    elif file is None or file == "-":
        text, name = (
            _decode(_read_standard_input(is_explicit=file == "-"), "standard input"),
            "stdin",
        )
    else:
        text, name = _decode(_read_file(file), file), file
    if not text.strip():
        raise UsageError(f"the program ({_origin(name)}) is empty; nothing was run")
    return ProgramText(text, name, language or _language_of(name))


def _language_of(name: str) -> Language:
    return "typescript" if name.lower().endswith(_TYPESCRIPT_ENDINGS) else "javascript"


def _origin(name: str) -> str:
    return {"-e": "given with -e", "stdin": "from standard input"}.get(name, name)


def _check_encoding(code: str) -> str:
    try:
        code.encode()
    except UnicodeEncodeError as error:
        # Python turns bytes that it cannot decode into surrogates.
        raise UsageError(
            f"the program given with -e is not UTF-8 (character {error.start + 1}); "
            "write the character as an escape, such as \\u00e9"
        ) from None
    return code


def _read_standard_input(*, is_explicit: bool) -> bytes:
    stream = sys.stdin
    if stream is None or (stream.isatty() and not is_explicit):
        raise UsageError(
            "there is no program to run; give a file, -e CODE, or pipe one to standard input"
        )
    return _read(stream.buffer, "standard input")


def _read_file(file: str) -> bytes:
    try:
        stream = open(file, "rb")  # noqa: SIM115
    except (OSError, ValueError) as error:
        raise _unreadable(file, error) from error
    with stream:
        return _read(stream, file)


def _read(stream: BinaryIO, name: str) -> bytes:
    try:
        content = stream.read(_MAX_PROGRAM_BYTES + 1)
    except OSError as error:
        raise _unreadable(name, error) from error
    if len(content) > _MAX_PROGRAM_BYTES:
        raise UsageError(f"{name} is larger than {_MAX_PROGRAM_BYTES} bytes; is it the right file?")
    return content


def _unreadable(name: str, error: OSError | ValueError) -> UsageError:
    reason = error.strerror if isinstance(error, OSError) else str(error)
    hint = "give the path of a file with a program"
    return UsageError(f"cannot read {name!r}: {(reason or str(error)).lower()}; {hint}")


def _decode(content: bytes, name: str) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise UsageError(
            f"{name} is not UTF-8 text: byte 0x{content[error.start]:02x} in line {line}; "
            "save it as UTF-8"
        ) from None


def limit_help(field: str, meaning: str) -> str:
    limit = LIMITS[field]
    return f"{meaning} [default: {limit.default}; {limit.least} to {limit.most}]"


def config_from(given: Mapping[str, str | None], *, note: Callable[[str], None]) -> CodeModeConfig:
    """The settings for the given options, by field. Calls `note` for clamped values.

    Raises UsageError for values that are not whole numbers.
    """
    numbers = {field: _number(text) for field, text in given.items() if text is not None}
    try:
        config = code_mode_config_from({LIMITS[field].key: n for field, n in numbers.items()})
    except ConfigError as error:
        option = _option(FIELDS[error.path.rpartition(".")[2]])
        raise UsageError(f"{option} {error.problem}") from None
    for field, number in numbers.items():
        used = getattr(config, field)
        if used != number:
            bound = "below the minimum" if used == LIMITS[field].least else "above the maximum"
            note(f"{_option(field)} {given[field]} is {bound}; {used} is used")
    return config


def _number(text: str) -> int | str:
    try:
        return int(text)
    except ValueError:
        return text


def _option(field: str) -> str:
    return f"--{field.replace('_', '-')}"


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
    # Slow to import, and not needed to report bad usage.
    from nacre.cli.exec_cell import JsonReport, TextReport, run_cell
    from nacre.cli.runner import run_abortable
    from nacre.cli.system_config import read_required_protections
    from nacre.cli.tool_modules import load_tools

    logging.getLogger("nacre").addHandler(_WARNINGS)
    is_status_shown = is_verbose or is_stderr_terminal()
    report = JsonReport() if is_json else TextReport(program, is_status_shown=is_status_shown)

    loaded = load_tools(tools or ())
    require = read_required_protections()

    async def run(abort: AbortSignal) -> ExitStatus:
        return await run_cell(
            program,
            config,
            tools=loaded,
            require=require,
            report=report,
            is_resumed=not is_not_resumed,
            abort=abort,
        )

    with show_sandbox_progress():
        status, stopped = run_abortable(run)
    return stopped if stopped is not None and status == ExitStatus.INTERRUPTED else status


def _ignore(_note: str) -> None:
    pass


class _WarningHandler(logging.Handler):
    """Shows warnings of the sandbox. Its errors are in the result of the cell."""

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno == logging.WARNING:
            warn(record.getMessage())


_WARNINGS = _WarningHandler()


def register(app: typer.Typer) -> None:
    app.command("exec")(exec_command)
