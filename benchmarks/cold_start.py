"""Cold start: the `nacre` command, a script, and a sandbox in a process, until the first result."""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.measurement import elapsed_ms, ended_cpu_seconds, median
from benchmarks.one import Effort
from benchmarks.report import Figure
from benchmarks.sandboxes import TRIVIAL, complete
from nacre.sandbox import Sandbox, SandboxOptions

_COMMAND = [str(Path(sys.executable).with_name("nacre")), "exec", "-e", TRIVIAL]
_SCRIPT = f"""
import asyncio
from nacre import CodeMode

async def main():
    async with CodeMode() as code_mode:
        result = await code_mode.exec({TRIVIAL!r})
        assert type(result).__name__ == "Completed", result

asyncio.run(main())
"""


async def measure(effort: Effort) -> list[Figure]:
    count = effort.times(20, quick=10)
    figures = [
        *_process("nacre_exec", _COMMAND, count),
        *_process("code_mode_script", [sys.executable, "-c", _SCRIPT], count),
        *_process("import_asyncio", [sys.executable, "-c", "import asyncio"], count),
    ]
    effort.say("  sandboxes")
    await _first_result(None)
    warm = [await _first_result(None) for _ in range(effort.times(20, quick=10))]
    empty: list[float] = []
    for _ in range(effort.times(3, quick=1)):
        with tempfile.TemporaryDirectory() as directory:
            empty.append(await _first_result(Path(directory, "cache")))
    return [
        *figures,
        Figure(name="first_result_warm", value=median(warm), details={"most": max(warm)}),
        Figure(name="first_result_empty", value=median(empty), details={"most": max(empty)}),
    ]


def _process(name: str, command: list[str], count: int) -> list[Figure]:
    """The wall and CPU seconds of a whole process and its children."""
    names = (f"{name}_wall", f"{name}_cpu")
    # The bytecode cache must be warm too.
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    walls: list[float] = []
    cpus: list[float] = []
    for _ in range(1 + count):
        cpu = ended_cpu_seconds()
        started = time.perf_counter()
        done = subprocess.run(command, env=environment, capture_output=True, check=False)
        walls.append(elapsed_ms(started) / 1000)
        cpus.append(ended_cpu_seconds() - cpu)
        if done.returncode != 0:
            note = (done.stderr.decode(errors="replace").strip().splitlines() or ["it failed"])[-1]
            return [Figure(name=name, value=None, note=note) for name in names]
    values = (median(walls[1:]), median(cpus[1:]))
    details = {"runs": float(count), "least": min(walls[1:]), "most": max(walls[1:])}
    return [
        Figure(name=name, value=value, details=details if name.endswith("_wall") else {})
        for name, value in zip(names, values, strict=True)
    ]


async def _first_result(cache_directory: Path | None) -> float:
    started = time.perf_counter()
    async with Sandbox(SandboxOptions(cache_directory=cache_directory)) as sandbox:
        await complete(sandbox.cell(TRIVIAL))
        return elapsed_ms(started)
