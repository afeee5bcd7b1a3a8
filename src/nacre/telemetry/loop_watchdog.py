"""Watches an event loop, and reports when it stops for longer than a limit, with a stack.

All sessions of a process share one event loop. While one of them computes, the others wait.
"""

from __future__ import annotations

import logging
import selectors
import sys
import threading
import time
import traceback
from typing import TYPE_CHECKING, Final

import anyio

from nacre.lazy_dataclasses import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable

logger = logging.getLogger(__name__)

STALL_SECONDS: Final = 0.1
_BEAT_SECONDS: Final = 0.025
# More often, the log would hide everything else.
_LOG_EVERY_SECONDS: Final = 10.0
_MAX_FRAMES: Final = 12


@dataclass(frozen=True, kw_only=True, slots=True)
class LoopStall:
    """One time in which the loop ran no task."""

    seconds: float
    cpu_seconds: float
    """The CPU time of the loop's thread. If it is low, the thread waited for the interpreter lock
    or for a busy machine."""
    stack: str
    """What the loop's thread did; empty if it ran no task, or no other thread could run."""


class LoopWatchdog:
    """Logs the stalls of the loop that it runs in, and passes them to a function."""

    def __init__(
        self, on_stall: Callable[[LoopStall], None], *, limit_seconds: float = STALL_SECONDS
    ) -> None:
        self._on_stall = on_stall
        self._limit_seconds = limit_seconds
        self._beat = time.monotonic()
        self._stack = ""
        self._last_log = -_LOG_EVERY_SECONDS
        self._unlogged = 0

    async def run(self) -> None:
        """Watch the loop until this task is cancelled."""
        ended = threading.Event()
        watched = threading.get_ident()
        # Not a thread of the pool, which the watched code can use up.
        thread = threading.Thread(target=self._sample, args=(watched, ended), daemon=True)
        self._beat = time.monotonic()
        thread.start()
        try:
            await self._keep_beating()
        finally:
            ended.set()

    async def _keep_beating(self) -> None:
        cpu = time.thread_time()
        while True:
            await anyio.sleep(_BEAT_SECONDS)
            now, cpu_now = time.monotonic(), time.thread_time()
            seconds = now - self._beat - _BEAT_SECONDS
            self._beat = now
            if seconds > self._limit_seconds:
                self._report(
                    LoopStall(seconds=seconds, cpu_seconds=cpu_now - cpu, stack=self._stack)
                )
            self._stack = ""
            cpu = cpu_now

    def _sample(self, watched: int, ended: threading.Event) -> None:
        """Note the stack of the loop's thread, in another thread, as soon as it is late."""
        while not ended.wait(self._limit_seconds / 2):
            is_late = time.monotonic() - self._beat > self._limit_seconds
            frame = sys._current_frames().get(watched) if is_late and not self._stack else None  # pyright: ignore[reportPrivateUsage]
            # In `select`, the loop has nothing to do: it waits for the machine, not for a task.
            if frame is not None and frame.f_code.co_filename != selectors.__file__:
                lines = traceback.format_stack(frame)
                self._stack = "".join(lines[-_MAX_FRAMES:])

    def _report(self, stall: LoopStall) -> None:
        self._on_stall(stall)
        now = time.monotonic()
        if now - self._last_log < _LOG_EVERY_SECONDS:
            self._unlogged += 1
            return
        more = f", after {self._unlogged} more" if self._unlogged else ""
        self._last_log, self._unlogged = now, 0
        logger.warning(
            "the event loop stopped for %.0f ms (%.0f ms CPU)%s; all sessions waited%s",
            stall.seconds * 1000,
            stall.cpu_seconds * 1000,
            more,
            f":\n{stall.stack.rstrip()}" if stall.stack else " (no stack)",
        )
