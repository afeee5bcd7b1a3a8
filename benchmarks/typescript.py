"""TypeScript cells: the first one of a sandbox, which loads the compiler, and warm ones."""

import time

from benchmarks.measurement import CpuTimer, elapsed_ms, median
from benchmarks.one import Effort
from benchmarks.report import Figure
from benchmarks.sandboxes import value_of, warm_sandbox
from nacre.sandbox import Failed, Sandbox

# Each program is different, so that no cache replaces the compiler.
_PROGRAM = """\
interface City { name: string; population: number }
enum Size { Small, Large }
function largest<T extends City>(cities: readonly T[]): T | undefined {
  return [...cities].sort((a, b) => b.population - a.population)[0];
}
const cities = [{ name: "Oslo", population: 717_000 }, { name: "Bergen", population: %d }] as const;
const size: Size = largest(cities)!.population > 500_000 ? Size.Large : Size.Small;
return { name: largest(cities)?.name satisfies string | undefined, size };
"""
_NAMES = (
    "typescript_first_wall",
    "typescript_first_cpu",
    "typescript_warm_cpu",
    "typescript_warm_p50",
)


async def measure(effort: Effort) -> list[Figure]:
    async with warm_sandbox() as sandbox:
        result = await sandbox.cell(_PROGRAM % 0, language="typescript").run()
        if isinstance(result, Failed):
            return [Figure(name=name, value=None, note=result.error) for name in _NAMES]
    walls: list[float] = []
    cpus: list[float] = []
    for _ in range(effort.times(7, quick=3)):
        async with warm_sandbox() as sandbox:
            with CpuTimer() as cpu:
                walls.append(await _run(sandbox, 0))
            cpus.append(cpu.ms)
    firsts = (median(walls), median(cpus))
    count = effort.times(300, quick=60)
    async with warm_sandbox() as sandbox:
        for number in range(10):
            await _run(sandbox, number)
        with CpuTimer() as cpu:
            walls = [await _run(sandbox, 1000 + number) for number in range(count)]
    values = (*firsts, cpu.ms / count, median(walls))
    return [Figure(name=name, value=value) for name, value in zip(_NAMES, values, strict=True)]


async def _run(sandbox: Sandbox, number: int) -> float:
    """The milliseconds of one cell."""
    started = time.perf_counter()
    value_of(await sandbox.cell(_PROGRAM % number, language="typescript").run())
    return elapsed_ms(started)
