"""FastMCP's code mode: Monty, an interpreter of a subset of Python, in a subprocess."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from importlib import import_module
from typing import Any

from serve import PYTHON, QUERY, Driver, add, generated_tool, main, slow

_CALLS = {
    "add": "(await call_tool('add', {'a': 1, 'b': 2}))['result']",
    "add_s": "(await call_tool('add', {'a': s, 'b': 1}))['result']",
    "slow": "call_tool('slow', {'n': n})",
}


@asynccontextmanager
async def _open(tool_count: int) -> AsyncGenerator[Driver]:
    fastmcp = import_module("fastmcp")
    code_mode = import_module("fastmcp.experimental.transforms.code_mode")
    server = fastmcp.FastMCP("bench", transforms=[code_mode.CodeMode(max_tool_calls=None)])
    server.tool(add)
    server.tool(slow)
    for number in range(tool_count - 2):
        name, description, _ = generated_tool(number)

        def answer(id: str, limit: int = 10) -> str:
            return f"{id} {limit}"

        server.tool(answer, name=name, description=description)

    async with fastmcp.Client(server) as client:

        async def run(work: str) -> Any:
            *lines, last = _format(PYTHON[work]).split("\n")
            code = "\n".join([*lines, f"return {last}"])
            result = await client.call_tool("execute", {"code": code})
            return json.loads(result.content[0].text)

        async def search() -> Any:
            return len((await client.call_tool("search", {"query": QUERY})).content)

        yield Driver(run=run, search=search, reasons={"suspend": "cannot suspend"})


def _format(program: str) -> str:
    for name, call in _CALLS.items():
        program = program.replace(f"{{{name}}}", call)
    return program


if __name__ == "__main__":
    main(_open)
