"""Text to standard output and standard error: what a terminal, a pipe or nobody at all gets."""

from __future__ import annotations

import io
import json
import os
import select
import signal
import sys
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final, TextIO

from nacre.cli.exit_status import ExitStatus

if TYPE_CHECKING:
    from collections.abc import Generator
    from types import FrameType

    from nacre.json_types import JsonValue

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
