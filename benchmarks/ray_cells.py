"""Cells on a Ray cluster of one and two nodes on this machine, against local workers, in one run.

All nodes share the cores of this machine, so the cells
per second show the shape and not what a second machine would add.
"""

from __future__ import annotations

import os
import statistics
import time
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Final, cast

import anyio

from benchmarks.measurement import elapsed_ms
from benchmarks.report import Figure
from nacre.config import RayConfig
from nacre.sandbox import Completed, HostRequest, Sandbox, SandboxOptions, Waiting

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from benchmarks.one import Effort
    from nacre.json_types import JsonValue

_ROUNDS: Final = 300
_QUICK_ROUNDS: Final = 40
_WARM_UP: Final = 10
_PARALLEL: Final = 8
_WORKERS: Final = 2
# About 5 ms of computing in the interpreter.
_BUSY: Final = "let n = 0; for (let i = 0; i < 80000; i++) n += i; return n"
_ENVIRONMENT: Final = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    "RAY_raylet_start_wait_time_s": "120",
}


class _Cluster:
    """A Ray cluster on the loopback interface."""

    def __init__(self) -> None:
        os.environ.update(_ENVIRONMENT)
        from ray.cluster_utils import Cluster

        self._cluster: Any = cast("Any", Cluster)(
            initialize_head=True, head_node_args=self._settings(cpus=0)
        )
        self.address: str = self._cluster.address

    def _settings(self, *, cpus: int) -> dict[str, object]:
        return {
            "num_cpus": cpus,
            "node_ip_address": "127.0.0.1",
            "include_dashboard": False,
            "object_store_memory": 80 << 20,
        }

    def add_node(self) -> None:
        self._cluster.add_node(**self._settings(cpus=1))

    def close(self) -> None:
        self._cluster.shutdown()


async def _echo(request: HostRequest) -> JsonValue:
    return request.payload


async def _run_trivial(sandbox: Sandbox) -> int:
    """One leg."""
    assert isinstance(await sandbox.cell("return 1+1").run(), Completed)
    return 1


async def _run_suspended(sandbox: Sandbox) -> int:
    """Two legs: a suspension, and a resumption from the snapshot."""
    cell = sandbox.cell("let n = 1; await yield_control(); return n")
    assert isinstance(await cell.run(), Waiting)
    assert isinstance(await cell.resume(), Completed)
    return 2


async def _run_calls(sandbox: Sandbox) -> int:
    """One leg with ten calls, one after the other."""
    code = "for (let n = 0; n < 10; n++) await call(n)"
    cell = sandbox.cell(code, functions=("call",), handler=_echo)
    assert isinstance(await cell.run(), Completed)
    return 1


_PROGRAMS: Final[dict[str, Callable[[Sandbox], Awaitable[int]]]] = {
    "ray_leg": _run_trivial,
    "ray_leg_suspended": _run_suspended,
    "ray_leg_calls": _run_calls,
}


async def _compare(sandboxes: dict[str, Sandbox], rounds: int) -> list[Figure]:
    """Measure in turns, so that load of the machine affects both alike."""
    figures: list[Figure] = []
    for name, run in _PROGRAMS.items():
        times: dict[str, list[float]] = {place: [] for place in sandboxes}
        legs = 1
        for number in range(_WARM_UP + rounds):
            for place, sandbox in sandboxes.items():
                started = time.perf_counter()
                legs = await run(sandbox)
                if number >= _WARM_UP:
                    times[place].append(elapsed_ms(started))
        local, ray = (statistics.median(times[place]) for place in ("local", "ray"))
        details = {"localMs": local, "rayMs": ray, "legs": float(legs)}
        figures.append(Figure(name=name, value=(ray - local) / legs, details=details))
    return figures


async def _measure_rate(name: str, sandbox: Sandbox, count: int) -> Figure:
    started = time.perf_counter()
    await _run_busy(sandbox, count)
    return Figure(name=name, value=count / (time.perf_counter() - started))


async def _run_busy(sandbox: Sandbox, count: int) -> None:
    """Run this many programs that compute, some of them at the same time."""
    left = count

    async def run(owner: str) -> None:
        nonlocal left
        while left > 0:
            left -= 1
            assert isinstance(await sandbox.cell(_BUSY, owner=owner).run(), Completed)

    async with anyio.create_task_group() as tasks:
        for number in range(_PARALLEL):
            tasks.start_soon(run, str(number))


async def _start_workers(sandbox: Sandbox, count: int) -> None:
    """Run cells at the same time until so many workers have started: a pool has one at first."""
    with anyio.fail_after(120):
        while len(sandbox.workers) < count:
            await _run_busy(sandbox, 2 * count)


async def measure(effort: Effort) -> list[Figure]:
    """Measure local workers, one node and two nodes."""
    rounds = effort.times(_ROUNDS, quick=_QUICK_ROUNDS)
    async with AsyncExitStack() as stack:
        # Ray starts nodes in the main thread only, so this stops the event loop.
        cluster = _Cluster()
        stack.callback(cluster.close)
        cluster.add_node()
        effort.say("  the cluster is up")
        local = await stack.enter_async_context(Sandbox(SandboxOptions(workers=_WORKERS)))
        ray = RayConfig(address=cluster.address, workers_per_node=_WORKERS)
        remote = await stack.enter_async_context(Sandbox(SandboxOptions(ray=ray)))
        await _start_workers(local, _WORKERS)
        await _start_workers(remote, _WORKERS)
        figures = await _compare({"local": local, "ray": remote}, rounds)
        figures.append(await _measure_rate("ray_rate_local", local, rounds * 4))
        figures.append(await _measure_rate("ray_rate_one", remote, rounds * 4))
        effort.say("  a second node starts")
        cluster.add_node()
        await _start_workers(remote, 2 * _WORKERS)
        figures.append(await _measure_rate("ray_rate_two", remote, rounds * 4))
    return figures
