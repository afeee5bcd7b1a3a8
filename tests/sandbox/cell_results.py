"""Running a program to its value or its failure."""

import anyio

from nacre.json_types import JsonValue
from nacre.sandbox import Completed, Failed, HostRequest, Limits, Sandbox


async def echo(request: HostRequest) -> JsonValue:
    """A handler that answers a request with its payload."""
    return request.payload


async def value_of(sandbox: Sandbox, code: str) -> JsonValue:
    """Run a program that completes, and return its value."""
    with anyio.fail_after(50):
        result = await sandbox.cell(code, functions=("echo",), handler=echo).run()
    assert isinstance(result, Completed), result
    return result.value


async def failure_of(sandbox: Sandbox, code: str, limits: Limits | None = None) -> Failed:
    """Run a program that fails, and return its failure."""
    with anyio.fail_after(50):
        result = await sandbox.cell(code, limits=limits, functions=("echo",), handler=echo).run()
    assert isinstance(result, Failed), result
    return result
