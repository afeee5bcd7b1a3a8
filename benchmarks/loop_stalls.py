"""Large results, programs and requests: how long does each stop the other sessions?"""

import asyncio
import gc
import json
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final

import anyio

import nacre
from benchmarks.gateway_model import Spoken, quick_model
from benchmarks.gateway_peer import Client, Peer, gateway, write_config
from benchmarks.measurement import elapsed_ms
from benchmarks.one import Effort
from benchmarks.report import Figure
from benchmarks.runtimes import warm_runtime
from nacre import CodeModeRun, Completed, Failed, Waiting
from nacre.config import McpServerConfig
from nacre.json_types import JsonValue
from nacre.mcp_client import McpConnections
from nacre.testing.script import Say

_TICK_SECONDS: Final = 0.002
# As long as the other works, to see how late a busy machine lets the loop run.
_IDLE_SECONDS: Final = 5
_CALLS_AT_ONCE: Final = 16
_ROWS: Final = 100_000  # 5.4 MB
_MANY_ROWS: Final = 300_000  # 16.6 MB
_LARGE_CALLS: Final = """
const calls = Array.from({ length: COUNT }, () => tools.rows({ count: ROWS }).then(
    (rows) => rows.length, (error) => error.code));
return await Promise.all(calls);
"""
_LARGE_INPUT: Final = """
const dense = Array.from({ length: 150000 }, () => ({ a: [] }));
const wide = Array.from({ length: 1000000 }, () => 0);
const calls = [dense, wide].map((rows) => tools.count({ rows }).then(
    (count) => count, (error) => error.code));
return await Promise.all(calls);
"""
_LARGE_VALUE: Final = 'return Array.from({ length: 150000 }, (_, at) => "row " + at)'
_CODE_MODE: Final[dict[str, object]] = {
    "memoryLimitBytes": 1 << 30,
    "maxOutputBytes": 8 << 20,
    "timeoutMs": 60_000,
}
_MCP_BYTES: Final = 8 << 20
# Answers each call with a text, as a server that was written without the SDK.
_MCP_SERVER: Final = """
import json, sys
text = "x" * int(sys.argv[1])
for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked:
        continue
    match asked["method"]:
        case "initialize":
            result = {"protocolVersion": asked["params"]["protocolVersion"],
                      "capabilities": {"tools": {}},
                      "serverInfo": {"name": "large", "version": "1"}}
        case "tools/list":
            result = {"tools": [{"name": "read", "inputSchema": {"type": "object"}}]}
        case "tools/call":
            result = {"content": [{"type": "text", "text": text}]}
        case _:
            result = {}
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}) + "\\n")
    sys.stdout.flush()
"""


class _Gaps:
    """The longest time between two turns of a task that only sleeps."""

    def __init__(self) -> None:
        self.longest_ms = 0.0
        self.longest_cpu_ms = 0.0
        """The CPU time of the process in a gap. Other processes do not change it much."""

    async def watch(self) -> None:
        while True:
            started, cpu = time.perf_counter(), time.process_time()
            await anyio.sleep(_TICK_SECONDS)
            self.longest_ms = max(self.longest_ms, elapsed_ms(started) - _TICK_SECONDS * 1000)
            self.longest_cpu_ms = max(self.longest_cpu_ms, (time.process_time() - cpu) * 1000)


@asynccontextmanager
async def _watching() -> AsyncGenerator[_Gaps]:
    gc.collect()
    gaps = _Gaps()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(gaps.watch)
        yield gaps
        tasks.cancel_scope.cancel()


async def measure(effort: Effort) -> list[Figure]:
    figures = await _in_process(effort)
    return [*figures, *await _in_gateway(effort)]


# Results, programs and MCP servers: in this process.


async def _in_process(effort: Effort) -> list[Figure]:
    made = {count: _rows(count) for count in (_ROWS, _MANY_ROWS)}
    gc.freeze()

    @nacre.tool
    async def rows(count: int) -> list[Any]:
        """Return rows that were made before."""
        return made[count]

    @nacre.tool
    async def count(rows: list[Any]) -> int:
        """Return the number of rows."""
        return len(rows)

    figures: list[Figure] = []
    async with warm_runtime(_CODE_MODE) as runtime:
        run = runtime.run(tools=[rows, count])
        programs = {
            "loop_stall_results": _calls(_ROWS),
            "loop_stall_large_results": _calls(_MANY_ROWS),
            "loop_stall_input": _LARGE_INPUT,
            "loop_stall_value": _LARGE_VALUE,
        }
        figures.append(await _figure("loop_stall_idle", effort, lambda: anyio.sleep(_IDLE_SECONDS)))
        for name, code in programs.items():
            figures.append(await _figure(name, effort, lambda code=code: _completed(run, code)))
        config = McpServerConfig(
            name="large",
            transport="stdio",
            command=sys.executable,
            args=("-c", _MCP_SERVER, str(_MCP_BYTES)),
        )
        async with McpConnections([config]) as connections:
            upstream = runtime.run(mcp=connections.servers())
            calls = effort.times(200, quick=48)
            figures.append(
                await _figure("loop_stall_mcp", effort, lambda: _mcp_calls(upstream, calls))
            )
    return figures


