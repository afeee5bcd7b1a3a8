"""One call of an MCP tool: with the SDK, in a program, and in a program of `nacre mcp`."""

import json
import os
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final, TextIO

from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp_types import CallToolResult

from benchmarks.mcp_peers import NACRE, PeerMissingError, client_file, everything, unavailable
from benchmarks.measurement import elapsed_ms, median, percentile
from benchmarks.one import Effort
from benchmarks.report import Figure
from benchmarks.runtimes import settle, value_of_program, warm_runtime, warm_up
from nacre import CodeModeRun
from nacre.mcp_client import McpConnections

_PROGRAM: Final = 'return (await MCP.everything.echo({ message: "hello" })).content[0].text'
_ANSWER: Final = "Echo: hello"
_NAMES: Final = ("mcp_call_exec_more", "mcp_call_served_more", "mcp_call_direct")
_WARM_UP_CALLS: Final = 20

_Call = Callable[[], Awaitable[object]]


async def measure(effort: Effort) -> list[Figure]:
    try:
        config = everything()
    except PeerMissingError as missing:
        return unavailable(_NAMES, missing)
    with tempfile.TemporaryDirectory() as name, _no_errors() as errors:
        file = client_file(Path(name), [config])
        upstream = StdioServerParameters(command=config.command, args=list(config.args))
        nacre = StdioServerParameters(
            command=NACRE, args=["mcp", "--servers", str(file)], env={"XDG_CONFIG_HOME": name}
        )
        async with (
            Client(stdio_client(upstream, errors)) as direct,
            Client(stdio_client(nacre, errors)) as served,
            warm_runtime() as runtime,
            McpConnections([config]) as connections,
        ):
            run = runtime.run(mcp=connections.servers())
            await warm_up(run)
            rounds = effort.times(300, quick=60)
            return await _figures(
                [lambda: _direct(direct), lambda: _exec(run), lambda: _served(served)], rounds
            )


async def _figures(calls: list[_Call], rounds: int) -> list[Figure]:
    for call in calls:
        for _ in range(_WARM_UP_CALLS):
            await _wall_ms(call)
    await settle()
    # Alternately, so that other load on the machine affects all of them.
    walls = [[await _wall_ms(call) for call in calls] for _ in range(rounds)]
    direct, within, served = ([each[kind] for each in walls] for kind in range(3))
    base = median(direct)
    return [
        Figure(name="mcp_call_exec_more", value=median(within) - base, details=_spread(within)),
        Figure(name="mcp_call_served_more", value=median(served) - base, details=_spread(served)),
        Figure(name="mcp_call_direct", value=base, details=_spread(direct)),
    ]


async def _wall_ms(call: _Call) -> float:
    started = time.perf_counter()
    answer = await call()
    wall = elapsed_ms(started)
    if answer != _ANSWER:
        raise RuntimeError(f"the call gave {answer!r}, not {_ANSWER!r}")
    return wall


async def _direct(client: Client) -> object:
    return _text(await client.call_tool("echo", {"message": "hello"}))


async def _exec(run: CodeModeRun) -> object:
    return await value_of_program(run, _PROGRAM)


async def _served(client: Client) -> object:
    return json.loads(_text(await client.call_tool("exec", {"code": _PROGRAM}))).get("value")


def _text(result: CallToolResult) -> str:
    part = result.content[0]
    if part.type != "text":
        raise RuntimeError(f"the call gave no text: {result}")
    return part.text


def _no_errors() -> TextIO:
    """Discards standard error, where servers print a greeting."""
    return open(os.devnull, "w", encoding="utf-8")


def _spread(samples: list[float]) -> dict[str, float]:
    return {
        "calls": len(samples),
        "p50Ms": median(samples),
        "p95Ms": percentile(samples, 95),
    }
