"""50 concurrent programs over five MCP servers, one of which hangs: are the others affected?"""

import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import anyio

from benchmarks.mcp_peers import PeerMissingError, everything, real_servers, unavailable
from benchmarks.measurement import elapsed_ms
from benchmarks.one import Effort
from benchmarks.report import Figure
from benchmarks.runtimes import warm_runtime
from nacre import CodeModeResult, CodeModeRun, Completed, Runtime, Waiting
from nacre.config import McpServerConfig
from nacre.mcp_client import McpConnections

_PROGRAMS_PER_SERVER: Final = 10
_PATIENCE_SECONDS: Final = 60
_CALLS: Final = {
    "everything": 'echo({ message: "hello" })',
    "filesystem": "listAllowedDirectories({})",
    "memory": "readGraph({})",
    "time": 'getCurrentTime({ timezone: "UTC" })',
}
_ENDLESS: Final = "triggerLongRunningOperation({ duration: 3600, steps: 1 })"
_NAMES: Final = ("mcp_unfinished", "mcp_neighbours_wall")


@dataclass(frozen=True, kw_only=True, slots=True)
class _Outcome:
    unfinished: int
    wall_seconds: float


async def measure(effort: Effort) -> list[Figure]:
    with tempfile.TemporaryDirectory() as name:
        try:
            servers = [each for each in real_servers(Path(name)) if each.name in _CALLS]
            hanging = {"atStart": _silent(), "inCall": everything("hanging")}
        except PeerMissingError as missing:
            return unavailable(_NAMES, missing)
        outcomes: dict[str, _Outcome] = {}
        async with warm_runtime() as runtime:
            for kind, server in hanging.items():
                effort.say(f"  one hangs {kind}")
                outcomes[kind] = await _outcome(runtime, [server, *servers])
    walls = {kind: outcome.wall_seconds for kind, outcome in outcomes.items()}
    unfinished = {kind: float(outcome.unfinished) for kind, outcome in outcomes.items()}
    return [
        Figure(name="mcp_unfinished", value=sum(unfinished.values()), details=unfinished),
        Figure(name="mcp_neighbours_wall", value=max(walls.values()), details=walls),
    ]


async def _outcome(runtime: Runtime, servers: list[McpServerConfig]) -> _Outcome:
    """Run all programs in one run, with servers that are not started yet."""
    results: dict[str, list[CodeModeResult]] = {name: [] for name in ("hanging", *_CALLS)}
    wall = 0.0
    async with McpConnections(servers) as connections, anyio.create_task_group() as tasks:
        run = runtime.run(mcp=connections.servers())

        async def program(name: str) -> None:
            results[name].append(await _result(run, name))

        for _ in range(_PROGRAMS_PER_SERVER):
            tasks.start_soon(program, "hanging")
        started = time.perf_counter()
        with anyio.move_on_after(_PATIENCE_SECONDS):
            async with anyio.create_task_group() as others:
                for _ in range(_PROGRAMS_PER_SERVER):
                    for name in _CALLS:
                        others.start_soon(program, name)
        wall = elapsed_ms(started) / 1000
        tasks.cancel_scope.cancel()
    if any(isinstance(result, Completed) for result in results["hanging"]):
        raise RuntimeError(f"the server that hangs has answered: {results['hanging']}")
    finished = sum(_is_sound(result) for name in _CALLS for result in results[name])
    return _Outcome(unfinished=len(_CALLS) * _PROGRAMS_PER_SERVER - finished, wall_seconds=wall)


async def _result(run: CodeModeRun, server: str) -> CodeModeResult:
    call = _CALLS.get(server, _ENDLESS)
    result = await run.exec(f"return (await MCP.{server}.{call}).isError === true")
    while isinstance(result, Waiting):
        result = await run.wait(result.cell_id)
    return result


def _is_sound(result: CodeModeResult) -> bool:
    return isinstance(result, Completed) and result.value is False


def _silent() -> McpServerConfig:
    """A process that reads and never answers."""
    program = "import sys; sys.stdin.read()"
    return McpServerConfig(
        name="hanging", transport="stdio", command=sys.executable, args=("-c", program)
    )
