"""A gateway as a process, with a scripted model behind it; and its own API, as a client sees it."""

import json
import os
import subprocess
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import anyio.abc
import httpx2
from anyio.streams.buffered import BufferedByteReceiveStream
from anyio.streams.text import TextReceiveStream

from nacre.testing import RecordedRequest, ScriptedProvider, by_marker
from nacre.testing.script import Script, Turn
from tests.e2e.outside import PATIENCE_SECONDS, Outside, open_outside
from tests.forked_python import FORKED_PYTHON

TOKEN = "an-e2e-token-0123456789"
API_KEY = "sk-e2e-key-that-nobody-may-log-0123456789"
PLUGINS = Path(__file__).parent / "plugins"
TIME_SERVER = str(Path(sys.executable).with_name("mcp-server-time"))
CODE_MODE: Mapping[str, Any] = {"codeMode": {"enabled": True}}
ENDINGS = ("run.completed", "run.failed", "run.aborted", "run.interrupted")
_COMMAND = [FORKED_PYTHON, "-m", "nacre.cli.main"]


@dataclass(frozen=True, kw_only=True)
class Event:
    """A server-sent event of a run."""

    id: str
    kind: str
    data: dict[str, Any]


class ScriptedModel:
    """The provider; each conversation plays its own script, told by a marker in its prompt."""

    def __init__(self) -> None:
        self._scripts: dict[str, Script] = {}
        self.provider = ScriptedProvider(self._scripts, script_for=by_marker(r"#\d+"))

    def script(self, *turns: Turn) -> str:
        """The marker to be said in the first prompt of a conversation that plays these turns."""
        return self.play(turns)

    def play(self, script: Script) -> str:
        """The same for any script, such as a function that answers everything."""
        marker = f"#{len(self._scripts) + 1}"
        self._scripts[marker] = script
        return marker

    def requests(self, marker: str) -> list[RecordedRequest]:
        return [request for request in self.provider.requests if request.key == marker]


@dataclass(kw_only=True)
class Logs:
    """What the process has written to standard error so far."""

    text: str = ""
    _more: anyio.Event = field(default_factory=anyio.Event)

    def add(self, text: str) -> None:
        self.text += text
        self._more.set()
        self._more = anyio.Event()

    async def has(self, text: str) -> None:
        """Return when this was logged."""
        with anyio.fail_after(PATIENCE_SECONDS):
            while text not in self.text:
                await self._more.wait()


@dataclass(kw_only=True)
class Gateway:
    """One that answers."""

    process: anyio.abc.Process
    url: str
    app_url: str
    """The link that signs in a browser, once."""
    client: httpx2.AsyncClient
    logs: Logs

    async def start(self, text: str, **more: Any) -> str:
        """A run's id."""
        answer = await self.client.post("/api/runs", json={"text": text, **more})
        assert answer.status_code == 202, answer.text
        return answer.json()["runId"]

    async def finished(self, text: str, **more: Any) -> dict[str, Any]:
        """A whole run, as it is when it has ended."""
        run_id = await self.start(text, **more)
        await self.events(run_id)
        return await self.get(f"/api/runs/{run_id}")

    async def get(self, path: str) -> dict[str, Any]:
        answer = await self.client.get(path)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        answer = await self.client.post(path, json=body)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def events(self, run_id: str) -> list[Event]:
        """All of them; returns when the run has ended."""
        with anyio.fail_after(PATIENCE_SECONDS):
            return [event async for event in self.follow(run_id)]

    async def event(self, run_id: str, kind: str) -> Event:
        """The first of this kind."""
        with anyio.fail_after(PATIENCE_SECONDS):
            async for event in self.follow(run_id):
                if event.kind == kind:
                    return event
        raise AssertionError(f"the run {run_id} ended without {kind}")

    async def follow(self, run_id: str, last_id: str = "") -> AsyncIterator[Event]:
        headers = {"last-event-id": last_id} if last_id else {}
        path = f"/api/runs/{run_id}/events"
        async with self.client.stream("GET", path, headers=headers) as answer:
            assert answer.status_code == 200, await answer.aread()
            fields: dict[str, str] = {}
            async for line in answer.aiter_lines():
                name, _, value = line.partition(": ")
                if line:
                    fields[name] = value
                elif "data" in fields:
                    data = json.loads(fields["data"])
                    yield Event(id=fields.get("id", ""), kind=fields["event"], data=data["data"])
                    fields = {}

    async def metric(self, line: str) -> float:
        """The value of one line of the metrics."""
        text = (await self.client.get("/metrics")).text
        (found,) = [it for it in text.splitlines() if it.startswith(f"{line} ")]
        return float(found.rpartition(" ")[2])

    async def kill(self) -> None:
        self.process.kill()
        await self.process.wait()


