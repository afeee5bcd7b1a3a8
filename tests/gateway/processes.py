"""A gateway as a process of its own, as a shell starts it."""

import json
import os
import signal
import subprocess
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.abc
import httpx2
from anyio.streams.buffered import BufferedByteReceiveStream

from nacre.testing import ScriptedProvider
from tests.forked_python import FORKED_PYTHON
from tests.gateway.worlds import TOKEN

# Longer than any sound gateway needs on a busy machine.
PATIENCE_SECONDS = 90
_COMMAND = ["-m", "nacre.cli.main", "gateway"]


class GatewayProcess:
    """One that a test started."""

    def __init__(self, process: anyio.abc.Process) -> None:
        assert process.stdout is not None
        assert process.stderr is not None
        self.process = process
        self.stdout = BufferedByteReceiveStream(process.stdout)
        self.stderr = BufferedByteReceiveStream(process.stderr)

    async def line(self) -> str:
        """The next line that it prints."""
        with anyio.fail_after(PATIENCE_SECONDS):
            return (await self.stdout.receive_until(b"\n", 65_536)).decode()

    async def logged(self, *texts: str) -> str:
        """The next line of the log with one of these."""
        with anyio.fail_after(PATIENCE_SECONDS):
            while True:
                line = (await self.stderr.receive_until(b"\n", 65_536)).decode()
                if any(text in line for text in texts):
                    return line

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    async def wait(self) -> int:
        with anyio.fail_after(PATIENCE_SECONDS):
            return await self.process.wait()


@asynccontextmanager
async def gateway_process(
    folder: Path, *arguments: str, python: str = FORKED_PYTHON
) -> AsyncGenerator[GatewayProcess]:
    """At home in the folder, and nowhere else. `sys.executable` starts it as a shell does."""
    names = ("PATH", "SSL_CERT_FILE", "XDG_CACHE_HOME")
    kept = {name: os.environ[name] for name in names if name in os.environ}
    # The compiled engine is shared: compiling it takes a second.
    cache = os.environ.get("XDG_CACHE_HOME", str(await anyio.Path.home() / ".cache"))
    async with await anyio.open_process(
        [python, *_COMMAND, *arguments],
        cwd=folder,
        env={**kept, "HOME": str(folder), "XDG_CACHE_HOME": cache},
        stdin=subprocess.DEVNULL,
    ) as process:
        try:
            yield GatewayProcess(process)
        finally:
            if process.returncode is None:
                process.kill()


async def config_file(
    folder: Path, model: ScriptedProvider, document: Mapping[str, Any] | None = None
) -> str:
    whole = {
        "models": {"providers": {"scripted": {"baseUrl": model.openai_url, "apiKey": "x"}}},
        "agents": {"defaults": {"model": "scripted/model"}},
        **(document or {}),
        "gateway": {"port": 0, "auth": {"token": TOKEN}, **(document or {}).get("gateway", {})},
    }
    path = anyio.Path(folder) / "nacre.json5"
    await path.write_text(json.dumps(whole), encoding="utf-8")
    return str(path)


@asynccontextmanager
async def served(
    folder: Path, config: str
) -> AsyncGenerator[tuple[GatewayProcess, httpx2.AsyncClient]]:
    """A gateway that answers."""
    async with gateway_process(folder, "--config", config, "--json") as gateway:
        url = json.loads(await gateway.line())["url"]
        headers = {"authorization": f"Bearer {TOKEN}"}
        async with httpx2.AsyncClient(base_url=url, headers=headers, timeout=60) as client:
            yield gateway, client
