"""The speed of the engine: a loop in a cell, and the same `quickjs.wasm` in Node."""

import json
import shutil
import subprocess
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.measurement import CpuTimer, elapsed_ms, median
from benchmarks.one import Effort
from benchmarks.report import Figure
from benchmarks.sandboxes import complete, warm_sandbox
from nacre.sandbox import Sandbox

_LOOP = "let s=0; for(let i=0;i<5000000;i++){s+=i} return s"
_SUM = 12499997500000
_SCRIPT = Path(__file__).with_name("node_loop.mjs")
# Node starts with baseline code and replaces it with optimized code at run time.
_MOST_WARM_UPS = 20
_STEADY_RUNS = 3
_STEADY_SPREAD = 1.05


@dataclass(frozen=True, kw_only=True, slots=True)
class _Run:
    wall_ms: float
    cpu_ms: float


class _Node:
    """A Node process that runs the loop on request."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def run(self) -> _Run:
        if self._process.stdin is None or self._process.stdout is None:
            raise RuntimeError("Node was started without pipes")
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("Node ended; its message is above")
        found = json.loads(line)
        _check(found["value"])
        return _Run(wall_ms=found["wallMs"], cpu_ms=found["cpuMs"])

    def warm_up(self) -> int:
        """Repeat until the times are stable; return the number of repetitions."""
        times: list[float] = []
        while len(times) < _MOST_WARM_UPS:
            times.append(self.run().cpu_ms)
            last = times[-_STEADY_RUNS:]
            if len(times) > _STEADY_RUNS and max(last) < min(last) * _STEADY_SPREAD:
                break
        return len(times)


async def measure(effort: Effort) -> list[Figure]:
    if shutil.which("node") is None:
        return [Figure(name="loop_ratio", value=None, note="node is not installed")]
    rounds = effort.times(15, quick=5)
    ours: list[_Run] = []
    theirs: list[_Run] = []
    with _node() as node:
        warm_ups = node.warm_up()
        effort.say(f"  Node is steady after {warm_ups} runs")
        async with warm_sandbox() as sandbox:
            for _ in range(rounds):
                ours.append(await _run_cell(sandbox))
                theirs.append(node.run())
    cpu, node_cpu = (median([run.cpu_ms for run in runs]) for runs in (ours, theirs))
    wall, node_wall = (median([run.wall_ms for run in runs]) for runs in (ours, theirs))
    details = {"rounds": float(rounds), "nodeCpuMs": node_cpu, "nodeWallMs": node_wall}
    return [
        Figure(name="loop_ratio", value=cpu / node_cpu, details=details),
        Figure(name="loop_wall_ratio", value=wall / node_wall, details={"wallMs": wall}),
        Figure(name="loop_cpu", value=cpu),
    ]


@contextmanager
def _node() -> Generator[_Node]:
    command = ["node", str(_SCRIPT), _LOOP]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8"
    ) as process:
        try:
            yield _Node(process)
        finally:
            process.kill()


async def _run_cell(sandbox: Sandbox) -> _Run:
    with CpuTimer() as cpu:
        started = time.perf_counter()
        value = await complete(sandbox.cell(_LOOP))
        wall = elapsed_ms(started)
    _check(value)
    return _Run(wall_ms=wall, cpu_ms=cpu.ms)


def _check(value: object) -> None:
    if value != _SUM:
        raise RuntimeError(f"the loop returned {value!r}, not {_SUM}")
