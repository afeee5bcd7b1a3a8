"""A wait of one task that another task or a callback ends."""

import asyncio
import math


class WakeUp:
    """Wakes the task that waits, if there is one.

    An `anyio.Event` for each wait, with a cancel scope for its time limit, takes ten times as long.
    That is a tenth of the time of a host request. One timer serves many waits: those of a leg all
    have about the same deadline.
    """

    def __init__(self) -> None:
        self._waiter: asyncio.Future[None] | None = None
        self._deadline = math.inf
        self._timer: asyncio.TimerHandle | None = None

    def set(self) -> None:
        """Wake the task. Without a task that waits, nothing happens."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def wait(self, seconds: float = math.inf) -> None:
        """Wait for the next `set`, at most as long as this. Only one task may wait at a time."""
        loop = asyncio.get_running_loop()
        self._waiter = loop.create_future()
        if seconds < math.inf:
            self._deadline = loop.time() + seconds
            self._ensure_timer(loop)
        try:
            await self._waiter
        finally:
            self._waiter = None
            self._deadline = math.inf

    def close(self) -> None:
        """Cancel the timer. Call it after the last wait, or the timer keeps this object alive."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _ensure_timer(self, loop: asyncio.AbstractEventLoop) -> None:
        """Let the timer end at the deadline or before it."""
        if self._timer is not None:
            if self._timer.when() <= self._deadline:
                return
            self._timer.cancel()
        self._timer = loop.call_at(self._deadline, self._on_timer, loop)

    def _on_timer(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        if loop.time() >= self._deadline:
            self.set()
        elif self._deadline < math.inf:
            self._ensure_timer(loop)
