"""LangChain's code interpreter: quickjs-rs in a thread, with a fresh VM for each program."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from importlib import import_module
from itertools import count
from typing import Any

from serve import JAVASCRIPT, Driver, add, main, slow


async def _slow(n: int) -> int:
    """Wait."""
    return await slow(n)


async def _add(a: int, b: int) -> int:
    """Add two numbers."""
    return add(a, b)


@asynccontextmanager
async def _open(tool_count: int) -> AsyncGenerator[Driver]:
    del tool_count
    structured = import_module("langchain_core.tools").StructuredTool
    interpreter = import_module("langchain_quickjs").CodeInterpreterMiddleware(
        mode="call", ptc=["add", "slow"], max_ptc_calls=None, timeout=60, subagents=False
    )
    tools = [
        structured.from_function(name=name, coroutine=function)
        for name, function in (("add", _add), ("slow", _slow))
    ]
    # As the middleware does for each call of the model; it has no other way to run a program.
    registry = interpreter._registry
    numbers = count()
    runtime = import_module("langchain.tools").ToolRuntime(
        state={}, context=None, config={}, stream_writer=None, tool_call_id="c", store=None
    )

    async def run(work: str) -> Any:
        slot = f"slot-{next(numbers)}"
        repl = registry.get(slot)
        await asyncio.to_thread(repl.install_tools, tools)
        try:
            outcome = await repl.eval_async(
                f"await (async () => {{ {JAVASCRIPT[work]} }})()",
                outer_runtime=runtime,
                outer_loop=asyncio.get_running_loop(),
            )
        finally:
            await registry.aevict(slot)
        if outcome.error_type:
            raise RuntimeError(f"{outcome.error_type}: {outcome.error_message}")
        return float(outcome.result)

    reasons = {"suspend": "suspends only an idle VM", "search": "has no search"}
    yield Driver(run=run, reasons=reasons)


if __name__ == "__main__":
    main(_open)
