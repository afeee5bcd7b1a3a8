"""A minimal MCP client over stdio; the SDK would add its import time and overhead."""

import json
import os
import subprocess
import tempfile
import threading
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Final

import psutil

_PATIENCE_SECONDS: Final = 60
_HELLO: Final[dict[str, Any]] = {
    "protocolVersion": "2025-06-18",
    "capabilities": {},
    "clientInfo": {"name": "benchmark", "version": "1"},
}
# With a warm bytecode cache, and without the user's configuration.
_LEFT_OUT: Final = ("PYTHONDONTWRITEBYTECODE", "NACRE_CONFIG")


class McpWire:
    """A blocking client of one process."""

    def __init__(self, process: subprocess.Popen[bytes], errors: IO[bytes]) -> None:
        self._process = process
        self._errors = errors
        self._last_id = 0

    def list_tools(self) -> list[dict[str, Any]]:
        """Perform the handshake and list all tools."""
        self._ask("initialize", _HELLO)
        self._send({"method": "notifications/initialized"})
        page = self._ask("tools/list", {})
        tools: list[dict[str, Any]] = page["tools"]
        while cursor := page.get("nextCursor"):
            page = self._ask("tools/list", {"cursor": cursor})
            tools += page["tools"]
        return tools

    def processes(self) -> list[psutil.Process]:
        """The running child processes."""
        return psutil.Process(self._process.pid).children(recursive=True)

    def _ask(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        self._last_id += 1
        self._send({"id": self._last_id, "method": method, "params": params})
        while True:
            message = self._next_message()
            # Notifications may arrive at any time.
            if message.get("id") == self._last_id and "method" not in message:
                if "result" not in message:
                    raise RuntimeError(f"{method} was refused: {message}")
                return message["result"]

    def _send(self, message: Mapping[str, Any]) -> None:
        pipe = _pipe(self._process.stdin)
        pipe.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        pipe.flush()

    def _next_message(self) -> dict[str, Any]:
        line = _pipe(self._process.stdout).readline()
        if not line:
            self._errors.seek(0)
            said = self._errors.read().decode(errors="replace")
            raise RuntimeError(f"{self._process.args!r} ended without an answer: {said}")
        return json.loads(line)


@contextmanager
def mcp_process(
    command: Sequence[str], *, folder: Path, env: Mapping[str, str] | None = None
) -> Generator[McpWire]:
    """An MCP server process in a directory with its own configuration."""
    environment = {
        **{key: value for key, value in os.environ.items() if key not in _LEFT_OUT},
        "XDG_CONFIG_HOME": str(folder),
        **(env or {}),
    }
    with (
        tempfile.TemporaryFile() as errors,
        subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            cwd=folder,
            env=environment,
        ) as process,
    ):
        alarm = threading.Timer(_PATIENCE_SECONDS, process.kill)
        alarm.start()
        try:
            yield McpWire(process, errors)
            _pipe(process.stdin).close()
            if process.wait() < 0:
                raise RuntimeError(f"{command} did not end with its input; it was killed")
        finally:
            alarm.cancel()
            process.kill()


def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
    if pipe is None:
        raise RuntimeError("the process was started without pipes")
    return pipe
