"""The start of `nacre mcp`, until the response to `tools/list`."""

import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil

from benchmarks.mcp_peers import NACRE, PeerMissingError, client_file, everything, unavailable
from benchmarks.mcp_wire import mcp_process
from benchmarks.measurement import elapsed_ms, ended_cpu_seconds, median
from benchmarks.one import Effort
from benchmarks.report import Figure

_SERVERS: Final = 20
_SHOWN: Final = ["exec", "wait"]
_NAMES: Final = ("mcp_serving_wall", "mcp_serving_cpu", "mcp_serving_started")


@dataclass(frozen=True, kw_only=True, slots=True)
class _Run:
    wall_seconds: float
    cpu_seconds: float
    """The CPU time of the process, which ends right after the response."""
    started_servers: int


async def measure(effort: Effort) -> list[Figure]:
    try:
        servers = [everything(f"server{number}") for number in range(_SERVERS)]
    except PeerMissingError as missing:
        return unavailable(_NAMES, missing)
    with tempfile.TemporaryDirectory() as folder:
        file = client_file(Path(folder), servers)
        _run(file)
        runs = [_run(file) for _ in range(effort.times(5, quick=3))]
    walls = [run.wall_seconds for run in runs]
    details = {"runs": float(len(runs)), "least": min(walls), "most": max(walls)}
    values = (
        median(walls),
        median([run.cpu_seconds for run in runs]),
        max(run.started_servers for run in runs),
    )
    return [
        Figure(name=name, value=value, details=details if name == "mcp_serving_wall" else {})
        for name, value in zip(_NAMES, values, strict=True)
    ]


def _run(file: Path) -> _Run:
    cpu = ended_cpu_seconds()
    started = time.perf_counter()
    with mcp_process([NACRE, "mcp", "--servers", str(file)], folder=file.parent) as wire:
        shown = [tool["name"] for tool in wire.list_tools()]
        wall = elapsed_ms(started) / 1000
        if shown != _SHOWN:
            raise RuntimeError(f"`nacre mcp` shows {shown}, not {_SHOWN}")
        servers = sum(map(_is_server, wire.processes()))
    cpu = ended_cpu_seconds() - cpu
    return _Run(wall_seconds=wall, cpu_seconds=cpu, started_servers=servers)


def _is_server(process: psutil.Process) -> bool:
    try:
        return any("server-everything" in argument for argument in process.cmdline())
    except psutil.NoSuchProcess:
        return False
