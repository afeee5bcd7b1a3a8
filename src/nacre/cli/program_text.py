"""The program that `exec` is to run: from the command line, a file or standard input."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final, NamedTuple

from nacre.cli.output import UsageProblem
from nacre.config.code_mode import LANGUAGES, Language

if TYPE_CHECKING:
    from typing import BinaryIO

_TYPESCRIPT_ENDINGS: Final = (".ts", ".mts", ".cts", ".tsx")
# Far above any real program; keeps a wrong file, or one without an end, from filling the memory.
_MAX_PROGRAM_BYTES: Final = 16 << 20


class ProgramText(NamedTuple):
    """A program as it was written, and what to call it in messages."""

    text: str
    name: str
    language: Language


def read_program(file: str | None, *, code: str | None, language: str | None) -> ProgramText:
    """Exactly one of `file` and `code`, or else standard input; raises UsageProblem."""
    if language is not None and language not in LANGUAGES:
        raise UsageProblem(f'--language is "{language}"; allowed: {" and ".join(LANGUAGES)}')
    if code is not None:
        if file is not None:
            raise UsageProblem(f"got both a file ({file}) and -e; give one of them")
        text, name = _check_encoding(code), "-e"
    elif file is None or file == "-":
        text, name = (
            _decode(_read_standard_input(is_asked_for=file == "-"), "standard input"),
            "stdin",
        )
    else:
        text, name = _decode(_read_file(file), file), file
    if not text.strip():
        raise UsageProblem(f"the program ({_origin(name)}) is empty; nothing was run")
    return ProgramText(text, name, language or _language_of(name))


def _language_of(name: str) -> Language:
    return "typescript" if name.lower().endswith(_TYPESCRIPT_ENDINGS) else "javascript"


def _origin(name: str) -> str:
    return {"-e": "given with -e", "stdin": "from standard input"}.get(name, name)


def _check_encoding(code: str) -> str:
    try:
        code.encode()
    except UnicodeEncodeError as error:
        # Python keeps bytes of an argument that it cannot decode as halves of surrogate pairs.
        raise UsageProblem(
            f"the program given with -e is not UTF-8 (character {error.start + 1}); "
            "write the character as an escape, such as \\u00e9"
        ) from None
    return code


def _read_standard_input(*, is_asked_for: bool) -> bytes:
    stream = sys.stdin
    if stream is None or (stream.isatty() and not is_asked_for):
        raise UsageProblem(
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
        raise UsageProblem(
            f"{name} is larger than {_MAX_PROGRAM_BYTES} bytes; is it the right file?"
        )
    return content


def _unreadable(name: str, error: OSError | ValueError) -> UsageProblem:
    reason = error.strerror if isinstance(error, OSError) else str(error)
    hint = "give the path of a file with a program"
    return UsageProblem(f"cannot read {name!r}: {(reason or str(error)).lower()}; {hint}")


def _decode(content: bytes, name: str) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise UsageProblem(
            f"{name} is not UTF-8 text: byte 0x{content[error.start]:02x} in line {line}; "
            "save it as UTF-8"
        ) from None
