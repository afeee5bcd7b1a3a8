"""A gateway process, and a client with little overhead."""

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

import anyio

from benchmarks.measurement import elapsed_ms

TOKEN: Final = "a-benchmark-token-0123456789"
_COMMAND: Final = [sys.executable, "-m", "nacre.cli.main", "gateway", "--json"]
_PATIENCE_SECONDS: Final = 120
PLUGIN_CODE: Final = """
import asyncio

from nacre.plugins.api import PluginApi


def register(api: PluginApi) -> None:
    async def add(a: int, b: int) -> int:
        "Add two numbers."
        return a + b

    async def hold() -> str:
        "Wait for ever."
        await asyncio.Event().wait()
        return ""

    api.add_tool(add)
    api.add_tool(hold)
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Peer:
    """A running gateway."""

    process: subprocess.Popen[bytes]
    port: int
    start_ms: float
    """The time from the start of the process to its first response."""

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


class Client:
    """A minimal client with one persistent connection; an HTTP library would add milliseconds."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def connect(cls, peer: Peer) -> Self:
        return cls(*await asyncio.open_connection("127.0.0.1", peer.port, limit=64 << 20))

    def close(self) -> None:
        self._writer.close()

    async def chat(self, text: str, **more: Any) -> dict[str, Any]:
        """Run a turn; with `user`, in a persistent session."""
        body = {"model": "nacre", "messages": [{"role": "user", "content": text}], **more}
        return await self.post("/v1/chat/completions", body)

    async def get(self, path: str) -> dict[str, Any]:
        return await self._asked("GET", path, b"")

    async def post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        return await self._asked("POST", path, json.dumps(body).encode())

    async def sessions(self) -> AsyncIterator[dict[str, Any]]:
        """All sessions with their turns and messages."""
        before = ""
        while True:
            page = await self.get(f"/api/sessions?limit=100{before}")
            for session in page["sessions"]:
                yield await self.get(f"/api/sessions/{session['id']}?turns=200")
            if not page["nextCursor"]:
                return
            before = "&before=" + page["nextCursor"].replace(" ", "%20")

    async def events(self, run_id: str) -> AsyncIterator[dict[str, Any]]:
        """The events of a run until its end; the connection is busy until then."""
        await self._send("GET", f"/api/runs/{run_id}/events", b"")
        await self._head()
        pending = b""
        while chunk := await self._chunk():
            *whole, pending = (pending + chunk).split(b"\n\n")
            for event in whole:
                if b"\ndata: " in event:
                    yield json.loads(event.partition(b"\ndata: ")[2])

    async def status_of(self, path: str, body: bytes) -> int:
        """The status of a request whose answer does not matter."""
        await self._send("POST", path, body)
        return (await self._head())[0]

    async def _asked(self, method: str, path: str, body: bytes) -> dict[str, Any]:
        await self._send(method, path, body)
        status, headers = await self._head()
        if "content-length" in headers:
            answer = await self._reader.readexactly(int(headers["content-length"]))
        else:
            chunks = [chunk async for chunk in self._chunks()]
            answer = b"".join(chunks)
        if status >= 400:
            raise RuntimeError(f"{method} {path}: {status} {answer.decode()}")
        return json.loads(answer)

    async def _send(self, method: str, path: str, body: bytes) -> None:
        head = (
            f"{method} {path} HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer {TOKEN}\r\n"
            f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        )
        self._writer.write(head.encode() + body)
        await self._writer.drain()

    async def _head(self) -> tuple[int, dict[str, str]]:
        first, *lines = (await self._reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        pairs = [line.partition(":") for line in lines]
        return int(first.split()[1]), {name.lower(): value.strip() for name, _, value in pairs}

    async def _chunks(self) -> AsyncIterator[bytes]:
        while chunk := await self._chunk():
            yield chunk

    async def _chunk(self) -> bytes:
        size = int(await self._reader.readuntil(b"\r\n"), 16)
        return (await self._reader.readexactly(size + 2))[:-2]


def write_config(
    folder: Path,
    model_url: str,
    tools: Mapping[str, Any],
    *,
    plugin_code: str = PLUGIN_CODE,
) -> None:
    """Write a configuration with one plugin, `bench`, to a directory."""
    plugin = folder / "bench"
    plugin.mkdir(exist_ok=True)
    plugin.joinpath("nacre.plugin.json").write_text(json.dumps({"id": "bench"}), encoding="utf-8")
    plugin.joinpath("plugin.py").write_text(plugin_code, encoding="utf-8")
    document = {
        "models": {"providers": {"quick": {"baseUrl": model_url, "apiKey": "x"}}},
        "agents": {"defaults": {"model": "quick/model", "workspace": str(folder)}},
        "tools": tools,
        "plugins": {"entryPoints": False, "paths": [str(plugin)]},
        "gateway": {"port": 0, "auth": {"token": TOKEN}, "maxConcurrentRuns": 500},
        "storage": {"url": f"sqlite:///{folder}/nacre.db"},
    }
    folder.joinpath("nacre.json5").write_text(json.dumps(document), encoding="utf-8")


@asynccontextmanager
async def gateway(folder: Path) -> AsyncGenerator[Peer]:
    """A gateway with the configuration in the directory."""
    peer = await asyncio.to_thread(_started, folder)
    try:
        yield peer
    finally:
        if peer.process.poll() is None:
            peer.process.terminate()
        with anyio.CancelScope(shield=True):
            await asyncio.to_thread(_ended, peer.process)


def _started(folder: Path) -> Peer:
    # With a warm bytecode cache, and without the user's configuration.
    kept = {name: value for name, value in os.environ.items() if name in ("PATH", "HOME")}
    environment = {**kept, "NACRE_SEMANTIC_SEARCH": "off"}
    with folder.joinpath("gateway.log").open("ab") as log:
        started = time.perf_counter()
        process = subprocess.Popen(
            _COMMAND, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=log
        )
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        process.wait()
        raise RuntimeError(folder.joinpath("gateway.log").read_text(encoding="utf-8")[-2000:])
    port = int(json.loads(line)["url"].rpartition(":")[2])
    _wait_until_healthy(port)
    return Peer(process=process, port=port, start_ms=elapsed_ms(started))


def _wait_until_healthy(port: int) -> None:
    import http.client

    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_PATIENCE_SECONDS)
    connection.request("GET", "/readyz")
    status = connection.getresponse().status
    connection.close()
    if status != 200:
        raise RuntimeError(f"the gateway says that it is up, and /readyz says {status}")


def _ended(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(_PATIENCE_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if process.stdout is not None:
        process.stdout.close()
