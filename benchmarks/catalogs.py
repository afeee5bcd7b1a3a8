"""The cost of 10,000 tools: building the catalog, and programs that list and search them."""

import json

from benchmarks.generated_tools import MANY, generated_tools, task_queries
from benchmarks.measurement import CpuTimer, median, total_memory_bytes
from benchmarks.one import Effort
from benchmarks.report import Figure
from benchmarks.runtimes import costs, settle, value_of_program, warm_runtime, warm_up
from nacre import CodeModeRun, Runtime, Tool

_FEW = 10
_BATCH = 25
_TRIVIAL = "return 1"
_LIST = "return ALL_TOOLS.length"
_MEGABYTE = 1_000_000


async def measure(effort: Effort) -> list[Figure]:
    tools = generated_tools(MANY)
    async with warm_runtime() as runtime:
        run, building = await _build(runtime, tools)
        effort.say("  few tools and many, in turns")
        ratio = await _ratio(runtime.run(tools=tools[:_FEW]), run, effort.times(40, quick=8))
        effort.say("  listing and searching")
        await warm_up(run, _LIST)
        list_count = effort.times(100, quick=20)
        list_cpu, list_wall = await costs(run, _LIST, expected=MANY, count=list_count)
        searching = await _searches(run, effort.times(400, quick=80))
        next_run = await _next_run(runtime, tools, effort.times(10, quick=3))
    details = {"programs": float(list_count), "wallP50Ms": list_wall}
    return [
        *ratio,
        Figure(name="all_tools_cpu", value=list_cpu, details=details),
        searching,
        *building,
        next_run,
    ]


async def _build(runtime: Runtime, tools: list[Tool]) -> tuple[CodeModeRun, list[Figure]]:
    """A run with these tools, and the cost of each first step."""
    await settle()
    before = total_memory_bytes()
    with CpuTimer() as build:
        run = runtime.run(tools=tools)
    with CpuTimer() as first_program:
        await value_of_program(run, _TRIVIAL)
    await warm_up(run)
    without_index = total_memory_bytes()
    with CpuTimer() as first_search:
        await value_of_program(run, _search(task_queries(1)[0]))
    await settle()
    with_index = total_memory_bytes()
    details = {
        "catalogMb": (without_index - before) / _MEGABYTE,
        "indexMb": (with_index - without_index) / _MEGABYTE,
    }
    memory = (with_index - before) / _MEGABYTE
    return run, [
        Figure(name="catalog_build_cpu", value=build.ms),
        Figure(name="catalog_first_program_cpu", value=first_program.ms),
        Figure(name="search_cold_cpu", value=first_search.ms),
        Figure(name="catalog_memory", value=memory, details=details),
    ]


async def _next_run(runtime: Runtime, tools: list[Tool], count: int) -> Figure:
    """The cost of each further run with the same tools and one search, as in a turn of an agent."""
    query = _search(task_queries(1)[0])
    with CpuTimer() as cpu:
        for _ in range(count):
            await value_of_program(runtime.run(tools=tools), query)
    return Figure(name="catalog_next_run_cpu", value=cpu.ms / count, details={"runs": float(count)})


async def _ratio(few: CodeModeRun, many: CodeModeRun, rounds: int) -> list[Figure]:
    """Measure both alternately, so that other load on the machine affects both."""
    for run in (few, many):
        await warm_up(run)
    few_ms: list[float] = []
    many_ms: list[float] = []
    for _ in range(rounds):
        for run, samples in ((few, few_ms), (many, many_ms)):
            cpu, _ = await costs(run, _TRIVIAL, expected=1, count=_BATCH)
            samples.append(cpu)
    details = {"fewCpuMs": median(few_ms), "programs": float(rounds * _BATCH)}
    ratio = median(many_ms) / median(few_ms)
    return [
        Figure(name="catalog_ratio", value=ratio, details=details),
        Figure(name="program_cpu", value=median(many_ms)),
    ]


async def _searches(run: CodeModeRun, count: int) -> Figure:
    programs = [_search(query) for query in task_queries(count)]
    with CpuTimer() as cpu:
        found = [await value_of_program(run, program) for program in programs]
    if not all(found):
        raise RuntimeError("a search for what the tools are made of found nothing")
    return Figure(name="search_cpu", value=cpu.ms / count, details={"searches": float(count)})


def _search(query: str) -> str:
    return f"return (await tools.search({json.dumps(query)})).length"
