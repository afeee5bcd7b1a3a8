"""The lines of a chat while nothing runs: edited at a terminal, with a history, or from a pipe."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import anyio

from nacre.cli.output import error_stream
from nacre.config.folders import user_folder

if TYPE_CHECKING:
    from collections.abc import Callable

PROMPT: Final = "> "
_MAX_LINE_BYTES: Final = 4 << 20
_MAX_HISTORY_LINES: Final = 1000
# Readline asks a terminal to mark what is pasted, and takes it back at the end of the line.
_PASTE_AS_USUAL: Final = "\x1b[?2004l\r\n"


class ChatInput:
    """Reads in a thread: a line editor cannot be waited for in any other way."""

    def __init__(self) -> None:
        self.is_terminal = sys.stdin is not None and sys.stdin.isatty()
        self._is_edited = self.is_terminal and sys.stdout is not None and sys.stdout.isatty()
        self._is_reading = False

    def open_history(self) -> None:
        """Have the lines of former chats at hand. Blocks."""
        if self._is_edited:
            # Not part of every Python; importing it is what makes `input` edit lines.
            with suppress(ImportError, OSError):
                import readline

                readline.set_history_length(_MAX_HISTORY_LINES)
                readline.read_history_file(_history_file())

    def save_history(self) -> None:
        """Keep the lines for the next chat, for the user alone. Blocks."""
        if self._is_edited:
            with suppress(ImportError, OSError):
                import readline

                path = _history_file()
                os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
                os.close(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600))
                readline.write_history_file(path)

    async def next_line(self) -> str | None:
        """The next line without its end; None at the end of the input."""
        self._is_reading = True
        line = await _from_thread(self._read)
        self._is_reading = False
        return line

    def close(self) -> None:
        """Leave a line that nobody will read any more."""
        if self._is_reading and self._is_edited:
            with suppress(OSError):
                sys.stdout.write(_PASTE_AS_USUAL)
                sys.stdout.flush()

    def _read(self) -> str | None:
        if self._is_edited:
            try:
                # What is no text in the terminal's encoding becomes a mark.
                return input(PROMPT).encode(errors="replace").decode()
            except EOFError:
                return None
        if self.is_terminal:
            errors = error_stream()
            errors.write(PROMPT)
            errors.flush()
        return _plain_line()


def _plain_line() -> str | None:
    if sys.stdin is None:
        return None
    line = sys.stdin.buffer.readline(_MAX_LINE_BYTES)
    return line.decode(errors="replace").rstrip("\r\n") if line else None


def _history_file() -> str:
    return str(user_folder("state", os.environ) / "chat_history")


async def _from_thread(read: Callable[[], str | None]) -> str | None:
    """What it returns. A thread that is not waited for any more does not keep Python from ending,
    as a thread of anyio would."""
    loop = asyncio.get_running_loop()
    is_read = anyio.Event()
    lines: list[str | None] = []

    def work() -> None:
        try:
            lines.append(read())
        except (OSError, ValueError, UnicodeError):
            # The terminal is gone, or closed by whoever started the process.
            lines.append(None)
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(is_read.set)

    threading.Thread(target=work, name="chat input", daemon=True).start()
    await is_read.wait()
    return lines[0]
