"""Output of commands: exit statuses, standard output, messages, tables, trees and amounts."""

from __future__ import annotations

import io
import json
import logging
import os
import select
import signal
import sys
import time
from contextlib import contextmanager, suppress
from dataclasses import field
from enum import IntEnum
from typing import TYPE_CHECKING, Final, Literal, TextIO

from nacre.lazy_dataclasses import dataclass
from nacre.stop_signals import stop_signals

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence
    from types import FrameType

    from nacre.json_types import JsonValue


class ExitStatus(IntEnum):
    """Exit statuses of all commands. Those above 128 are what a shell reports for a signal."""

    COMPLETED = 0
    FAILED = 1
    BAD_USAGE = 2
    WAITING = 3
    HUNG_UP = 129
    INTERRUPTED = 130
    READER_GONE = 141
    TERMINATED = 143


class UsageError(Exception):
    """Invalid arguments or configuration. The message names the value and the fix."""


# Rich takes a second to colour a megabyte.
_MAX_STYLED_CHARACTERS: Final = 100_000

# Control characters move the cursor or change the terminal; the output is untrusted.
_CONTROLS: Final = {
    code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) not in "\t\n"
}
# Characters that change the text direction can make one name look like another.
_DIRECTIONS: Final = {
    code: f"\\u{code:04x}" for code in (*range(0x202A, 0x202F), *range(0x2066, 0x206A))
}
_ESCAPES: Final = _CONTROLS | _DIRECTIONS


class _Interrupted(BaseException):
    """A signal interrupted a write that is blocked."""

    def __init__(self, signal_number: int) -> None:
        super().__init__(signal_number)
        self.status = ExitStatus(128 + signal_number)


class Printer:
    """Standard output. A failed write sets `problem` instead of raising an error."""

    def __init__(self) -> None:
        self._stream = _open_stream(sys.stdout)
        self.is_terminal = self._stream.isatty()
        self.problem: ExitStatus | None = None

    def write(self, text: str) -> None:
        """Write the text immediately. On a terminal, control characters are escaped."""
        if self.problem is None:
            self._write(escape_controls(text) if self.is_terminal else text)

    def write_json(self, value: JsonValue, *, is_indented: bool) -> None:
        """Write one JSON document and a newline."""
        text = json.dumps(
            value,
            # Otherwise the stream would insert escapes that are not valid JSON.
            ensure_ascii=not (self._stream.encoding or "utf-8").lower().startswith("utf"),
            indent=2 if is_indented else None,
            separators=None if is_indented else (",", ":"),
        )
        if not self.is_terminal:
            self.write(f"{text}\n")
        elif self.problem is None:
            self._write(f"{_colour_json(escape_json_controls(text), self._stream)}\n")

    def _write(self, text: str) -> None:
        try:
            with _let_signals_interrupt(self._stream):
                self._stream.write(text)
                self._stream.flush()
        except _Interrupted as interrupted:
            self._give_up(interrupted.status)
        except BrokenPipeError:
            self._give_up(ExitStatus.READER_GONE)
        except OSError as error:
            self._give_up(ExitStatus.FAILED)
            warn(f"cannot write to standard output: {error.strerror or error}")

    def _give_up(self, status: ExitStatus) -> None:
        self.problem = status
        # Discard the buffer: Python would write it at exit, and fail or block again.
        with suppress(OSError, ValueError):
            devnull = os.open(os.devnull, os.O_WRONLY)
            os.dup2(devnull, self._stream.fileno())
            os.close(devnull)


def say(text: str) -> None:
    """Write a line to standard error. Errors are ignored."""
    stream = _open_stream(sys.stderr)
    with suppress(OSError):
        stream.write(f"{escape_controls(text) if stream.isatty() else text}\n")
        stream.flush()


def warn(problem: str) -> None:
    """Write a message of `nacre` itself to standard error."""
    say(f"nacre: {problem}")


def error_stream() -> TextIO:
    """Standard error, for text that is not whole lines."""
    return _open_stream(sys.stderr)


def is_stderr_terminal() -> bool:
    return _open_stream(sys.stderr).isatty()


@contextmanager
def show_sandbox_progress(show: Callable[[str], None] = warn) -> Generator[None]:
    """On a terminal, show what takes the sandbox some seconds, such as a first compilation."""
    if not is_stderr_terminal():
        yield
        return
    logger, handler = logging.getLogger("nacre.sandbox"), _ProgressHandler(show)
    level = logger.level
    logger.setLevel(logging.INFO)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


class _ProgressHandler(logging.Handler):
    def __init__(self, show: Callable[[str], None]) -> None:
        super().__init__()
        self._show = show

    def emit(self, record: logging.LogRecord) -> None:
        # Other handlers show warnings.
        if record.levelno == logging.INFO:
            self._show(record.getMessage())


def escape_controls(text: str) -> str:
    """Escape control characters, except newlines and tabs."""
    return text.replace("\r\n", "\n").translate(_ESCAPES)


def escape_json_controls(text: str) -> str:
    """Escape control characters in a JSON document, which stays valid JSON."""
    # JSON itself escapes the others.
    return text.translate({code: f"\\u{code:04x}" for code in range(0x7F, 0xA0)} | _DIRECTIONS)


