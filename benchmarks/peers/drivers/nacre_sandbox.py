"""The sandbox of Nacre alone: host calls without policy, checks and trajectory."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from serve import JAVASCRIPT, Driver, add, main, slow

from nacre.json_types import JsonValue
from nacre.sandbox import Completed, HostRequest, Sandbox, SandboxOptions, Waiting

_SUSPENDING = "await yield_control('wait'); return 1 + 1"


async def _handle(request: HostRequest) -> JsonValue:
    given: Any = request.payload
    return add(**given) if request.method == "add" else await slow(**given)


def _value(result: object) -> Any:
    if not isinstance(result, Completed):
        raise RuntimeError(f"the cell did not complete: {result}")
    return result.value


@asynccontextmanager
async def _open(tool_count: int) -> AsyncGenerator[Driver]:
    del tool_count
    async with Sandbox(SandboxOptions()) as sandbox:

        async def run(work: str) -> Any:
            code = JAVASCRIPT[work].replace("tools.", "")
            cell = sandbox.cell(code, functions=("add", "slow"), handler=_handle)
            return _value(await cell.run())

        async def suspend() -> Any:
            cell = sandbox.cell(_SUSPENDING)
            if not isinstance(await cell.run(), Waiting):
                raise RuntimeError("the cell did not suspend")
            return _value(await cell.resume())

        yield Driver(run=run, suspend=suspend, reasons={"search": "has no tools"})


if __name__ == "__main__":
    main(_open)
