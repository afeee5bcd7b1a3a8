"""Work in a thread with an event loop of its own.

A server chooses what it sends, and some of it takes long to read in one piece: thousands of
headers, interim answers without end. There, nobody else waits for it.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Generic, TypeVar

import anyio

from nacre.foreign_calls import call_in_thread

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

_Result = TypeVar("_Result")


async def in_own_loop(
    work: Callable[[], Awaitable[_Result]], *, threads: anyio.CapacityLimiter
) -> _Result:
    """What the work returns or raises; when this is cancelled, so is the work."""
    running = _Running(work)
    try:
        return await call_in_thread(running.run, limiter=threads)
    finally:
        running.stop()


class _Running(Generic[_Result]):
    """The work, and the one thing that two threads do with it: one runs it, one may stop it."""

    def __init__(self, work: Callable[[], Awaitable[_Result]]) -> None:
        self._work = work
        self._is_stopped = False
        self._stopper: Callable[[], object] | None = None

    def run(self) -> _Result:
        return anyio.run(self._until_stopped)

    def stop(self) -> None:
        self._is_stopped = True
        if self._stopper is not None:
            # If its loop is closed by now, it has ended.
            with suppress(RuntimeError):
                self._stopper()

    async def _until_stopped(self) -> _Result:
        loop = asyncio.get_running_loop()
        with anyio.CancelScope() as scope:
            self._stopper = lambda: loop.call_soon_threadsafe(scope.cancel)
            # Looked at after the stopper is there, so that one of the two sides sees the other.
            if self._is_stopped:
                scope.cancel()
            return await self._work()
        raise TimeoutError("nobody waits for it any more")
