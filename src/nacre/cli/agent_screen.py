"""The terminal output of `run` and `chat`: answers, notes, and a status line.

The status line is the last line of a terminal. Other output replaces it.
"""

from __future__ import annotations

import os
import shutil
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final, Literal

import anyio

from nacre.cli.output import Printer, error_stream, escape_controls, shorten

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
# Shorter waits are not shown.
_MIN_SHOWN_SECONDS: Final = 2


class Screen:
    """Writes lines from several sources without mixing them. All text is safe for a terminal."""

    def __init__(self, *, is_ticking: bool = True) -> None:
        """Without `is_ticking`, the status is drawn once, because the user may be typing."""
        self.printer = Printer()
        self._errors = error_stream()
        # A dumb terminal supports no escape sequences.
        self.is_terminal = self._errors.isatty() and os.environ.get("TERM") != "dumb"
        self.has_colours = self.is_terminal and not os.environ.get("NO_COLOR")
        self._is_ticking = is_ticking
        self._open_line: Literal["", "answer", "thinking"] = ""
        self._status = ""
        self._status_since = 0.0
        self._is_status_drawn = False
        self._is_status_paused = False

    # Text of the model.

    def write_answer(self, text: str) -> None:
        """Write a piece of the answer."""
        if not text:
            return
        if self._open_line == "thinking":
            self._end_line()
        self._clear_status()
        self.printer.write(text)
        self._open_line = "" if text.endswith("\n") else "answer"

    def end_answer(self) -> None:
        if self._open_line == "answer":
            self.printer.write("\n")
            self._open_line = ""

    def write_thinking(self, text: str) -> None:
        """Write a piece of the model's thinking, on a terminal only."""
        if not self.is_terminal or not text:
            return
        if self._open_line == "answer":
            self._end_line()
        self._clear_status()
        self._write(self.apply_style(escape_controls(text), "dim"))
        self._open_line = "" if text.endswith("\n") else "thinking"

    # Notes about the run.

    def write_note(self, text: str, style: Style = "plain") -> None:
        """Write one or more lines. Control characters are escaped on a terminal."""
        safe = escape_controls(text) if self.is_terminal else text
        self.write_lines(self.apply_style(safe, style))

    def write_lines(self, text: str) -> None:
        """Write lines that are already safe for a terminal and may be coloured."""
        self._end_line()
        self._clear_status()
        self._write(f"{text}\n")
        self._draw_status()

    def apply_style(self, text: str, style: Style) -> str:
        code = _CODES[style] if self.has_colours else ""
        return f"\x1b[{code}m{text}\x1b[0m" if code else text

    # The status line.

    def set_status(self, text: str) -> None:
        """Set the status line, which stays until it is replaced."""
        if text != self._status:
            self._status, self._status_since = text, time.monotonic()
            self._draw_status()

    @contextmanager
    def pause_status(self) -> Generator[None]:
        """Show no status line during the block, while the user answers a question."""
        self._end_line()
        self._clear_status()
        self._is_status_paused = True
        try:
            yield
        finally:
            self._is_status_paused = False

    async def tick(self) -> None:
        """Update the elapsed time in the status line. Run this as a task."""
        while self._is_ticking and self.is_terminal:
            await anyio.sleep(_TICK_SECONDS)
            self._draw_status()

    def close(self) -> None:
        """Remove the status line and end an open line."""
        self._end_line()
        self._status = ""
        self._clear_status()

    def _draw_status(self) -> None:
        self._clear_status()
        if not self._status or not self.is_terminal or self._is_status_paused or self._open_line:
            return
        seconds = int(time.monotonic() - self._status_since)
        waited = f" {seconds} s" if self._is_ticking and seconds >= _MIN_SHOWN_SECONDS else ""
        # Half of the width: some characters take two columns, and a wrapped status would stay.
        width = max(10, shutil.get_terminal_size().columns // 2)
        self._write(
            self.apply_style(f"{shorten(self._status, max_characters=width)}{waited}", "dim")
        )
        self._is_status_drawn = True

    def _clear_status(self) -> None:
        if self._is_status_drawn:
            self._write(_CLEARED_LINE)
            self._is_status_drawn = False

    def _end_line(self) -> None:
        """End an open line on the terminal. An answer that goes to a file is left alone."""
        if self._open_line == "thinking" or (self._open_line and self.printer.is_terminal):
            self._write("\n")
            self._open_line = ""

    def _write(self, text: str) -> None:
        with suppress(OSError):
            self._errors.write(text)
            self._errors.flush()
