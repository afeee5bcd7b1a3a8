"""The watchdog of the event loop."""

import logging
import selectors
import time

import anyio
import pytest

from nacre.telemetry import LoopStall, LoopWatchdog


def compute_without_a_pause() -> None:
    end = time.monotonic() + 0.1
    while time.monotonic() < end:
        pass


async def test_a_stall_is_reported_and_logged_with_its_stack(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stalls: list[LoopStall] = []
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(LoopWatchdog(stalls.append, limit_seconds=0.02).run)
        with anyio.fail_after(50):
            # On a busy machine, the thread that notes the stack may come too late.
            while not any("compute_without_a_pause" in stall.stack for stall in stalls):
                await anyio.sleep(0.03)
                compute_without_a_pause()
        tasks.cancel_scope.cancel()
    found = next(stall for stall in stalls if stall.stack)
    assert found.seconds > 0.02
    assert found.cpu_seconds > 0
    assert caplog.records[0].levelno == logging.WARNING
    assert "the event loop stopped for " in caplog.text


async def test_the_log_is_written_at_most_every_ten_seconds(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stalls: list[LoopStall] = []
    started = time.monotonic()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(LoopWatchdog(stalls.append, limit_seconds=0.02).run)
        while len(stalls) < 3:
            await anyio.sleep(0.03)
            compute_without_a_pause()
        tasks.cancel_scope.cancel()
    assert len(caplog.records) <= 1 + (time.monotonic() - started) // 10


async def test_a_loop_that_runs_is_not_reported() -> None:
    stalls: list[LoopStall] = []
    # Much longer than a busy machine delays the test.
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(LoopWatchdog(stalls.append, limit_seconds=3600).run)
        await anyio.sleep(0.1)
        tasks.cancel_scope.cancel()
    assert not stalls


async def test_a_stall_while_the_loop_is_idle_has_no_stack(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stalls: list[LoopStall] = []
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(LoopWatchdog(stalls.append, limit_seconds=0.02).run)
        with selectors.DefaultSelector() as selector, anyio.fail_after(50):
            while not stalls:
                await anyio.sleep(0.03)
                selector.select(0.2)
        tasks.cancel_scope.cancel()
    assert "in select\n" not in caplog.text
    assert "the event loop stopped for " in caplog.text
