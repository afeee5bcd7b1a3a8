"""Suspend and resume a cell: in memory, and stored in SQLite or PostgreSQL, in one run.

`python -m benchmarks.durable_suspend [postgresql://...]`; without a URL, it measures only SQLite.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Final

import anyio

from nacre import RunContext, Runtime
from nacre.code_mode.results import Completed, Waiting
from nacre.sandbox import KeyRing, new_key
from nacre.storage import open_store

if TYPE_CHECKING:
    from nacre.code_mode import CodeModeRun

_ROUNDS: Final = 400
_WARM_UP: Final = 20
_CODE: Final = "let n = 1; await yield_control(); return n + 1"
_MAX_EXTRA_MS: Final = {"sqlite": 3.0, "postgresql": 4.0}


async def _measure(run: CodeModeRun) -> float:
    """The milliseconds of one suspension and one resumption."""
    started = time.perf_counter()
    waiting = await run.exec(_CODE)
    assert isinstance(waiting, Waiting)
    result = await run.wait(waiting.cell_id)
    elapsed = (time.perf_counter() - started) * 1000
    assert isinstance(result, Completed)
    return elapsed


async def main(url: str = "") -> None:
    """Measure all places in turns, so that load of the machine affects them alike."""
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        urls = {"sqlite": f"sqlite:///{folder}/nacre.db"}
        if url:
            urls["postgresql"] = url
        runs: dict[str, CodeModeRun] = {}
        settings: dict[str, Any] = {"durable": True}
        for name in ("memory", *urls):
            store = None
            if name in urls:
                store = (await stack.enter_async_context(open_store(urls[name]))).cells
            runtime = Runtime(
                settings, workers=1, snapshot_keys=KeyRing(new_key()), cell_store=store
            )
            await stack.enter_async_context(runtime)
            runs[name] = runtime.run(tools=[], context=RunContext(session_id=f"bench-{name}"))
        times: dict[str, list[float]] = {name: [] for name in runs}
        for number in range(_WARM_UP + _ROUNDS):
            for name, run in runs.items():
                elapsed = await _measure(run)
                if number >= _WARM_UP:
                    times[name].append(elapsed)
    memory = statistics.median(times["memory"])
    for name, found in times.items():
        middle = statistics.median(found)
        late = statistics.quantiles(found, n=20)[-1]
        target = f", target {_MAX_EXTRA_MS[name]:g} ms more" if name in _MAX_EXTRA_MS else ""
        print(
            f"{name:10} median {middle:6.2f} ms  p95 {late:6.2f} ms  "
            f"{middle - memory:+6.2f} ms against memory{target}"
        )


if __name__ == "__main__":
    anyio.run(main, sys.argv[1] if len(sys.argv) > 1 else "")
