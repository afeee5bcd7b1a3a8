"""The size of tool definitions for an MCP client: real servers, and `exec` and `wait`."""

import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.mcp_peers import NACRE, PeerMissingError, client_file, real_servers, unavailable
from benchmarks.mcp_wire import mcp_process
from benchmarks.one import Effort
from benchmarks.report import Figure

_NAMES: Final = ("mcp_bytes_saved", "mcp_bytes_shown", "mcp_bytes_own")


async def measure(_effort: Effort) -> list[Figure]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        try:
            servers = real_servers(folder)
        except PeerMissingError as missing:
            return unavailable(_NAMES, missing)
        own = {
            server.name: _listed_bytes([server.command, *server.args], folder, server.env)
            for server in servers
        }
        file = client_file(folder, servers)
        shown = _listed_bytes([NACRE, "mcp", "--servers", str(file)], folder, {})
    own_bytes = sum(own.values())
    return [
        Figure(name="mcp_bytes_saved", value=100 * (1 - shown / own_bytes)),
        Figure(name="mcp_bytes_shown", value=shown),
        Figure(name="mcp_bytes_own", value=own_bytes, details=own),
    ]


def _listed_bytes(command: Sequence[str], folder: Path, env: Mapping[str, str]) -> float:
    """The bytes of all tools in the result of `tools/list`, as compact JSON."""
    with mcp_process(command, folder=folder, env=env) as wire:
        tools: list[dict[str, Any]] = wire.list_tools()
    return sum(
        len(json.dumps(tool, ensure_ascii=False, separators=(",", ":")).encode()) for tool in tools
    )
