"""Replay: 1,000 recorded cells run again without a difference, and the time per cell."""

import time
from typing import TYPE_CHECKING, Any, Final

from benchmarks.measurement import elapsed_ms
from benchmarks.one import Effort
from benchmarks.report import Figure
from nacre import CodeModeRun, Completed, Runtime, Tool, ToolCall, Waiting, replay

if TYPE_CHECKING:
    from nacre.json_types import JsonObject

_CELLS: Final = 1_000
_PROGRAMS: Final = (
    "return [Math.random(), Date.now(), crypto.randomUUID()]",
    "const seen = []; for (let n = 0; n < 5; n++) seen.push(await tools.echo({n})); return seen",
    "return await Promise.all([1, 2, 3, 4].map(n => tools.echo({n, r: Math.random()})))",
    "await new Promise(done => setTimeout(done, 1)); return [performance.now(), Math.random()]",
    "text('half'); await yield_control(); return [await tools.echo({}), Math.random()]",
    "return await tools.fail({}).catch(e => e.message)",
    "json(await tools.search('echo')); return ALL_TOOLS.length",
)


async def _echo(input: dict[str, Any], call: ToolCall) -> object:
    return input


async def _fail(input: dict[str, Any], call: ToolCall) -> object:
    raise ValueError("no luck")


async def measure(effort: Effort) -> list[Figure]:
    count = effort.times(_CELLS, quick=100)
    any_object: JsonObject = {"type": "object"}
    tools = [
        Tool(name="echo", description="Return the input", parameters=any_object, execute=_echo),
        Tool(name="fail", parameters=any_object, execute=_fail),
    ]
    async with Runtime(workers=1) as runtime:
        run = runtime.run(tools=tools)
        started = time.perf_counter()
        for number in range(count):
            await _run_to_end(run, _PROGRAMS[number % len(_PROGRAMS)])
        recorded_ms = elapsed_ms(started)
        effort.say(f"  replaying {count} cells")
        started = time.perf_counter()
        replayed = await replay(run.trajectory.events, sandbox=runtime.sandbox)
        replayed_ms = elapsed_ms(started)
    assert len(replayed.cells) == count
    differences = sum(bool(cell.difference) for cell in replayed.cells)
    return [
        Figure(
            name="replay_differences",
            value=differences,
            note=replayed.difference,
            details={"cells": count},
        ),
        Figure(name="replay_cell_mean", value=replayed_ms / count),
        Figure(name="recorded_cell_mean", value=recorded_ms / count),
    ]


async def _run_to_end(run: CodeModeRun, code: str) -> None:
    result = await run.exec(code)
    while isinstance(result, Waiting):
        result = await run.wait(result.cell_id)
    assert isinstance(result, Completed), result
