"""Tests of waits that share a timer."""

import asyncio

import anyio

from nacre.sandbox.wake_up import WakeUp


async def test_a_wait_without_a_limit_outlives_the_timer_of_an_earlier_one() -> None:
    wake = WakeUp()
    loop = asyncio.get_running_loop()
    loop.call_soon(wake.set)
    await wake.wait(0.001)
    ended: list[str] = []

    async def wait() -> None:
        await wake.wait()
        ended.append("by set")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wait)
        # Due after the timer of the first wait, so it runs after it.
        await asyncio.sleep(0.002)
        assert not ended
        wake.set()
    assert ended


async def test_a_wait_ends_at_its_own_deadline_although_an_earlier_one_had_more_time() -> None:
    wake = WakeUp()
    asyncio.get_running_loop().call_soon(wake.set)
    await wake.wait(3600)
    await wake.wait(0.001)
    wake.close()


async def test_a_wait_does_not_end_with_the_earlier_deadline_of_another_one() -> None:
    wake = WakeUp()
    loop = asyncio.get_running_loop()
    loop.call_soon(wake.set)
    await wake.wait(0.001)
    deadline = loop.time() + 0.02
    await wake.wait(0.02)
    assert loop.time() >= deadline
