"""1,000 cells suspended at once, each with a pending call, then resumed in random order."""

import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from random import Random
from typing import Any

import anyio

from benchmarks.measurement import CpuTimer, elapsed_ms, total_memory_bytes
from benchmarks.one import Effort
from benchmarks.report import Figure
from benchmarks.runtimes import settle, warm_runtime
from nacre import (
    CodeModeResult,
    CodeModeRun,
    Completed,
    RunContext,
    Runtime,
    Tool,
    ToolCall,
    Waiting,
)
from nacre.json_types import JsonObject, JsonValue

_SESSIONS = 20
_AT_ONCE = 32
_WORKERS = 4
_SEED = 20_260_901
_STEPS = ("slow", "before", "after")
_PROGRAM = """
const number = {number};
const note = (step) => tools.call("note", {{ number, step }});
const slow = note("slow");
const before = await note("before");
await yield_control("number " + number);
return {{ number, slow: await slow, before, after: await note("after") }};
"""


class _Notes:
    """A tool that counts its effects; its slow calls end when all cells are suspended."""

    def __init__(self) -> None:
        self.effects: Counter[tuple[int, str]] = Counter()
        self.are_slow_calls_over = anyio.Event()

    async def note(self, given: dict[str, Any], _call: ToolCall) -> object:
        if given["step"] == "slow":
            await self.are_slow_calls_over.wait()
        self.effects[given["number"], given["step"]] += 1
        return f"{given['number']} {given['step']}"

    def tool(self) -> Tool:
        properties: JsonObject = {"number": {"type": "integer"}, "step": {"enum": list(_STEPS)}}
        return Tool(
            name="note",
            description="Note that a step was made",
            parameters={"type": "object", "properties": properties, "required": list(properties)},
            execute=self.note,
        )


class _Fleet:
    """Programs in several sessions, and the result of each."""

    def __init__(self, runtime: Runtime, count: int) -> None:
        self.notes = _Notes()
        self.results: dict[int, list[CodeModeResult]] = {number: [] for number in range(count)}
        self._runs = [self._session(runtime, number) for number in range(_SESSIONS)]
        self._run_ids: dict[int, str] = {}

    def _session(self, runtime: Runtime, number: int) -> CodeModeRun:
        context = RunContext(session_id=f"session {number}")
        return runtime.run(tools=[self.notes.tool()], context=context)

    async def suspend(self, number: int) -> None:
        result = await self._run_of(number).exec(_PROGRAM.format(number=number))
        if not isinstance(result, Waiting):
            raise RuntimeError(f"program {number} does not wait: {result}")
        self._run_ids[number] = result.cell_id

    async def resume(self, number: int) -> None:
        self.results[number].append(await self._run_of(number).wait(self._run_ids[number]))

    def check_all_wait(self) -> None:
        """Check that every program is suspended with its slow call pending."""
        cells = [cell for run in self._runs for cell in run.cells()]
        waiting = sum(cell.state == "waiting" and len(cell.pending) == 1 for cell in cells)
        if waiting != len(self.results):
            raise RuntimeError(f"{waiting} of {len(self.results)} programs wait with a call out")

    def wrong_results(self) -> int:
        """The number of programs with a wrong value."""
        return sum(
            [each.value for each in results if isinstance(each, Completed)] != [_expected(number)]
            for number, results in self.results.items()
        )

    def wrong_effects(self) -> int:
        """The number of effects that happened twice or never."""
        wanted = Counter((number, step) for number in self.results for step in _STEPS)
        seen = self.notes.effects
        return sum(abs(seen[key] - wanted[key]) for key in seen | wanted)

    def _run_of(self, number: int) -> CodeModeRun:
        return self._runs[number % _SESSIONS]


async def measure(effort: Effort) -> list[Figure]:
    count = effort.times(1000, quick=200)
    async with warm_runtime(workers=_WORKERS, max_suspended_cells=count) as runtime:
        # The first round allocates what stays, so that the second one shows the cost of a cell.
        await _life(_Fleet(runtime, _SESSIONS * 2), Random(_SEED))
        return await _life(_Fleet(runtime, count), Random(_SEED))


async def _life(fleet: _Fleet, random: Random) -> list[Figure]:
    numbers = list(fleet.results)
    await settle()
    before = total_memory_bytes()
    suspend_wall, suspend_cpu = await _all(fleet.suspend, numbers)
    await settle()
    growth = total_memory_bytes() - before
    fleet.check_all_wait()
    fleet.notes.are_slow_calls_over.set()
    # Each is resumed twice; only one of the two may get the result.
    waits = numbers * 2
    random.shuffle(waits)
    resume_wall, resume_cpu = await _all(fleet.resume, waits)
    count = len(numbers)
    wall = {"suspendSeconds": suspend_wall, "resumeSeconds": resume_wall}
    cpu = {"suspendCpuMs": suspend_cpu / count, "resumeCpuMs": resume_cpu / count}
    return [
        Figure(name="fleet_wrong_results", value=fleet.wrong_results(), details={"runs": count}),
        Figure(name="fleet_wrong_effects", value=fleet.wrong_effects()),
        Figure(name="fleet_wall", value=suspend_wall + resume_wall, details={**wall, **cpu}),
        Figure(name="fleet_memory", value=growth / 1024 / count),
    ]


async def _all(
    act: Callable[[int], Awaitable[None]], numbers: Sequence[int]
) -> tuple[float, float]:
    """Run it for all with limited concurrency; returns wall seconds and CPU milliseconds."""
    started = time.perf_counter()
    left = list(reversed(numbers))

    async def take() -> None:
        while left:
            await act(left.pop())

    with CpuTimer() as cpu:
        async with anyio.create_task_group() as tasks:
            for _ in range(_AT_ONCE):
                tasks.start_soon(take)
    return elapsed_ms(started) / 1000, cpu.ms


def _expected(number: int) -> JsonValue:
    return {"number": number, **{step: f"{number} {step}" for step in _STEPS}}
