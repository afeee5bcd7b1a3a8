"""The first search in 10,000 tools in new processes, and the memory of such a process.

Each process opens `CodeMode`, runs a program, and searches at once: with an empty cache of
documents, and with the one that the process before has stored.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import anyio

from benchmarks.generated_tools import MANY, generated_tools, task_queries
from benchmarks.measurement import elapsed_ms, median, total_memory_bytes
from benchmarks.one import Effort
from benchmarks.report import Figure
from nacre import CodeMode, Completed

_MEGABYTE = 1_000_000
_NEXT_SEARCHES = 40
# Much longer than building the index takes.
_SETTLE_SECONDS = 5


async def measure(effort: Effort) -> list[Figure]:
    rounds = effort.times(7, quick=2)
    empty: list[dict[str, float]] = []
    stored: list[dict[str, float]] = []
    idle: list[float] = []
    with tempfile.TemporaryDirectory() as directory:
        # The first one compiles the sandbox.
        _run(directory, 0)
        for _ in range(rounds):
            idle.append(_run(directory, 0)["memoryMb"])
            shutil.rmtree(Path(directory, "search"), ignore_errors=True)
            empty.append(_run(directory, MANY))
            stored.append(_run(directory, MANY))
            effort.say(f"  first search {empty[-1]['firstMs']:.0f} ms")
    return [
        Figure(name="first_search_empty", value=median([it["firstMs"] for it in empty])),
        Figure(name="first_search_stored", value=median([it["firstMs"] for it in stored])),
        Figure(name="next_search", value=median([it["nextMs"] for it in stored])),
        Figure(name="many_tools_memory", value=median([it["memoryMb"] for it in stored])),
        Figure(name="idle_memory", value=median(idle)),
    ]


def _run(directory: str, count: int) -> dict[str, float]:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.first_search", str(count)],
        env={**os.environ, "NACRE_CACHE_DIR": directory},
        stdout=subprocess.PIPE,
        check=True,
    )
    return json.loads(done.stdout)


async def _search(count: int) -> dict[str, float]:
    tools = generated_tools(count)
    queries = task_queries(_NEXT_SEARCHES)
    async with CodeMode(tools=tools, workers=2) as code_mode:

        async def run(program: str) -> float:
            started = time.perf_counter()
            result = await code_mode.exec(program)
            if not isinstance(result, Completed):
                raise TypeError(f"a program did not complete: {result}")
            return elapsed_ms(started)

        async with anyio.create_task_group() as tasks:
            # Both workers.
            tasks.start_soon(run, "return 1")
            tasks.start_soon(run, "return 1")
        # The second one may still start when both programs are done.
        while len(code_mode.runtime.sandbox.workers) < 2:  # noqa: ASYNC110
            await anyio.sleep(0.05)
        if not count:
            return {"memoryMb": total_memory_bytes() / _MEGABYTE}
        searches = [f"return (await tools.search({json.dumps(it)})).length" for it in queries]
        first = await run(searches[0])
        await anyio.sleep(_SETTLE_SECONDS)
        following = [await run(search) for search in searches]
        memory = total_memory_bytes() / _MEGABYTE
        return {"firstMs": first, "nextMs": median(following), "memoryMb": memory}


if __name__ == "__main__":
    print(json.dumps(anyio.run(_search, int(sys.argv[1]))))
