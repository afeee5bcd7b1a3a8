"""quickjs-rs: QuickJS in WebAssembly by wasmtime, within the process."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from importlib import import_module
from typing import Any

from serve import JAVASCRIPT, Driver, add, main, slow


@asynccontextmanager
async def _open(tool_count: int) -> AsyncGenerator[Driver]:
    del tool_count
    engine = import_module("quickjs_rs")

    async def run(work: str) -> Any:
        with engine.Runtime() as runtime, runtime.new_context(timeout=60) as context:

            @context.function(name="add")
            async def _add(given: dict[str, int]) -> int:  # pyright: ignore[reportUnusedFunction]
                return add(**given)

            @context.function(name="slow")
            async def _slow(given: dict[str, int]) -> int:  # pyright: ignore[reportUnusedFunction]
                return await slow(**given)

            code = JAVASCRIPT[work].replace("tools.", "")
            return await context.eval_async(f"await (async () => {{ {code} }})()")

    reasons = {"suspend": "suspends only an idle VM", "search": "has no tools"}
    yield Driver(run=run, reasons=reasons)


if __name__ == "__main__":
    main(_open)