def _rows(count: int) -> list[JsonValue]:
    return [{"id": at, "name": f"customer {at}", "tags": ["a", "b"]} for at in range(count)]


def _calls(rows: int) -> str:
    return _LARGE_CALLS.replace("COUNT", str(_CALLS_AT_ONCE)).replace("ROWS", str(rows))


async def _figure(name: str, effort: Effort, work: Callable[[], Awaitable[object]]) -> Figure:
    started = time.perf_counter()
    async with _watching() as gaps:
        found = str(await work())[:200]
    seconds = elapsed_ms(started) / 1000
    cpu_ms = gaps.longest_cpu_ms
    effort.say(
        f"  {name}: {gaps.longest_ms:.0f} ms ({cpu_ms:.0f} ms CPU), {seconds:.1f} s: {found}"
    )
    details = {"cpuMs": cpu_ms, "seconds": seconds}
    return Figure(name=name, value=gaps.longest_ms, details=details)


async def _completed(run: CodeModeRun, code: str) -> JsonValue:
    result = await run.exec(code)
    while isinstance(result, Waiting):
        result = await run.wait(result.cell_id)
    # 16 results of 16.6 MB may need more memory than a program can have.
    if isinstance(result, Failed) and result.reason == "memory_limit_exceeded":
        return result.error
    if not isinstance(result, Completed):
        raise RuntimeError(f"the program did not complete: {result}")
    return result.value if len(str(result.value)) < 1000 else "a large value"


async def _mcp_calls(run: CodeModeRun, calls: int) -> str:
    code = f"""
    const calls = Array.from({{ length: {_CALLS_AT_ONCE} }}, () => MCP.large.read({{}}));
    return (await Promise.all(calls)).filter((it) => it.isError).length;
    """
    async with anyio.create_task_group() as tasks:
        for _ in range(calls // _CALLS_AT_ONCE):
            tasks.start_soon(_completed, run, code)
    return f"{calls} calls"


# Requests: a gateway in a process of its own.


async def _in_gateway(effort: Effort) -> list[Figure]:
    bodies = {
        "loop_stall_keys": _body(more={f"key{at}": 0 for at in range(640_000)}),
        "loop_stall_messages": _body([{"role": "user", "content": "a"} for _ in range(180_000)]),
        "loop_stall_history": _body([{"role": "user", "content": "a"} for _ in range(4_000)]),
        "loop_stall_prompt": _body([{"role": "user", "content": "word " * 1_600_000}]),
    }
    figures: list[Figure] = []
    with tempfile.TemporaryDirectory() as folder:
        async with quick_model(_say) as model:
            write_config(Path(folder), model.url, {"codeMode": {"enabled": True}})
            async with gateway(Path(folder)) as peer:
                await _post(peer, _body([{"role": "user", "content": "warm up"}]))
                for name, body in bodies.items():
                    figures.append(await _health(peer, name, body, effort))
                    model.asked.clear()
    return figures


def _say(_request: dict[str, Any]) -> list[Spoken]:
    return [Say("done")]


def _body(
    messages: list[dict[str, str]] | None = None, more: dict[str, int] | None = None
) -> bytes:
    messages = messages or [{"role": "user", "content": "a"}]
    body = {"model": "nacre", "messages": messages, **(more or {})}
    return json.dumps(body, separators=(",", ":")).encode()


async def _health(peer: Peer, name: str, body: bytes, effort: Effort) -> Figure:
    """The longest answer of /healthz while the gateway serves the request."""
    walls: list[float] = []
    statuses: list[int] = []

    async def ask() -> None:
        client = await Client.connect(peer)
        while True:
            started = time.perf_counter()
            await client.get("/healthz")
            walls.append(elapsed_ms(started))
            await asyncio.sleep(_TICK_SECONDS)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ask)
        await anyio.sleep(0.2)
        walls.clear()
        statuses.append(await _post(peer, body))
        await anyio.sleep(0.5)
        tasks.cancel_scope.cancel()
    effort.say(f"  {name}: {max(walls):.0f} ms, status {statuses[0]}")
    return Figure(name=name, value=max(walls), details={"bytes": len(body), "status": statuses[0]})


async def _post(peer: Peer, body: bytes) -> int:
    client = await Client.connect(peer)
    status = 0
    with suppress(ConnectionError, asyncio.IncompleteReadError):
        status = await client.status_of("/v1/chat/completions", body)
    client.close()
    return status
