"""Thousands of cells, a tenth of them killed, timed out or out of memory: checks for leaks."""

import os
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

import anyio

from benchmarks.measurement import (
    cpu_seconds,
    descendants,
    open_descriptors,
    total_memory_bytes,
)
from benchmarks.one import Effort
from benchmarks.report import Figure
from benchmarks.sandboxes import ENDLESS, TRIVIAL, settle, warm_sandbox
from nacre.sandbox import CellResult, Completed, Failed, Limits, Sandbox

_Kind = Literal["trivial", "killed", "timed out", "out of memory"]
_BAD: tuple[_Kind, ...] = ("killed", "timed out", "out of memory")
_BAD_EVERY = 10
_EXPECTED = {
    "trivial": "completed",
    "killed": "worker_lost",
    "timed out": "timeout",
    "out of memory": "memory_limit_exceeded",
}
_HUNGRY = "const kept = []; while (true) kept.push(new Array(1000).fill(kept.length))"
_SHORT = Limits(timeout_ms=100)
_SMALL = Limits(memory_limit_bytes=8 << 20)
# All kinds of cells have run, and the memory of the allocators is stable.
_WARM_UP_CELLS = 300
_LOOK_SECONDS = 0.002
_FIND_SECONDS = 5


async def measure(effort: Effort) -> list[Figure]:
    count = effort.times(10_000, quick=1000)
    with tempfile.TemporaryDirectory() as directory:
        # Temporary files without a directory of their own are created here too.
        tempfile.tempdir = directory
        cache = Path(directory, "cache")
        async with warm_sandbox(cache):
            pass
        descriptors, files = open_descriptors(), _files(directory)
        async with warm_sandbox(cache) as sandbox:
            figures = await _soak(sandbox, count, effort)
        processes_left = len(descendants())
        descriptors_left = open_descriptors() - descriptors
        files_left = len(_files(directory) - files)
        tempfile.tempdir = None
    return [
        *figures,
        Figure(name="soak_processes", value=processes_left),
        Figure(name="soak_descriptors", value=descriptors_left),
        Figure(name="soak_files", value=files_left),
    ]


async def _soak(sandbox: Sandbox, count: int, effort: Effort) -> list[Figure]:
    endings: Counter[str] = Counter()
    for number in range(_WARM_UP_CELLS):
        await _run(sandbox, _kind(number))
    await settle(sandbox)
    before = total_memory_bytes()
    surprises = 0
    started = time.monotonic()
    for number in range(count):
        kind = _kind(number)
        ending = _ending(await _run(sandbox, kind))
        endings[ending] += 1
        surprises += ending != _EXPECTED[kind]
        if (number + 1) % 1000 == 0:
            memory = total_memory_bytes() / 1e6
            effort.say(f"  {number + 1} cells, {memory:.1f} MB, {dict(endings)}")
    seconds = time.monotonic() - started
    await settle(sandbox)
    after = total_memory_bytes()
    details = {"beforeMb": before / 1e6, "afterMb": after / 1e6}
    return [
        Figure(name="soak_growth", value=(after - before) / 1e6, details=details),
        Figure(name="soak_surprises", value=surprises, details={**endings}),
        Figure(name="soak_rate", value=count / seconds, details={"seconds": seconds}),
    ]


def _kind(number: int) -> _Kind:
    if number % _BAD_EVERY:
        return "trivial"
    return _BAD[number // _BAD_EVERY % len(_BAD)]


async def _run(sandbox: Sandbox, kind: _Kind) -> CellResult:
    match kind:
        case "trivial":
            return await sandbox.cell(TRIVIAL).run()
        case "timed out":
            return await sandbox.cell(ENDLESS, limits=_SHORT).run()
        case "out of memory":
            return await sandbox.cell(_HUNGRY, limits=_SMALL).run()
        case "killed":
            return await _run_and_kill(sandbox)


async def _run_and_kill(sandbox: Sandbox) -> CellResult:
    results: list[CellResult] = []

    async def run() -> None:
        results.append(await sandbox.cell(ENDLESS).run())

    async with anyio.create_task_group() as tasks:
        # Taken before, because a starting worker uses CPU too.
        workers = (await sandbox.check()).workers
        tasks.start_soon(run)
        with anyio.fail_after(_FIND_SECONDS):
            os.kill(await _busy_one(workers), signal.SIGKILL)
    return results[0]


async def _busy_one(workers: Iterable[int]) -> int:
    """The worker that runs the only cell, found by its CPU usage."""
    while True:
        used = {pid: cpu_seconds(pid) for pid in workers}
        await anyio.sleep(_LOOK_SECONDS)
        for pid, before in used.items():
            if cpu_seconds(pid) - before > _LOOK_SECONDS / 2:
                return pid


def _ending(result: CellResult) -> str:
    match result:
        case Completed():
            return "completed"
        case Failed():
            return result.reason
        case _:
            return "waiting"


def _files(directory: str) -> set[Path]:
    return set(Path(directory).rglob("*"))
