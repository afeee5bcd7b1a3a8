"""Runs the async work of a command: signals, abort, and the forced exit."""

from __future__ import annotations

import gc
import os
import sys
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, TypeVar

import anyio

from nacre.cli.output import STOP_SIGNALS, ExitStatus, warn
from nacre.run_context import AbortController

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, Awaitable, Callable, Generator
    from signal import Signals

    from nacre.run_context import AbortSignal


_Done = TypeVar("_Done")


def run_abortable(
    work: Callable[[AbortSignal], Awaitable[_Done]],
) -> tuple[_Done, ExitStatus | None]:
    """Do the work to its end, and what to exit with if a signal came; raises what it raises."""
    gc.enable()
    return anyio.run(_run_with_abort, work)


async def _run_with_abort(
    work: Callable[[AbortSignal], Awaitable[_Done]],
) -> tuple[_Done, ExitStatus | None]:
    abort = AbortController()
    stopped_by: list[Signals] = []
    outcome: list[_Done] = []
    failure: Exception | None = None

    async def abort_at(signals: AsyncIterable[Signals]) -> None:
        async for number in signals:
            stopped_by.append(number)
            abort.abort(f"aborted by {number.name}")

    with anyio.open_signal_receiver(*STOP_SIGNALS) as signals:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(abort_at, signals)
            try:
                outcome.append(await work(abort.signal))
            except Exception as error:
                # Raised below, as it is and not in a group.
                failure = error
            tasks.cancel_scope.cancel()
    if failure is not None:
        raise failure
    return outcome[0], ExitStatus(128 + stopped_by[0]) if stopped_by else None


class Stops:
    """The signals of one command, and who is to end when one comes."""

    def __init__(self) -> None:
        self.scope = anyio.CancelScope()
        """Cancelled by a signal that nothing else ends at."""
        self._signal: Signals | None = None
        self._stop: Callable[[str], None] | None = None
        self._is_ignoring = False
        self._terminal_state = _terminal_state()

    @property
    def status(self) -> ExitStatus | None:
        """What to exit with, if a signal came."""
        return None if self._signal is None else ExitStatus(128 + self._signal)

    async def watch(self, signals: AsyncIterable[Signals]) -> None:
        async for number in signals:
            if self._is_ignoring:
                continue
            if self._signal is not None:
                self.end_at_once(128 + number)
            self._signal = number
            if self._stop is not None:
                self._stop(f"aborted by {number.name}")
            else:
                self.scope.cancel()

    @contextmanager
    def stopping(self, stop: Callable[[str], None]) -> Generator[None]:
        """Meanwhile the first signal does this; it is told why."""
        self._stop = stop
        try:
            yield
        finally:
            self._stop = None

    @contextmanager
    def ignored(self) -> Generator[None]:
        """Meanwhile signals are for somebody else."""
        self._is_ignoring = True
        try:
            yield
        finally:
            self._is_ignoring = False

    def forget(self) -> None:
        """What the signal was for has ended, and the command goes on."""
        self._signal = None

    def restore_terminal(self) -> None:
        """As it was: a line that somebody was typing leaves it in a mode of its own."""
        if self._terminal_state is None:
            return
        import termios

        with suppress(termios.error, ValueError, OSError):
            termios.tcsetattr(sys.stdin.fileno(), termios.TCSADRAIN, self._terminal_state)

    def end_at_once(self, status: int) -> None:
        """Without a goodbye to anybody: what is stored stays sound, and workers see it."""
        from nacre.mcp_client.process import kill_all_groups
        from nacre.tools import kill_all_commands

        # Servers and commands in groups of their own would outlive us.
        kill_all_groups()
        kill_all_commands()
        self.restore_terminal()
        warn("aborted")
        os._exit(status)


def _terminal_state() -> list[int | list[bytes | int]] | None:
    if sys.stdin is None or not sys.stdin.isatty():
        return None
    import termios

    with suppress(termios.error, ValueError, OSError):
        return termios.tcgetattr(sys.stdin.fileno())
    return None
