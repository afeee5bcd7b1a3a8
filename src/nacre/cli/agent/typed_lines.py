"""What a person types while a turn runs: messages, or answers to questions."""

from __future__ import annotations

import sys
import termios
from contextlib import contextmanager
from typing import TYPE_CHECKING

import anyio

from nacre.cli.tools.terminal_approver import line_from, line_if_any

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator


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
