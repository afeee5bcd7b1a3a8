"""Nacre with its whole call path: policy, input checks, hooks and trajectory."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from serve import JAVASCRIPT, QUERY, Driver, add, generated_tool, main, slow

import nacre
from nacre import CodeMode, CodeModeResult, Completed, Tool, ToolCall, Waiting

_SUSPENDING = "await yield_control('wait'); return 1 + 1"
_SEARCH = f"return (await tools.search({QUERY!r})).length"


@nacre.tool(name="add")
async def _add(a: int, b: int) -> int:
    """Add two numbers."""
    return add(a, b)


@nacre.tool(name="slow")
async def _slow(n: int) -> int:
    """Wait."""
    return await slow(n)


async def _return_name(given: dict[str, Any], call: ToolCall) -> str:
    del given
    return call.id


def _value(result: CodeModeResult) -> Any:
    if not isinstance(result, Completed):
        raise RuntimeError(f"the program did not complete: {result}")
    return result.value


@asynccontextmanager
async def _open(tool_count: int) -> AsyncGenerator[Driver]:
    generated = (generated_tool(number) for number in range(tool_count - 2))
    tools = [
        Tool(name=name, description=description, parameters=schema, execute=_return_name)
        for name, description, schema in generated
    ]
    async with CodeMode(tools=[_add, _slow, *tools]) as code_mode:

        async def execute(code: str) -> CodeModeResult:
            return await code_mode.exec(code)

        async def run(work: str) -> Any:
            return _value(await execute(JAVASCRIPT[work]))

        async def search() -> Any:
            return _value(await execute(_SEARCH))

        async def suspend() -> Any:
            result = await execute(_SUSPENDING)
            if not isinstance(result, Waiting):
                raise RuntimeError(f"the program did not suspend: {result}")
            return _value(await code_mode.wait(result.cell_id))

        yield Driver(run=run, search=search, suspend=suspend)


if __name__ == "__main__":
    main(_open)
