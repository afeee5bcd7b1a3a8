"""Trivial cells per second, one by one and concurrently."""

import time

import anyio

from benchmarks.measurement import CpuTimer, elapsed_ms
from benchmarks.one import Effort
from benchmarks.report import Figure
from benchmarks.sandboxes import TRIVIAL, warm_sandbox
from nacre.sandbox import Completed, Sandbox

_AT_ONCE = (1, 8, 32)


async def measure(effort: Effort) -> list[Figure]:
    figures: list[Figure] = []
    failed = 0
    async with warm_sandbox() as sandbox:
        for at_once in _AT_ONCE:
            waves = effort.times(2048, quick=256) // at_once
            started = time.perf_counter()
            with CpuTimer() as cpu:
                for _ in range(waves):
                    failed += await _wave(sandbox, at_once)
            cells = waves * at_once
            rate = cells / elapsed_ms(started) * 1000
            details = {"cells": cells, "cpuMsPerCell": cpu.ms / cells}
            figures.append(Figure(name=f"rate_{at_once}", value=rate, details=details))
    return [*figures, Figure(name="rate_failed", value=failed)]


async def _wave(sandbox: Sandbox, at_once: int) -> int:
    """Run cells in as many sessions at once; return the number of failures."""
    failed = 0

    async def run(owner: str) -> None:
        nonlocal failed
        failed += not isinstance(await sandbox.cell(TRIVIAL, owner=owner).run(), Completed)

    async with anyio.create_task_group() as tasks:
        for number in range(at_once):
            tasks.start_soon(run, f"session {number}")
    return failed
