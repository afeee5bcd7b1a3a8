"""A trivial cell in a warm sandbox: a fresh VM each time."""

import time

from benchmarks.measurement import CpuTimer, elapsed_ms, median, percentile
from benchmarks.one import Effort
from benchmarks.report import Figure
from benchmarks.sandboxes import TRIVIAL, complete, warm_sandbox


async def measure(effort: Effort) -> list[Figure]:
    count = effort.times(1000, quick=200)
    walls: list[float] = []
    async with warm_sandbox() as sandbox:
        with CpuTimer() as cpu:
            for _ in range(count):
                started = time.perf_counter()
                await complete(sandbox.cell(TRIVIAL))
                walls.append(elapsed_ms(started))
    return [
        Figure(name="cell_cpu", value=cpu.ms / count, details={"cells": count}),
        Figure(name="cell_p50", value=median(walls)),
        Figure(name="cell_p95", value=percentile(walls, 95), details={"most": max(walls)}),
    ]