def _open_stream(stream: TextIO | None) -> TextIO:
    """The stream, or a substitute if it was closed when the process started."""
    if stream is None:
        return io.StringIO()
    if (reconfigure := getattr(stream, "reconfigure", None)) is not None:
        # Characters that the encoding lacks are escaped.
        reconfigure(errors="backslashreplace")
    return stream


def _colour_json(text: str, stream: TextIO) -> str:
    if os.environ.get("NO_COLOR") or len(text) > _MAX_STYLED_CHARACTERS:
        return text
    from rich.console import Console
    from rich.highlighter import JSONHighlighter

    console = Console(file=stream, highlight=False, soft_wrap=True)
    with console.capture() as capture:
        console.print(JSONHighlighter()(text), end="")
    return capture.get()


@contextmanager
def _let_signals_interrupt(stream: TextIO) -> Generator[None]:
    """Let a stop signal interrupt a write that blocks, which Python would otherwise retry.

    While the stream accepts text, a signal goes to the usual handler: the reader may have sent it
    because of the line being written, and still reads the rest.
    """
    before = {number: signal.getsignal(number) for number in stop_signals()}

    def stop(number: int, frame: FrameType | None) -> None:
        handler = before[signal.Signals(number)]
        if not callable(handler) or not _accepts_text(stream):
            raise _Interrupted(number)
        handler(number, frame)

    for number in before:
        signal.signal(number, stop)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _accepts_text(stream: TextIO) -> bool:
    try:
        descriptor = stream.fileno()
    except OSError:
        # A stream in memory.
        return True
    poll = select.poll()
    poll.register(descriptor, select.POLLOUT)
    return bool(poll.poll(0))


def duration_text(milliseconds: float) -> str:
    """Format a duration, such as `3.2 ms`, `1.5 s`, `2 min 5 s`."""
    if milliseconds < 10:
        return f"{milliseconds:.1f} ms"
    if milliseconds < 1000:
        return f"{milliseconds:.0f} ms"
    seconds = milliseconds / 1000
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def size_text(size_bytes: float) -> str:
    """Format a size, such as `120 bytes`, `1.5 kB`, `3.0 MB`."""
    if size_bytes < 1000:
        return f"{size_bytes:.0f} bytes"
    size = size_bytes / 1000
    for unit in ("kB", "MB"):
        if size < 1000:
            return f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} GB"


def time_text(seconds: float) -> str:
    """Format a time in the local time zone."""
    try:
        return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))
    except (OverflowError, ValueError, OSError):
        # The number is from a database and may be out of range.
        return f"{seconds:.0f} s after 1970"


def _no_branches() -> list[Branch]:
    return []


@dataclass(kw_only=True, slots=True)
class Branch:
    """A line of a tree, and the lines below it."""

    text: str
    branches: list[Branch] = field(default_factory=_no_branches)


def tree_lines(branches: list[Branch], indent: str = "") -> Iterator[str]:
    """Draw the branches as a tree."""
    for branch in branches:
        is_last = branch is branches[-1]
        yield f"{indent}{'└' if is_last else '├'} {branch.text}"
        yield from tree_lines(branch.branches, f"{indent}{' ' if is_last else '│'} ")


Align = Literal["left", "right"]

MAX_CELL_CHARACTERS: Final = 300

# Wider than any row, so that lines are not wrapped for programs that read them.
_WIDTH_WITHOUT_TERMINAL: Final = 10_000
_MIN_COLUMN_WIDTH: Final = 12


def write_table(
    printer: Printer,
    headings: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    right: Sequence[str] = (),
    max_characters: int = MAX_CELL_CHARACTERS,
) -> None:
    """Print the rows under their headings. Columns named in `right` are aligned right.

    A cell has at most `max_characters`.
    """
    if not rows:
        return
    # Slow to import, and not needed for JSON.
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    # An id that is wrapped cannot be copied. The table may then be wider than the terminal.
    id_column = next(index for index, heading in enumerate(headings) if heading not in right)
    id_width = max(len(shorten(row[id_column], max_characters=max_characters)) for row in rows)
    for index, heading in enumerate(headings):
        align: Align = "right" if heading in right else "left"
        table.add_column(
            heading,
            justify=align,
            overflow="fold",
            no_wrap=align == "right" or index == id_column,
            min_width=id_width if index == id_column else None,
        )
    for row in rows:
        # As text, not as markup: it comes from servers.
        table.add_row(*(Text(shorten(cell, max_characters=max_characters)) for cell in row))
    page = io.StringIO()
    width = _WIDTH_WITHOUT_TERMINAL
    if printer.is_terminal:
        least = id_width + _MIN_COLUMN_WIDTH * (len(headings) - 1)
        width = max(Console(file=page).width, least)
    Console(file=page, color_system=None, width=width).print(table)
    printer.write("".join(f"{line.rstrip()}\n" for line in page.getvalue().splitlines()))


def shorten(text: str, *, max_characters: int = MAX_CELL_CHARACTERS) -> str:
    """Shorten the text to one line, with control characters escaped."""
    line = escape_controls(" ".join(text[: 4 * max_characters].split()))
    return line if len(line) <= max_characters else f"{line[: max_characters - 1]}…"


def count_text(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