class Home:
    """A folder with a configuration in which gateways are started, one after the other."""

    def __init__(self, folder: Path, model: ScriptedModel, outside: Outside) -> None:
        self.folder = folder
        self.model = model
        self.outside = outside

    async def configure(
        self,
        *,
        tools: Mapping[str, Any],
        plugins: Mapping[str, Mapping[str, Any]] | None = None,
        provider: Mapping[str, Any] | None = None,
        **sections: Any,
    ) -> None:
        """Write the configuration; a gateway that runs takes it over."""
        chosen: Mapping[str, Mapping[str, Any]] = {"kit": {}} if plugins is None else plugins
        scripted = {"baseUrl": self.model.provider.openai_url, "apiKey": API_KEY, "maxRetries": 0}
        document = {
            "models": {"providers": {"scripted": {**scripted, **(provider or {})}}},
            "agents": {"defaults": {"model": "scripted/model", "workspace": str(self.folder)}},
            "tools": tools,
            "plugins": {
                "entryPoints": False,
                "paths": [str(PLUGINS / name) for name in chosen],
                "entries": {
                    name: {"config": {"port": self.outside.port, **config}}
                    for name, config in chosen.items()
                },
            },
            "gateway": {"port": 0, "auth": {"token": TOKEN}},
            "storage": {"url": f"sqlite:///{self.folder}/nacre.db"},
            **sections,
        }
        path = anyio.Path(self.folder) / "nacre.json5"
        await path.write_text(json.dumps(document), encoding="utf-8")

    async def nacre(self, *arguments: str) -> str:
        """What another command says, in the same place."""
        done = await anyio.run_process(
            [*_COMMAND, *arguments], cwd=self.folder, env=await self._environment({})
        )
        return done.stdout.decode()

    @asynccontextmanager
    async def gateway(self, *arguments: str, **environment: str) -> AsyncGenerator[Gateway]:
        """A gateway that answers, until the end of the block."""
        async with (
            await anyio.open_process(
                [*_COMMAND, "gateway", "--json", *arguments],
                cwd=self.folder,
                env=await self._environment(environment),
                stdin=subprocess.DEVNULL,
            ) as process,
            anyio.create_task_group() as tasks,
        ):
            logs = Logs()
            tasks.start_soon(_read, process, logs)
            try:
                ready = await _read_ready(process, logs)
                url = ready["url"]
                headers = {"authorization": f"Bearer {TOKEN}"}
                async with httpx2.AsyncClient(
                    base_url=url, headers=headers, timeout=PATIENCE_SECONDS
                ) as client:
                    app_url = ready.get("appUrl", "")
                    yield Gateway(
                        process=process, url=url, app_url=app_url, client=client, logs=logs
                    )
            finally:
                if process.returncode is None:
                    process.kill()

    async def _environment(self, more: Mapping[str, str]) -> dict[str, str]:
        # The compiled engine is shared: compiling it takes a second.
        cache = os.environ.get("XDG_CACHE_HOME", str(await anyio.Path.home() / ".cache"))
        return {
            **{name: os.environ[name] for name in ("PATH", "SSL_CERT_FILE") if name in os.environ},
            "HOME": str(self.folder),
            "XDG_CACHE_HOME": cache,
            "NACRE_SEMANTIC_SEARCH": "off",
            **more,
        }


@asynccontextmanager
async def open_home(folder: Path) -> AsyncGenerator[Home]:
    model = ScriptedModel()
    async with model.provider, open_outside() as outside:
        yield Home(folder, model, outside)


def time_server() -> dict[str, Any]:
    """A real MCP server, for the configuration."""
    return {"servers": {"time": {"command": TIME_SERVER, "args": ["--local-timezone", "UTC"]}}}


def kinds(events: Sequence[Event]) -> list[str]:
    return [event.kind for event in events]


async def _read(process: anyio.abc.Process, logs: Logs) -> None:
    assert process.stderr is not None
    async for text in TextReceiveStream(process.stderr, errors="replace"):
        logs.add(text)


async def _read_ready(process: anyio.abc.Process, logs: Logs) -> dict[str, Any]:
    assert process.stdout is not None
    try:
        with anyio.fail_after(PATIENCE_SECONDS):
            line = await BufferedByteReceiveStream(process.stdout).receive_until(b"\n", 65_536)
    except (anyio.IncompleteRead, TimeoutError):
        raise AssertionError(f"the gateway does not answer: {logs.text}") from None
    return json.loads(line)
