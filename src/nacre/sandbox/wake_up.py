"""A wait of one task that another task or a callback ends."""

import asyncio
import math


class WakeUp:
    """Wakes the task that waits, if there is one.

    An `anyio.Event` for each wait, with a cancel scope for its time limit, takes ten times as long.
    That is a tenth of the time of a host request.
    """

    def __init__(self) -> None:
        self._waiter: asyncio.Future[None] | None = None

    def set(self) -> None:
        """Wake the task. Without a task that waits, nothing happens."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def wait(self, seconds: float = math.inf) -> None:
        """Wait for the next `set`, at most as long as this. Only one task may wait at a time."""
        loop = asyncio.get_running_loop()
        self._waiter = loop.create_future()
        timer = None if math.isinf(seconds) else loop.call_later(seconds, self.set)
        try:
            await self._waiter
        finally:
            self._waiter = None
            if timer is not None:
                timer.cancel()
