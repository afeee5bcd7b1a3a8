"""Reads lines from the terminal, and asks whether a tool call is allowed."""

from __future__ import annotations

import os
import select
import sys
import termios
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import anyio

from nacre.cli.output import is_stderr_terminal, say, shorten
from nacre.display import UnshowableInputError, format_input
from nacre.tools import AllowOnce, Deny

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator

    from nacre.tools import ApprovalInfo, ApprovalRequest


_YES: Final = ("y", "yes")
_MAX_LINE_BYTES: Final = 4096


async def ask_at_terminal(request: ApprovalRequest) -> ApprovalInfo:
    """Ask whether to allow the call. Denies it without a terminal, or if the input is too large."""
    if not is_interactive():
        return Deny(
            "there is no terminal to ask for an approval: standard input or standard error is "
            "redirected; call the tool from a terminal"
        )
    try:
        shown = format_input(request.input)
    except UnshowableInputError as error:
        return Deny(str(error))
    terminal = sys.stdin.fileno()
    # Discard what was typed before the question.
    termios.tcflush(terminal, termios.TCIFLUSH)
    say(f"{shorten(request.tool_id)} needs your approval: {shorten(request.reason)}")
    say(f"input: {shown}")
    say("make this call? [y/N]")
    answer = await read_line(terminal)
    return AllowOnce() if answer.strip().lower() in _YES else Deny("you said no")


def is_interactive() -> bool:
    """Whether standard input and standard error are a terminal."""
    return sys.stdin is not None and sys.stdin.isatty() and is_stderr_terminal()


async def read_line(terminal: int) -> str:
    """Read the next line; an empty text at the end of the input."""
    while True:
        # Ctrl-C could not stop a thread that reads.
        await anyio.wait_readable(terminal)
        line = read_ready_line(terminal)
        if line is not None:
            return line


def read_ready_line(terminal: int) -> str | None:
    """Read a line that is ready, else None; an empty text at the end of the input.

    Checks and reads in one step. If the line were discarded in between, a reader would take the
    answer to the next question.
    """
    if not select.select([terminal], [], [], 0)[0]:
        return None
    try:
        return os.read(terminal, _MAX_LINE_BYTES).decode(errors="replace")
    except OSError:
        # The terminal is closed.
        return ""


class TypedLines:
    """The terminal at standard input. One question at a time, or else `listen`, reads from it."""

    def __init__(self) -> None:
        self._terminal = sys.stdin.fileno()
        self._reading = anyio.Lock()
        self._listening = anyio.CancelScope()
        self._is_free = anyio.Event()
        self._is_free.set()

    async def listen(self, on_line: Callable[[str], Awaitable[None]]) -> None:
        """Call `on_line` with every line that answers no question. Run this as a task."""
        while True:
            await self._is_free.wait()
            with anyio.CancelScope() as self._listening:
                async with self._reading:
                    await anyio.wait_readable(self._terminal)
            # Check again: a question may have come just before the line.
            line = read_ready_line(self._terminal) if self._is_free.is_set() else None
            if line == "":
                # The end of the input or the terminal is closed: this would repeat.
                return
            if line is not None:
                await on_line(line.removesuffix("\n"))

    @contextmanager
    def lend(self) -> Generator[None]:
        """Give the terminal to a question or an editor; `listen` pauses during the block."""
        self._is_free = anyio.Event()
        self._listening.cancel()
        # Discard what was typed before the question.
        termios.tcflush(self._terminal, termios.TCIFLUSH)
        try:
            yield
        finally:
            self._is_free.set()

    async def ask(self) -> str | None:
        """Read the next line without its newline; None at the end of the input."""
        # `listen` is cancelled, but may not have stopped yet.
        async with self._reading:
            line = await read_line(self._terminal)
        return line.removesuffix("\n") if line else None
