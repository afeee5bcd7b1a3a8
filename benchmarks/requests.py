"""Host requests of one cell: in sequence, and concurrently."""

import time

from benchmarks.measurement import CpuTimer, elapsed_ms, median
from benchmarks.one import Effort
from benchmarks.report import Figure
from benchmarks.sandboxes import complete, echo, warm_sandbox
from nacre.sandbox import Sandbox

_SEQUENCE = "let sum = 0; for (let i = 0; i < 100; i++) sum += (await echo({ i })).i; return sum"
_PARALLEL = (
    "const found = await Promise.all(Array.from({ length: 16 }, (_, i) => echo({ i })));"
    "return found.reduce((sum, each) => sum + each.i, 0)"
)


async def measure(effort: Effort) -> list[Figure]:
    async with warm_sandbox() as sandbox:
        sequence_count = effort.times(60, quick=15)
        sequence_cpu, sequence_wall = await _costs(sandbox, _SEQUENCE, 4950, sequence_count)
        parallel_count = effort.times(300, quick=60)
        parallel_cpu, parallel_wall = await _costs(sandbox, _PARALLEL, 120, parallel_count)
    return [
        Figure(name="sequence_cpu", value=sequence_cpu, details={"cells": sequence_count}),
        Figure(name="sequence_p50", value=sequence_wall),
        Figure(name="parallel_cpu", value=parallel_cpu, details={"cells": parallel_count}),
        Figure(name="parallel_p50", value=parallel_wall),
    ]


async def _costs(sandbox: Sandbox, code: str, expected: int, count: int) -> tuple[float, float]:
    """The CPU time per cell and the median wall time, in milliseconds."""
    walls: list[float] = []
    with CpuTimer() as cpu:
        for _ in range(count):
            started = time.perf_counter()
            value = await complete(sandbox.cell(code, functions=("echo",), handler=echo))
            walls.append(elapsed_ms(started))
            if value != expected:
                raise RuntimeError(f"the program returned {value!r}, not {expected}")
    return cpu.ms / count, median(walls)
