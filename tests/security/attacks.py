"""Run hostile cells, and see to it that nobody else notices."""

import os
from collections.abc import AsyncGenerator, Generator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import anyio
import psutil

from nacre.json_types import JsonObject, JsonValue
from nacre.sandbox import (
    Cell,
    CellResult,
    Completed,
    Failed,
    HostRequest,
    HostRequestHandler,
    Limits,
    Sandbox,
)

# Far above what anything here takes: reached only by what would never end, or would end with the
# longest budget, which is a minute.
BOUND_SECONDS = 40
# The least that the configuration allows; for programs that are to meet it.
SHORT_MS = 100
SHORT = Limits(timeout_ms=SHORT_MS)
# For all others, however busy the machine is.
AMPLE = Limits(timeout_ms=20_000)

TIMED_OUT: JsonObject = {
    "status": "failed",
    "error": f"the program exceeded its time limit (timeoutMs is {SHORT_MS})",
    "code": "timeout",
    "reason": "timeout",
}


def shown(result: CellResult) -> JsonObject:
    """The result as a model sees it, without what it cost."""
    wire = result.to_json()
    del wire["telemetry"]
    return wire


def completed(value: JsonValue) -> JsonObject:
    return {"status": "completed", "value": value}


def verdict(result: JsonObject) -> tuple[JsonValue, JsonValue, JsonValue]:
    """Status, code and reason, where the text differs from engine to engine."""
    return result["status"], result.get("code"), result.get("reason")


async def echo(request: HostRequest) -> JsonValue:
    return request.payload


@dataclass
class Heart:
    """Counts the turns that the event loop gave to somebody else."""

    beats: int = 0

    async def beat(self) -> None:
        while True:
            await anyio.sleep(0.001)
            self.beats += 1


@asynccontextmanager
async def heartbeat() -> AsyncGenerator[Heart, None]:
    heart = Heart()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(heart.beat)
        yield heart
        tasks.cancel_scope.cancel()


async def attack(
    sandbox: Sandbox,
    code: str,
    *,
    limits: Limits = AMPLE,
    handler: HostRequestHandler = echo,
) -> JsonObject:
    """What a hostile cell comes to. Its neighbours and the supervisor have to be unharmed."""
    cell = sandbox.cell(code, limits=limits, functions=("echo",), handler=handler, owner="attacker")
    return shown(await beside_neighbours(sandbox, cell))


async def beside_neighbours(sandbox: Sandbox, cell: Cell) -> CellResult:
    """Run the cell while others run theirs, and after it once more."""
    results: list[CellResult] = []
    with anyio.fail_after(BOUND_SECONDS):
        async with heartbeat() as heart:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(expect_neighbour_to_work, sandbox)
                results.append(await cell.run())
            (result,) = results
            if isinstance(result, Failed) and result.reason == "timeout":
                # It had its whole budget, and the supervisor had turns to give meanwhile.
                assert heart.beats > 0
            await expect_neighbour_to_work(sandbox)
    return results[0]


async def expect_neighbour_to_work(sandbox: Sandbox) -> None:
    """A cell of another session gives its value, its output and its host's answer."""
    cell = sandbox.cell(
        "text('here'); return [await echo(20) + 22, Object.keys(Object.prototype), typeof marker]",
        functions=("echo",),
        handler=echo,
        owner="neighbour",
    )
    assert shown(await cell.run()) == {
        **completed([42, [], "undefined"]),
        "output": [{"type": "text", "text": "here"}],
    }


@contextmanager
def nothing_left_behind(cache_directory: Path) -> Generator[None, None, None]:
    """Fail if processes, descriptors or cache files are there at the end that were not before."""
    before = _holdings(cache_directory)
    yield
    assert _holdings(cache_directory) - before == set()


def _holdings(cache_directory: Path) -> set[str]:
    return {
        # Not their children: a database server of other tests starts processes at any time.
        *(f"process {child.pid}" for child in psutil.Process().children()),
        *(f"descriptor {descriptor}" for descriptor in _descriptors()),
        *(f"file {path}" for path in cache_directory.rglob("*")),
    }


def _descriptors() -> Iterator[str]:
    for name in os.listdir("/proc/self/fd"):
        try:
            yield f"{name} -> {os.readlink(f'/proc/self/fd/{name}')}"
        except FileNotFoundError:
            # The descriptor of this very listing.
            continue


async def until_gone(pid: int) -> None:
    """Wait until a process is dead; it may still have to be collected."""
    with suppress(psutil.NoSuchProcess):
        # A process sets no event.
        while psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
            await anyio.lowlevel.checkpoint()


def assert_completed(result: CellResult) -> Completed:
    assert isinstance(result, Completed), shown(result)
    return result
