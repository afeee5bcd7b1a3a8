"""Suspend and resume a cell: in memory, and stored in SQLite or PostgreSQL, in one run."""

from __future__ import annotations

import statistics
import tempfile
import time
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Final

import anyio.to_thread

from benchmarks.report import Figure
from nacre import RunContext, Runtime
from nacre.code_mode.cell import Completed, Waiting
from nacre.sandbox import KeyRing, new_key
from nacre.storage import open_store
from tests.storage.conftest import run_server

if TYPE_CHECKING:
    from benchmarks.one import Effort
    from nacre.code_mode import CodeModeRun

_ROUNDS: Final = 400
_QUICK_ROUNDS: Final = 60
_WARM_UP: Final = 20
_CODE: Final = "let n = 1; await yield_control(); return n + 1"


async def measure(effort: Effort) -> list[Figure]:
    rounds = effort.times(_ROUNDS, quick=_QUICK_ROUNDS)
    async with AsyncExitStack() as stack:
        runs = await _open_runs(stack)
        times: dict[str, list[float]] = {name: [] for name in runs}
        # In turns, so that load of the machine affects them alike.
        for number in range(_WARM_UP + rounds):
            for name, run in runs.items():
                elapsed = await _suspend_and_resume(run)
                if number >= _WARM_UP:
                    times[name].append(elapsed)
    memory = statistics.median(times.pop("memory"))
    return [
        Figure(
            name=f"durable_suspend_{name}",
            value=statistics.median(found) - memory,
            details={"memoryMs": memory, "p95Ms": statistics.quantiles(found, n=20)[-1]},
        )
        for name, found in times.items()
    ]


async def _open_runs(stack: AsyncExitStack) -> dict[str, CodeModeRun]:
    folder = stack.enter_context(tempfile.TemporaryDirectory())
    database = run_server(is_durable=True)
    server = await anyio.to_thread.run_sync(database.__enter__)
    stack.push(database.__exit__)
    urls = {"memory": "", "sqlite": f"sqlite:///{folder}/nacre.db", "postgres": server.url()}
    settings: dict[str, Any] = {"durable": True}
    runs: dict[str, CodeModeRun] = {}
    for name, url in urls.items():
        store = (await stack.enter_async_context(open_store(url))).cells if url else None
        runtime = Runtime(settings, workers=1, snapshot_keys=KeyRing(new_key()), cell_store=store)
        await stack.enter_async_context(runtime)
        runs[name] = runtime.run(tools=[], context=RunContext(session_id=f"bench-{name}"))
    return runs


async def _suspend_and_resume(run: CodeModeRun) -> float:
    """The milliseconds of one suspension and one resumption."""
    started = time.perf_counter()
    waiting = await run.exec(_CODE)
    assert isinstance(waiting, Waiting)
    result = await run.wait(waiting.cell_id)
    elapsed = (time.perf_counter() - started) * 1000
    assert isinstance(result, Completed)
    return elapsed
