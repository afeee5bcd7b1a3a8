"""Lines that a person types at the terminal, and a yes or no about a tool call."""

from __future__ import annotations

import os
import select
import sys
import termios
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import anyio

from nacre.cli.output import cell_text, errors_are_on_terminal, say
from nacre.display import UnshowableInputError, format_input
from nacre.tools import AllowOnce, Deny

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator

    from nacre.tools import ApprovalInfo, ApprovalRequest


_YES: Final = ("y", "yes")
_MAX_LINE_BYTES: Final = 4096


async def ask_at_terminal(request: ApprovalRequest) -> ApprovalInfo:
    """Yes, or no: also where there is no terminal, or the input cannot be shown in full."""
    if not is_person_there():
        return Deny(
            "standard input and standard error are no terminal, so that nobody can be asked; "
            "call it from a terminal"
        )
    try:
        shown = format_input(request.input)
    except UnshowableInputError as error:
        return Deny(str(error))
    terminal = sys.stdin.fileno()
    # What was typed before the question is no answer to it.
    termios.tcflush(terminal, termios.TCIFLUSH)
    say(f"{cell_text(request.tool_id)} needs your approval: {cell_text(request.reason)}")
    say(f"input: {shown}")
    say("make this call? [y/N]")
    answer = await line_from(terminal)
    return AllowOnce() if answer.strip().lower() in _YES else Deny("you said no")


def is_person_there() -> bool:
    """Whether questions can be read and answered."""
    return sys.stdin is not None and sys.stdin.isatty() and errors_are_on_terminal()


async def line_from(terminal: int) -> str:
    """The next line; nothing at the end of the input."""
    while True:
        # A thread that reads could not be stopped by Ctrl-C.
        await anyio.wait_readable(terminal)
        line = line_if_any(terminal)
        if line is not None:
            return line


def line_if_any(terminal: int) -> str | None:
    """A line that was typed already, else None; nothing at the end of the input.

    At once, so that nothing happens between the look and the reading: a line that is thrown away
    meanwhile would leave a reader who takes the answer to the next question.
    """
    if not select.select([terminal], [], [], 0)[0]:
        return None
    try:
        return os.read(terminal, _MAX_LINE_BYTES).decode(errors="replace")
    except OSError:
        # Nobody is at the other end of the terminal any more.
        return ""


class TypedLines:
    """The terminal that standard input is. It has one reader at a time: the question that is open,
    or else `listen`."""

    def __init__(self) -> None:
        self._terminal = sys.stdin.fileno()
        self._reading = anyio.Lock()
        self._listening = anyio.CancelScope()
        self._is_free = anyio.Event()
        self._is_free.set()

    async def listen(self, on_line: Callable[[str], Awaitable[None]]) -> None:
        """Have every line told, but for those that somebody asks for; to be run as a task."""
        while True:
            await self._is_free.wait()
            with anyio.CancelScope() as self._listening:
                async with self._reading:
                    await anyio.wait_readable(self._terminal)
            # Looked at again: a question may have come just before the line.
            line = line_if_any(self._terminal) if self._is_free.is_set() else None
            if line == "":
                # The end of the input, or of the terminal: it would come again and again.
                return
            if line is not None:
                await on_line(line.removesuffix("\n"))

    @contextmanager
    def lent(self) -> Generator[None]:
        """Meanwhile `listen` leaves the terminal alone, for a question or an editor."""
        self._is_free = anyio.Event()
        self._listening.cancel()
        # What was typed before a question is no answer to it.
        termios.tcflush(self._terminal, termios.TCIFLUSH)
        try:
            yield
        finally:
            self._is_free.set()

    async def ask(self) -> str | None:
        """The next line without its end; None at the end of the input."""
        # `listen` was told to stop, but has not always done so yet.
        async with self._reading:
            line = await line_from(self._terminal)
        return line.removesuffix("\n") if line else None
