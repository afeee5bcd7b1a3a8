"""Real MCP servers for the benchmarks, installed for the tests."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from benchmarks.report import Figure
from nacre.config import McpServerConfig

NACRE: Final = str(Path(sys.executable).with_name("nacre"))
_ROOT: Final = Path(__file__).parents[1]
_NPM_SERVERS: Final = _ROOT / "tooling" / "peers" / "node_modules" / "@modelcontextprotocol"


class PeerMissingError(Exception):
    """A server is not installed."""


def everything(name: str = "everything") -> McpServerConfig:
    """The reference server with all features; it takes almost a second to start."""
    return _npm(name, "server-everything", "stdio")


def real_servers(folder: Path) -> list[McpServerConfig]:
    """Five popular servers, which read and write in the directory."""
    memory = {"MEMORY_FILE_PATH": str(folder / "memory.jsonl")}
    return [
        everything(),
        _npm("filesystem", "server-filesystem", str(folder)),
        _npm("memory", "server-memory", env=memory),
        _python("git", "mcp-server-git"),
        _python("time", "mcp-server-time"),
    ]


def client_file(folder: Path, servers: Sequence[McpServerConfig]) -> Path:
    """The servers as an MCP client configuration."""
    entries = {
        server.name: {
            "command": server.command,
            "args": list(server.args),
            "env": dict(server.env),
        }
        for server in servers
    }
    file = folder / "mcp.json"
    file.write_text(json.dumps({"mcpServers": entries}), encoding="utf-8")
    return file


def unavailable(names: Sequence[str], missing: PeerMissingError) -> list[Figure]:
    return [Figure(name=name, value=None, note=str(missing)) for name in names]


def _npm(name: str, package: str, *args: str, env: dict[str, str] | None = None) -> McpServerConfig:
    script = _NPM_SERVERS / package / "dist" / "index.js"
    if not script.exists():
        raise PeerMissingError(
            f"@modelcontextprotocol/{package} is not installed; `npm ci --prefix tooling/peers`"
        )
    return McpServerConfig(
        name=name, transport="stdio", command="node", args=(str(script), *args), env=env or {}
    )


def _python(name: str, command: str) -> McpServerConfig:
    script = Path(sys.executable).with_name(command)
    if not script.exists():
        raise PeerMissingError(f"{command} is not installed beside {sys.executable}")
    return McpServerConfig(name=name, transport="stdio", command=str(script))
