"""Shared code of the sandbox benchmarks: programs, and a warm sandbox."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import anyio

from benchmarks.measurement import cpu_seconds, descendants
from nacre.json_types import JsonValue
from nacre.sandbox import Cell, Completed, HostRequest, Sandbox, SandboxOptions

TRIVIAL: Final = "return 1+1"
ENDLESS: Final = "while (true) {}"
_WARM_UP_CELLS: Final = 20
_SETTLE_SECONDS: Final = 30
_QUIET_SECONDS: Final = 0.2
_QUIET_CPU_SECONDS: Final = 0.001


@asynccontextmanager
async def warm_sandbox(cache_directory: Path | None = None) -> AsyncGenerator[Sandbox]:
    """A sandbox with warm workers."""
    async with Sandbox(SandboxOptions(cache_directory=cache_directory)) as sandbox:
        await settle(sandbox)
        for _ in range(_WARM_UP_CELLS):
            await complete(sandbox.cell(TRIVIAL))
        yield sandbox


async def settle(sandbox: Sandbox) -> None:
    """Wait until all processes are idle."""
    report = await sandbox.check()
    if report.problem:
        raise RuntimeError(f"no worker starts: {report.problem}")
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


async def complete(cell: Cell) -> JsonValue:
    """The value of a cell that must complete in one leg."""
    return value_of(await cell.run())


def value_of(result: object) -> JsonValue:
    """The value of a result, which must be completed."""
    if not isinstance(result, Completed):
        raise RuntimeError(f"the cell did not complete: {result}")
    return result.value


async def echo(request: HostRequest) -> JsonValue:
    """A handler that returns at once."""
    return request.payload
