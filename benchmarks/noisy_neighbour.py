"""Endless loops: the time until they are stopped, and their effect on other sessions."""

import time

import anyio

from benchmarks.measurement import elapsed_ms, median, percentile
from benchmarks.one import Effort
from benchmarks.report import Figure
from benchmarks.sandboxes import ENDLESS, TRIVIAL, complete, settle, warm_sandbox
from nacre.sandbox import Failed, Limits, Sandbox

_BUDGET = Limits(timeout_ms=500)
_LOOPS_AT_ONCE = (1, 2, 4)
# A pause, because a session that runs cells without a pause would be a noisy neighbour itself.
_PAUSE_SECONDS = 0.005
# Wait until the loops are running and the pool has reacted.
_LEAD_SECONDS = 0.25


async def measure(effort: Effort) -> list[Figure]:
    seconds = effort.times(6, quick=2)
    async with warm_sandbox() as sandbox:
        stops = [await _stop_ms(sandbox) for _ in range(effort.times(15, quick=5))]
        figures = [
            Figure(name="stop_p50", value=median(stops), details={"loops": len(stops)}),
            Figure(name="stop_min", value=min(stops)),
            Figure(name="stop_max", value=max(stops)),
        ]
        quiet = await _trivial_cells(sandbox, seconds)
        figures.append(Figure(name="neighbour_quiet", value=median(quiet), details=_spread(quiet)))
        for loops in _LOOPS_AT_ONCE:
            effort.say(f"  beside {loops} endless loops")
            await settle(sandbox)
            noisy = await _beside_loops(sandbox, loops, seconds)
            ratio = median(noisy) / median(quiet)
            figures.append(Figure(name=f"neighbour_{loops}", value=ratio, details=_spread(noisy)))
    return figures


async def _stop_ms(sandbox: Sandbox) -> float:
    started = time.perf_counter()
    result = await sandbox.cell(ENDLESS, limits=_BUDGET, owner="loops").run()
    if not isinstance(result, Failed) or result.reason != "timeout":
        raise RuntimeError(f"the endless loop was not stopped for its time: {result}")
    return elapsed_ms(started)


async def _beside_loops(sandbox: Sandbox, loops: int, seconds: float) -> list[float]:
    """Run cells in one session while another one runs endless loops."""
    walls: list[float] = []

    async def loop() -> None:
        while True:
            await sandbox.cell(ENDLESS, limits=_BUDGET, owner="loops").run()

    async with anyio.create_task_group() as tasks:
        for _ in range(loops):
            tasks.start_soon(loop)
        await anyio.sleep(_LEAD_SECONDS)
        walls += await _trivial_cells(sandbox, seconds)
        tasks.cancel_scope.cancel()
    return walls


async def _trivial_cells(sandbox: Sandbox, seconds: float) -> list[float]:
    walls: list[float] = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        started = time.perf_counter()
        await complete(sandbox.cell(TRIVIAL, owner="neighbour"))
        walls.append(elapsed_ms(started))
        await anyio.sleep(_PAUSE_SECONDS)
    return walls


def _spread(walls: list[float]) -> dict[str, float]:
    return {
        "cells": len(walls),
        "p50": median(walls),
        "p95": percentile(walls, 95),
        "p99": percentile(walls, 99),
        "most": max(walls),
    }
