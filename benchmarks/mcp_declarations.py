"""Declarations for 1,000 tools of real MCP servers: their time, and whether they compile."""

import json
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import cycle, islice
from pathlib import Path
from typing import Final

from benchmarks.mcp_peers import PeerMissingError, real_servers, unavailable
from benchmarks.measurement import elapsed_ms, median
from benchmarks.one import Effort
from benchmarks.report import Figure
from nacre.code_mode.bridge import known_files
from nacre.code_mode.mcp_servers import list_server
from nacre.mcp_client import McpConnections
from nacre.tools import Tool
from nacre.tools.definition import OPERATION_MARK

_TOOLS_PER_SERVER: Final = 200
_COMPILER: Final = (
    Path(__file__).parents[1] / "tests" / "tools" / "declarations" / "parse_declarations.mjs"
)
_NAMES: Final = ("mcp_declarations_wall", "mcp_declarations_problems")


async def measure(effort: Effort) -> list[Figure]:
    try:
        tools = await _tools_by_server()
    except PeerMissingError as missing:
        return unavailable(_NAMES, missing)
    walls: list[float] = []
    files: dict[str, str] = {}
    for _ in range(effort.times(10, quick=3)):
        started = time.perf_counter()
        files = _rendered(tools)
        walls.append(elapsed_ms(started) / 1000)
    shortened = [path for path, text in files.items() if "/* shortened */" in text]
    if shortened:
        raise RuntimeError(f"tools are declared by name alone in {shortened}")
    details = {
        "tools": float(sum(map(len, tools.values()))),
        "characters": float(sum(map(len, files.values()))),
        "most": max(walls),
    }
    return [
        Figure(name="mcp_declarations_wall", value=median(walls), details=details),
        _problems(list(files.values())),
    ]


async def _tools_by_server() -> dict[str, list[Tool]]:
    with tempfile.TemporaryDirectory() as folder:
        async with McpConnections(real_servers(Path(folder))) as connections:
            return {
                server.name: _repeated(await server.tools()) for server in connections.servers()
            }


def _repeated(listed: Sequence[Tool]) -> list[Tool]:
    """Repeats the tools of a server under new names."""
    tools = [tool for tool in listed if not tool.name.startswith(OPERATION_MARK)]
    return [
        replace(tool, name=f"{tool.name}_{number // len(tools)}")
        for number, tool in enumerate(islice(cycle(tools), _TOOLS_PER_SERVER))
    ]


def _rendered(tools: dict[str, list[Tool]]) -> dict[str, str]:
    """All declaration files of these servers."""
    return known_files({name: list_server(name, "", listed) for name, listed in tools.items()})


def _problems(texts: list[str]) -> Figure:
    """The number of compiler errors in syntax, and in names and types."""
    name = "mcp_declarations_problems"
    done = subprocess.run(
        ["node", str(_COMPILER), "--meaning"],
        input=json.dumps(texts),
        capture_output=True,
        check=False,
        encoding="utf-8",
    )
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["node failed"])[-1]
        return Figure(name=name, value=None, note=f"the compiler does not run: {last}")
    found: list[list[str]] = json.loads(done.stdout)
    problems = [problem for problems in found for problem in problems]
    return Figure(
        name=name,
        value=len(problems),
        note=problems[0] if problems else "",
        details={"files": float(len(texts))},
    )
