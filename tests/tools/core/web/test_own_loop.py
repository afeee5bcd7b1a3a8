"""Work in another thread: its end, its faults, and being stopped."""

import threading

import anyio
import pytest

from nacre.tools.core.web_tools import in_own_loop


@pytest.fixture
def threads() -> anyio.CapacityLimiter:
    return anyio.CapacityLimiter(1)


async def test_what_it_returns_and_raises_comes_back(threads: anyio.CapacityLimiter) -> None:
    async def thread() -> int:
        return threading.get_ident()

    async def fault() -> None:
        raise LookupError("not there")

    assert await in_own_loop(thread, threads=threads) != threading.get_ident()
    with pytest.raises(LookupError, match="not there"):
        await in_own_loop(fault, threads=threads)


async def test_it_is_cancelled_with_whoever_waits_for_it(threads: anyio.CapacityLimiter) -> None:
    is_running, was_cancelled = threading.Event(), threading.Event()

    async def endless() -> None:
        is_running.set()
        try:
            await anyio.sleep_forever()
        finally:
            was_cancelled.set()

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: in_own_loop(endless, threads=threads))
            await anyio.to_thread.run_sync(is_running.wait)
            tasks.cancel_scope.cancel()
        await anyio.to_thread.run_sync(was_cancelled.wait)
        # And its thread is free again.
        await in_own_loop(anyio.lowlevel.checkpoint, threads=threads)
