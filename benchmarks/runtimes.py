"""Shared code of the code mode benchmarks: a warm runtime, and the CPU time of programs."""

import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Final

import anyio

from benchmarks.measurement import CpuTimer, cpu_seconds, descendants, elapsed_ms, median
from nacre import CodeModeResult, CodeModeRun, Completed, Runtime
from nacre.json_types import JsonValue

_WARM_UP_PROGRAMS: Final = 20
_SETTLE_SECONDS: Final = 30
_QUIET_SECONDS: Final = 0.2
_QUIET_CPU_SECONDS: Final = 0.001


@asynccontextmanager
async def warm_runtime(
    config: dict[str, object] | None = None, *, workers: int = 0, max_suspended_cells: int = 64
) -> AsyncGenerator[Runtime]:
    """A runtime with warm workers."""
    async with Runtime(config, workers=workers, max_suspended_cells=max_suspended_cells) as runtime:
        await warm_up(runtime.run(tools=[]))
        yield runtime


async def warm_up(run: CodeModeRun, code: str = "return 1") -> None:
    """Run programs in every worker, then wait until all processes are idle."""
    for _ in range(2):
        async with anyio.create_task_group() as tasks:
            for _ in range(_WARM_UP_PROGRAMS):
                tasks.start_soon(value_of_program, run, code)
    await settle()


async def settle() -> None:
    """Wait until all processes are idle."""
    with anyio.fail_after(_SETTLE_SECONDS):
        before = _cpu_of_descendants()
        while True:
            await anyio.sleep(_QUIET_SECONDS)
            now = _cpu_of_descendants()
            if now.keys() == before.keys() and all(
                now[pid] - before[pid] < _QUIET_CPU_SECONDS for pid in now
            ):
                return
            before = now


def _cpu_of_descendants() -> dict[int, float]:
    return {process.pid: cpu_seconds(process.pid) for process in descendants()}


async def value_of_program(run: CodeModeRun, code: str) -> JsonValue:
    """The value of a program that must complete in one `exec`."""
    return value_of(await run.exec(code))


def value_of(result: CodeModeResult) -> JsonValue:
    """The value of a result, which must be completed."""
    if not isinstance(result, Completed):
        raise RuntimeError(f"the program did not complete: {result}")
    return result.value


async def costs(
    run: CodeModeRun, code: str, *, expected: JsonValue, count: int
) -> tuple[float, float]:
    """The CPU time per program and the median wall time, in milliseconds."""
    walls: list[float] = []
    with CpuTimer() as cpu:
        for _ in range(count):
            started = time.perf_counter()
            value = await value_of_program(run, code)
            walls.append(elapsed_ms(started))
            if value != expected:
                raise RuntimeError(f"the program returned {value!r}, not {expected!r}")
    return cpu.ms / count, median(walls)
