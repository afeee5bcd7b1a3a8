"""Suspending and resuming: time, size of the snapshot, and memory of many waiting cells."""

import time

from benchmarks.measurement import CpuTimer, elapsed_ms, median, total_memory_bytes
from benchmarks.one import Effort
from benchmarks.report import Figure
from benchmarks.sandboxes import settle, value_of, warm_sandbox
from nacre.sandbox import Cell, Sandbox, Waiting

_SMALL = (
    "const found = { city: 'Oslo', days: [1, 2, 3] };"
    "await yield_control('look at this');"
    "return found.days.length"
)
_SUSPENDED_CELLS = 500
_WARM_UP_CELLS = 20


async def measure(effort: Effort) -> list[Figure]:
    async with warm_sandbox() as sandbox:
        times = await _times(sandbox, effort.times(300, quick=60))
    async with warm_sandbox() as sandbox:
        effort.say(f"  {_SUSPENDED_CELLS} suspended cells")
        return [*times, await _memory(sandbox)]


async def _times(sandbox: Sandbox, count: int) -> list[Figure]:
    yields: list[float] = []
    resumes: list[float] = []
    sizes: list[float] = []
    with CpuTimer() as cpu:
        for _ in range(count):
            cell = sandbox.cell(_SMALL)
            started = time.perf_counter()
            sizes.append(await _suspend(cell))
            yields.append(elapsed_ms(started))
            started = time.perf_counter()
            value_of(await cell.resume())
            resumes.append(elapsed_ms(started))
    both = [first + second for first, second in zip(yields, resumes, strict=True)]
    return [
        Figure(name="yield_p50", value=median(yields)),
        Figure(name="resume_p50", value=median(resumes)),
        Figure(name="yield_resume_p50", value=median(both), details={"cells": count}),
        Figure(name="yield_resume_cpu", value=cpu.ms / count),
        Figure(name="snapshot_size", value=max(sizes) / 1024, details={"bytes": max(sizes)}),
    ]


async def _memory(sandbox: Sandbox) -> Figure:
    for _ in range(_WARM_UP_CELLS):
        cell = sandbox.cell(_SMALL)
        await _suspend(cell)
        value_of(await cell.resume())
    await settle(sandbox)
    before = total_memory_bytes()
    cells = [sandbox.cell(_SMALL) for _ in range(_SUSPENDED_CELLS)]
    for cell in cells:
        await _suspend(cell)
    await settle(sandbox)
    growth = total_memory_bytes() - before
    for cell in cells:
        value_of(await cell.resume())
    details = {"cells": float(_SUSPENDED_CELLS), "growthBytes": float(growth)}
    return Figure(name="suspended_memory", value=growth / 1024 / _SUSPENDED_CELLS, details=details)


async def _suspend(cell: Cell) -> int:
    """Run until the cell waits; return the bytes of its snapshot."""
    result = await cell.run()
    if not isinstance(result, Waiting) or cell.snapshot is None:
        raise RuntimeError(f"the cell does not wait: {result}")
    return len(cell.snapshot)
