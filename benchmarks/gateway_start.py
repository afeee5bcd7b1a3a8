"""The start of `nacre gateway`, until the first response of /readyz."""

import tempfile
from pathlib import Path

from benchmarks.gateway_peer import Peer, gateway, write_config
from benchmarks.measurement import cpu_seconds, median
from benchmarks.one import Effort
from benchmarks.report import Figure


async def measure(effort: Effort) -> list[Figure]:
    with tempfile.TemporaryDirectory() as folder:
        write_config(Path(folder), "http://127.0.0.1:9/v1", {"codeMode": {"enabled": True}})
        await _start(Path(folder))
        starts = [await _start(Path(folder)) for _ in range(effort.times(7, quick=3))]
    walls = [wall for wall, _ in starts]
    details = {"least": min(walls), "most": max(walls)}
    return [
        Figure(name="gateway_start_wall", value=median(walls), details=details),
        Figure(name="gateway_start_cpu", value=median([cpu for _, cpu in starts])),
    ]


async def _start(folder: Path) -> tuple[float, float]:
    """The seconds until the first response, and the CPU seconds in total."""
    peer: Peer
    async with gateway(folder) as peer:
        return peer.start_ms / 1000, cpu_seconds(peer.process.pid)
