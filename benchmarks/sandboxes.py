"""What the benchmarks share: programs, and a sandbox that is warm."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import anyio
import psutil

from benchmarks.measurement import descendants
from nacre.json_types import JsonValue
from nacre.sandbox import Cell, Completed, HostRequest, Sandbox, SandboxOptions

TRIVIAL: Final = "return 1+1"
ENDLESS: Final = "while (true) {}"
_WARM_UP_CELLS: Final = 20
_SETTLE_SECONDS: Final = 10


@asynccontextmanager
async def warm_sandbox(cache_directory: Path | None = None) -> AsyncIterator[Sandbox]:
    """A sandbox all of whose workers are up and have run cells."""
    async with Sandbox(SandboxOptions(cache_directory=cache_directory)) as sandbox:
        await settle(sandbox)
        for _ in range(_WARM_UP_CELLS):
            await complete(sandbox.cell(TRIVIAL))
        yield sandbox


async def settle(sandbox: Sandbox) -> None:
    """Wait until no worker is starting or ending any more."""
    before: set[int] = set()
    with anyio.fail_after(_SETTLE_SECONDS):
        while True:
            workers = set((await sandbox.check()).workers)
            alive = {each.pid for each in descendants() if each.status() != psutil.STATUS_ZOMBIE}
            if workers and workers == alive == before:
                return
            before = workers
            await anyio.sleep(0.1)


async def complete(cell: Cell) -> JsonValue:
    """The value of a cell that has to complete in one leg."""
    return value_of(await cell.run())


def value_of(result: object) -> JsonValue:
    """The value of a completed result; anything else makes the figures meaningless."""
    if not isinstance(result, Completed):
        raise RuntimeError(f"the cell did not complete: {result}")
    return result.value


async def echo(request: HostRequest) -> JsonValue:
    """A handler that takes no time."""
    return request.payload
