"""The terminal of `run` and `chat`: answers, notes, and a status on the last line.

On a terminal the last line says what is waited for, and goes when something else is written.
"""

from __future__ import annotations

import os
import shutil
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final, Literal

import anyio

from nacre.cli.output import Printer, cell_text, error_stream, visible

if TYPE_CHECKING:
    from collections.abc import Generator


Style = Literal["plain", "dim", "strong", "good", "bad", "warning"]

_CODES: Final[dict[Style, str]] = {
    "plain": "",
    "dim": "2",
    "strong": "1",
    "good": "32",
    "bad": "31",
    "warning": "33",
}
_CLEARED_LINE: Final = "\r\x1b[2K"
_TICK_SECONDS: Final = 1.0
# Before that, it is not worth telling how long it takes.
_MIN_SHOWN_SECONDS: Final = 2


class Screen:
    """Keeps lines of several sources whole. Nothing that it is given can steer a terminal."""

    def __init__(self, *, is_ticking: bool = True) -> None:
        """Without `is_ticking` the status is written once, for somebody who may be typing."""
        self.printer = Printer()
        self._errors = error_stream()
        # A dumb terminal understands none of it.
        self.is_terminal = self._errors.isatty() and os.environ.get("TERM") != "dumb"
        self.has_colours = self.is_terminal and not os.environ.get("NO_COLOR")
        self._is_ticking = is_ticking
        self._open_line: Literal["", "answer", "thought"] = ""
        self._status = ""
        self._status_since = 0.0
        self._is_status_drawn = False
        self._is_held = False

    # What the model says.

    def answer(self, text: str) -> None:
        """A piece of the answer, as it comes."""
        if not text:
            return
        if self._open_line == "thought":
            self._end_line()
        self._clear_status()
        self.printer.write(text)
        self._open_line = "" if text.endswith("\n") else "answer"

    def end_answer(self) -> None:
        if self._open_line == "answer":
            self.printer.write("\n")
            self._open_line = ""

    def thought(self, text: str) -> None:
        """A piece of what the model thinks; only people get to see it."""
        if not self.is_terminal or not text:
            return
        if self._open_line == "answer":
            self._end_line()
        self._clear_status()
        self._write(self.styled(visible(text), "dim"))
        self._open_line = "" if text.endswith("\n") else "thought"

    # What is said about it.

    def note(self, text: str, style: Style = "plain") -> None:
        """One line or several; control characters in it become visible."""
        self.write_lines(self.styled(visible(text) if self.is_terminal else text, style))

    def write_lines(self, text: str) -> None:
        """Lines that are safe for a terminal already, with colours or not."""
        self._end_line()
        self._clear_status()
        self._write(f"{text}\n")
        self._draw_status()

    def styled(self, text: str, style: Style) -> str:
        code = _CODES[style] if self.has_colours else ""
        return f"\x1b[{code}m{text}\x1b[0m" if code else text

    # What is waited for.

    def status(self, text: str) -> None:
        """Say on the last line what is waited for; nothing takes it away."""
        if text != self._status:
            self._status, self._status_since = text, time.monotonic()
            self._draw_status()

    @contextmanager
    def held(self) -> Generator[None]:
        """Without a status meanwhile: somebody is asked something."""
        self._end_line()
        self._clear_status()
        self._is_held = True
        try:
            yield
        finally:
            self._is_held = False

    async def tick(self) -> None:
        """Say how long it has taken so far, again and again; to be run as a task."""
        while self._is_ticking and self.is_terminal:
            await anyio.sleep(_TICK_SECONDS)
            self._draw_status()

    def close(self) -> None:
        """Leave the cursor at the beginning of an empty line."""
        self._end_line()
        self._status = ""
        self._clear_status()

    def _draw_status(self) -> None:
        self._clear_status()
        if not self._status or not self.is_terminal or self._is_held or self._open_line:
            return
        seconds = int(time.monotonic() - self._status_since)
        waited = f" {seconds} s" if self._is_ticking and seconds >= _MIN_SHOWN_SECONDS else ""
        # Half of the width: some characters take two columns, and a second line would stay.
        most = max(10, shutil.get_terminal_size().columns // 2)
        self._write(self.styled(f"{cell_text(self._status, most_characters=most)}{waited}", "dim"))
        self._is_status_drawn = True

    def _clear_status(self) -> None:
        if self._is_status_drawn:
            self._write(_CLEARED_LINE)
            self._is_status_drawn = False

    def _end_line(self) -> None:
        """Of an answer in a file the line goes on, whatever is said on the terminal."""
        if self._open_line == "thought" or (self._open_line and self.printer.is_terminal):
            self._write("\n")
            self._open_line = ""

    def _write(self, text: str) -> None:
        with suppress(OSError):
            self._errors.write(text)
            self._errors.flush()
