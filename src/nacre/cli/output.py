"""Output for people and programs: exit statuses, the printer, tables, trees, amounts."""

from __future__ import annotations

import io
import json
import os
import select
import signal
import sys
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, Final, Literal, TextIO

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence
    from types import FrameType

    from nacre.json_types import JsonValue


class ExitStatus(IntEnum):
    """The exit statuses of every command; above 128 they are those a shell gives for a signal."""

    COMPLETED = 0
    FAILED = 1
    BAD_USAGE = 2
    WAITING = 3
    INTERRUPTED = 130
    READER_GONE = 141
    TERMINATED = 143


class UsageProblem(Exception):
    """The command cannot start as it was given; the message says which value and what to do."""


STOP_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)

# Rich takes a second per megabyte to colour it.
_MAX_STYLED_CHARACTERS: Final = 100_000

# What moves the cursor, sets the title or fills the clipboard; a program's output is hostile.
_CONTROLS: Final = {
    code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) not in "\t\n"
}
# What turns the order of the letters around: a name could pass for another.
_DIRECTIONS: Final = {
    code: f"\\u{code:04x}" for code in (*range(0x202A, 0x202F), *range(0x2066, 0x206A))
}
_SHOWN_AS_ESCAPES: Final = _CONTROLS | _DIRECTIONS


class _Interrupted(BaseException):
    """A signal arrived during a write that may never end."""

    def __init__(self, signal_number: int) -> None:
        super().__init__(signal_number)
        self.status = ExitStatus(128 + signal_number)


class Printer:
    """Standard output. A write that is no use any more is noted in `problem`, never raised."""

    def __init__(self) -> None:
        self._stream = _usable(sys.stdout)
        self.is_terminal = self._stream.isatty()
        self.problem: ExitStatus | None = None

    def write(self, text: str) -> None:
        """Write at once, whole lines or not; on a terminal, control characters become visible."""
        if self.problem is None:
            self._write(visible(text) if self.is_terminal else text)

    def write_json(self, value: JsonValue, *, is_indented: bool) -> None:
        """Write one JSON document and end the line."""
        text = json.dumps(
            value,
            # An escape that the stream puts in for what its encoding lacks would not be JSON.
            ensure_ascii=not (self._stream.encoding or "utf-8").lower().startswith("utf"),
            indent=2 if is_indented else None,
            separators=None if is_indented else (",", ":"),
        )
        if not self.is_terminal:
            self.write(f"{text}\n")
        elif self.problem is None:
            self._write(f"{_styled_json(visible_json(text), self._stream)}\n")

    def _write(self, text: str) -> None:
        try:
            with _breakable_by_signals(self._stream):
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
        # What is still buffered would be written, and fail or hang again, when Python ends.
        with suppress(OSError, ValueError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self._stream.fileno())
            os.close(nowhere)


def say(text: str) -> None:
    """Write a line to standard error, for people; it does not matter if nobody reads it."""
    stream = _usable(sys.stderr)
    with suppress(OSError):
        stream.write(f"{visible(text) if stream.isatty() else text}\n")
        stream.flush()


def warn(problem: str) -> None:
    """Say something that is not the program's but the command's own."""
    say(f"nacre: {problem}")


def error_stream() -> TextIO:
    """Standard error, for those who write more than lines."""
    return _usable(sys.stderr)


def errors_are_on_terminal() -> bool:
    return _usable(sys.stderr).isatty()


def visible(text: str) -> str:
    """The text with control characters shown as escapes, all but the ends of lines and tabs."""
    return text.replace("\r\n", "\n").translate(_SHOWN_AS_ESCAPES)


def visible_json(text: str) -> str:
    """The same for a JSON document, which has to stay one."""
    # JSON escapes control characters by itself, but for those from 0x7f to 0x9f.
    return text.translate({code: f"\\u{code:04x}" for code in range(0x7F, 0xA0)} | _DIRECTIONS)


def _usable(stream: TextIO | None) -> TextIO:
    """Python has None for a stream that was closed by whoever started the process."""
    if stream is None:
        return io.StringIO()
    if (reconfigure := getattr(stream, "reconfigure", None)) is not None:
        # Whatever the terminal's encoding lacks is shown as an escape.
        reconfigure(errors="backslashreplace")
    return stream


