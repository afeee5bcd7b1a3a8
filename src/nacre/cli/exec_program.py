"""Reads the program of `nacre exec` and runs it. Imports no option parser."""

from __future__ import annotations

import logging
import sys
from contextlib import closing
from typing import TYPE_CHECKING, Final, NamedTuple

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
    from collections.abc import Callable, Mapping, Sequence
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


def run_program(
    program: ProgramText,
    config: CodeModeConfig,
    *,
    tools: Sequence[str] = (),
    is_json: bool = False,
    is_resumed: bool = True,
    is_verbose: bool = False,
) -> int:
    """Run the program with the tools of these names, and print its output and its result.

    Returns the exit status. Raises UsageError.
    """
    # Slow to import, and not needed to report bad usage.
    from nacre.sandbox import Launcher

    with closing(Launcher("cell", None)) as launcher:
        # The worker starts while this process imports the rest.
        launcher.start_ahead()
        from nacre.cli.exec_cell import JsonReport, TextReport, run_cell
        from nacre.cli.runner import run_abortable
        from nacre.cli.system_config import read_required_protections
        from nacre.cli.tool_modules import load_tools

        logging.getLogger("nacre").addHandler(_WARNINGS)
        is_status_shown = is_verbose or is_stderr_terminal()
        report = JsonReport() if is_json else TextReport(program, is_status_shown=is_status_shown)
        loaded = load_tools(tools)
        require = read_required_protections()

        async def run(abort: AbortSignal) -> ExitStatus:
            return await run_cell(
                program,
                config,
                tools=loaded,
                require=require,
                launcher=launcher,
                report=report,
                is_resumed=is_resumed,
                abort=abort,
            )

        with show_sandbox_progress():
            status, stopped = run_abortable(run)
    return stopped if stopped is not None and status == ExitStatus.INTERRUPTED else status


def run_plain_command(arguments: Sequence[str]) -> int | None:
    """Run `exec -e CODE`, `exec FILE` and `exec`, which need no option parser: it takes a sixth of
    the time of a small program. None for all other commands and options."""
    match arguments:
        case ["exec"]:
            file, code = None, None
        case ["exec", "-e" | "--eval", code]:
            file = None
        case ["exec", file] if not file.startswith("-") or file == "-":
            code = None
        case _:
            return None
    try:
        program = read_program(file, code=code, language=None)
        status = run_program(program, config_from({}, note=warn))
    except UsageError as problem:
        warn(str(problem))
        return ExitStatus.BAD_USAGE
    if status in (ExitStatus.INTERRUPTED, ExitStatus.TERMINATED):
        warn("aborted")
    return status


class _WarningHandler(logging.Handler):
    """Shows warnings of the sandbox. Its errors are in the result of the cell."""

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno == logging.WARNING:
            warn(record.getMessage())


_WARNINGS = _WarningHandler()
