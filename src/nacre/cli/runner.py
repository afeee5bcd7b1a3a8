"""Runs the async work of a command: the event loop, stop signals, and the forced exit."""

from __future__ import annotations

import gc
import os
import sys
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import TYPE_CHECKING, TypeVar

import anyio

from nacre.cli.output import ExitStatus, warn
from nacre.run_context import AbortController
from nacre.stop_signals import forces_exit, stop_signals

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Generator
    from signal import Signals

    from anyio.abc import TaskGroup

    from nacre.run_context import AbortSignal


_Result = TypeVar("_Result")


def run_async(work: Callable[[], Awaitable[_Result]]) -> _Result:
    """Run the work in an event loop, with the garbage collection that `main` disables.

    It does not search what is imported by now.
    """
    gc.freeze()
    gc.enable()
    return anyio.run(work)


def run_abortable(
    work: Callable[[AbortSignal], Awaitable[_Result]],
) -> tuple[_Result, ExitStatus | None]:
    """Run the work and abort it at a stop signal.

    Returns the result and, after a signal, the exit status for it. Raises what the work raises.
    """
    return run_async(lambda: _run_with_abort(work))


async def _run_with_abort(
    work: Callable[[AbortSignal], Awaitable[_Result]],
) -> tuple[_Result, ExitStatus | None]:
    abort = AbortController()
    received: list[Signals] = []
    results: list[_Result] = []
    failure: Exception | None = None

    async def abort_at(signals: AsyncIterable[Signals]) -> None:
        async for number in signals:
            received.append(number)
            abort.abort(f"aborted by {number.name}")

    with anyio.open_signal_receiver(*stop_signals()) as signals:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(abort_at, signals)
            try:
                results.append(await work(abort.signal))
            except Exception as error:
                # Raised below: the task group would wrap it in an exception group.
                failure = error
            tasks.cancel_scope.cancel()
    if failure is not None:
        raise failure
    return results[0], ExitStatus(128 + received[0]) if received else None


class StopSignals:
    """Handles the stop signals of a command that runs agents.

    The first signal stops the current turn, or cancels the command if no turn runs. The second one
    ends the process.
    """

    def __init__(self) -> None:
        self.scope = anyio.CancelScope()
        """Cancelled by a signal that comes while no turn runs."""
        self._signal: Signals | None = None
        self._stop: Callable[[str], None] | None = None
        self._is_ignoring = False
        self._terminal_state = _terminal_state()

    @property
    def status(self) -> ExitStatus | None:
        """The exit status for the signal that came, if one did."""
        return None if self._signal is None else ExitStatus(128 + self._signal)

    @asynccontextmanager
    async def handle(self) -> AsyncGenerator[TaskGroup]:
        """Handle signals during the block. Yields a task group, which is cancelled at its end."""
        with anyio.open_signal_receiver(*stop_signals()) as signals:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self.watch, signals)
                yield tasks
                tasks.cancel_scope.cancel()

    async def watch(self, signals: AsyncIterable[Signals]) -> None:
        async for number in signals:
            if self._is_ignoring:
                continue
            if self._signal is not None:
                if forces_exit(number):
                    self.exit_now(128 + number)
                continue
            self._signal = number
            if self._stop is not None:
                self._stop(f"aborted by {number.name}")
            else:
                self.scope.cancel()

    @contextmanager
    def stop_with(self, stop: Callable[[str], None]) -> Generator[None]:
        """During the block, call `stop` with a reason at the first signal."""
        self._stop = stop
        try:
            yield
        finally:
            self._stop = None

    @contextmanager
    def ignore(self) -> Generator[None]:
        """Ignore signals during the block: they are meant for another program."""
        self._is_ignoring = True
        try:
            yield
        finally:
            self._is_ignoring = False

    def clear(self) -> None:
        """Forget the signal that came: the turn has ended, and the command continues."""
        self._signal = None

    def restore_terminal(self) -> None:
        """Set the terminal modes as they were at the start: a line editor changes them."""
        if self._terminal_state is None:
            return
        import termios

        with suppress(termios.error, ValueError, OSError):
            termios.tcsetattr(sys.stdin.fileno(), termios.TCSADRAIN, self._terminal_state)

    def exit_now(self, status: int) -> None:
        """End the process without cleanup. Stored data stays valid, and workers notice the end."""
        from nacre.mcp_client.process import kill_all_groups
        from nacre.tools import kill_all_commands

        # Servers and commands have process groups of their own, so they would keep running.
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