def _styled_json(text: str, stream: TextIO) -> str:
    if os.environ.get("NO_COLOR") or len(text) > _MAX_STYLED_CHARACTERS:
        return text
    from rich.console import Console
    from rich.highlighter import JSONHighlighter

    console = Console(file=stream, highlight=False, soft_wrap=True)
    with console.capture() as capture:
        console.print(JSONHighlighter()(text), end="")
    return capture.get()


@contextmanager
def _breakable_by_signals(stream: TextIO) -> Generator[None]:
    """Let a stop signal break off a write that hangs, which Python would otherwise take up again.

    A signal that comes while the stream still takes text is left to whoever waits for signals: the
    reader may have sent it because of the very line that is being written, and wants the rest.
    """
    before = {number: signal.getsignal(number) for number in STOP_SIGNALS}

    def stop(number: int, frame: FrameType | None) -> None:
        handler = before[signal.Signals(number)]
        if not callable(handler) or not _takes_text(stream):
            raise _Interrupted(number)
        handler(number, frame)

    for number in STOP_SIGNALS:
        signal.signal(number, stop)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _takes_text(stream: TextIO) -> bool:
    try:
        descriptor = stream.fileno()
    except OSError:
        # In memory.
        return True
    poll = select.poll()
    poll.register(descriptor, select.POLLOUT)
    return bool(poll.poll(0))


def duration_text(milliseconds: float) -> str:
    """Such as `3.2 ms`, `1.5 s`, `2 min 5 s`."""
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
    """Such as `120 bytes`, `1.5 kB`, `3.0 MB`."""
    if size_bytes < 1000:
        return f"{size_bytes:.0f} bytes"
    size = size_bytes / 1000
    for unit in ("kB", "MB"):
        if size < 1000:
            return f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} GB"


def time_text(seconds: float) -> str:
    """A moment in the time zone of the machine."""
    try:
        return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))
    except (OverflowError, ValueError, OSError):
        # Out of a database: no number that a calendar has to know.
        return f"{seconds:.0f} s after 1970"


def _no_branches() -> list[Branch]:
    return []


@dataclass(kw_only=True, slots=True)
class Branch:
    """A line, and what belongs to it."""

    text: str
    branches: list[Branch] = field(default_factory=_no_branches)


def tree_lines(branches: list[Branch], indent: str = "") -> Iterator[str]:
    """The lines of all of them, each under what it belongs to."""
    for branch in branches:
        is_last = branch is branches[-1]
        yield f"{indent}{'└' if is_last else '├'} {branch.text}"
        yield from tree_lines(branch.branches, f"{indent}{' ' if is_last else '│'} ")


Align = Literal["left", "right"]

MAX_CELL_CHARACTERS: Final = 300

# Wider than any row of cells: nothing is wrapped for a program that reads lines.
_WIDTH_ELSEWHERE: Final = 10_000


def write_table(
    printer: Printer,
    headings: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    right: Sequence[str] = (),
    most_characters: int = MAX_CELL_CHARACTERS,
) -> None:
    """Print the rows under their headings; the columns named in `right` hold numbers.

    A cell has `most_characters` at most.
    """
    if not rows:
        return
    # Slow to import, and only people need it.
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for heading in headings:
        align: Align = "right" if heading in right else "left"
        table.add_column(heading, justify=align, overflow="fold", no_wrap=align == "right")
    for row in rows:
        # As text, not as markup: what servers say of themselves is theirs.
        table.add_row(*(Text(cell_text(cell, most_characters=most_characters)) for cell in row))
    page = io.StringIO()
    width = None if printer.is_terminal else _WIDTH_ELSEWHERE
    Console(file=page, color_system=None, width=width).print(table)
    printer.write("".join(f"{line.rstrip()}\n" for line in page.getvalue().splitlines()))


def cell_text(text: str, *, most_characters: int = MAX_CELL_CHARACTERS) -> str:
    """The text on one line, with nothing in it that a terminal would obey, and shortened."""
    line = visible(" ".join(text[: 4 * most_characters].split()))
    return line if len(line) <= most_characters else f"{line[: most_characters - 1]}…"


def count_text(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
