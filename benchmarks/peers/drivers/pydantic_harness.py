"""The code mode of the pydantic-ai harness: Monty, an interpreter of a subset of Python."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from importlib import import_module
from typing import Any

from serve import PYTHON, Driver, add, generated_tool, main, slow

_CALLS = {"add": "await add(a=1, b=2)", "add_s": "await add(a=s, b=1)", "slow": "slow(n=n)"}


@asynccontextmanager
async def _open(tool_count: int) -> AsyncGenerator[Driver]:
    toolsets = import_module("pydantic_ai.toolsets")
    tools = import_module("pydantic_ai.tools")
    managers = import_module("pydantic_ai.tool_manager")
    messages = import_module("pydantic_ai.messages")
    usage = import_module("pydantic_ai.usage")
    test_model = import_module("pydantic_ai.models.test")
    code_mode = import_module("pydantic_ai_harness.code_mode._toolset")
    functions = toolsets.FunctionToolset()
    functions.add_function(add)
    functions.add_function(slow)
    for number in range(tool_count - 2):
        name, description, _ = generated_tool(number)

        def answer(id: str, limit: int = 10) -> str:
            return f"{id} {limit}"

        functions.add_function(answer, name=name, description=description)
    toolset = code_mode.CodeModeToolset(functions, max_tool_calls=1_000)
    context = tools.RunContext(
        deps=None, model=test_model.TestModel(), usage=usage.RunUsage(), run_step=1
    )

    async def run(work: str) -> Any:
        # A run has one REPL, and a program here is a run of its own.
        mine = await toolset.for_run(context)
        async with mine:
            manager = await managers.ToolManager(mine).for_run_step(context)
            given = {"code": _format(PYTHON[work]), "restart": True}
            result = await manager.handle_call(messages.ToolCallPart("run_code", given))
        return _value(result)

    reasons = {"suspend": "cannot suspend", "search": "searches outside of programs"}
    yield Driver(run=run, reasons=reasons)


def _format(program: str) -> str:
    for name, call in _CALLS.items():
        program = program.replace(f"{{{name}}}", call)
    return program


def _value(result: Any) -> Any:
    value = getattr(result, "return_value", result)
    return value.get("result", value) if isinstance(value, dict) else value  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]


if __name__ == "__main__":
    main(_open)
