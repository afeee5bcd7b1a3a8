"""A gateway on a port of this machine, with a scripted model behind it."""

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import anyio.to_thread
import httpx2
from fastapi import FastAPI

from nacre.agent import AgentRun
from nacre.bootstrap import System, open_system
from nacre.config.system import system_config_from
from nacre.gateway.app import create_app
from nacre.gateway.web import ASSETS
from nacre.testing import ScriptedProvider
from nacre.testing.http_server import serving
from nacre.testing.script import Script

TOKEN = "0123456789abcdef-test"
# Longer than any sound run takes on a busy machine.
PATIENCE_SECONDS = 50
CODE_MODE: Mapping[str, object] = {"tools": {"codeMode": {"enabled": True}}}
DURABLE: Mapping[str, object] = {"tools": {"codeMode": {"enabled": True, "durable": True}}}


@dataclass(kw_only=True)
class World:
    """What a test holds."""

    system: System
    app: FastAPI
    url: str
    client: httpx2.AsyncClient
    model: ScriptedProvider

    async def start(self, text: str = "hello", **more: object) -> dict[str, Any]:
        answer = await self.client.post("/api/runs", json={"text": text, **more})
        assert answer.status_code == 202, answer.text
        return answer.json()

    async def finished(self, text: str = "hello", **more: object) -> dict[str, Any]:
        """A whole run, as it was when it had ended."""
        started = await self.start(text, **more)
        await self.end_of(started["runId"])
        return await self.get(f"/api/runs/{started['runId']}")

    async def end_of(self, run_id: str) -> None:
        run = self.run(run_id)
        with anyio.fail_after(PATIENCE_SECONDS):
            await run.wait()

    async def wait_for_event(self, run_id: str, kind: str) -> None:
        with anyio.fail_after(PATIENCE_SECONDS):
            async for event in self.follow(f"/api/runs/{run_id}/events"):
                if event.kind == kind:
                    return
        raise AssertionError(f"the run {run_id} has no event {kind}")

    def run(self, run_id: str) -> AgentRun:
        run = self.system.agents.run(run_id)
        assert run is not None
        return run

    async def get(self, path: str, **options: Any) -> dict[str, Any]:
        answer = await self.client.get(path, **options)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def events(self, path: str, **options: Any) -> "list[Event]":
        with anyio.fail_after(PATIENCE_SECONDS):
            return [event async for event in self.follow(path, **options)]

    async def follow(self, path: str, **options: Any) -> "AsyncIterator[Event]":
        async with self.client.stream("GET", path, **options) as answer:
            assert answer.status_code == 200, await answer.aread()
            fields: dict[str, str] = {}
            async for line in answer.aiter_lines():
                name, _, value = line.partition(": ")
                if line:
                    fields[name] = value
                elif "data" in fields:
                    yield Event(kind=fields["event"], id=fields.get("id", ""), text=fields["data"])
                    fields = {}


@dataclass(frozen=True, kw_only=True)
class Event:
    """A server-sent event."""

    kind: str
    id: str
    text: str


@asynccontextmanager
async def open_gateway(
    folder: Path, script: Script = (), document: Mapping[str, object] | None = None
) -> AsyncGenerator[World]:
    async with ScriptedProvider(script) as model, open_world(folder, model, document) as world:
        yield world


@asynccontextmanager
async def open_world(
    folder: Path,
    model: ScriptedProvider,
    document: Mapping[str, object] | None = None,
    *,
    assets: Path = ASSETS,
) -> AsyncGenerator[World]:
    """The same folder once more is the gateway after a restart; with `DURABLE`, it continues the
    turns that wait."""
    scripted = {"baseUrl": model.openai_url, "apiKey": "x", "maxRetries": 0}
    given = dict(document or {})
    whole = {
        "models": {"providers": {"scripted": scripted}},
        "storage": {"url": f"sqlite:///{folder}/nacre.db"},
        "sandbox": {"snapshotKeys": {"file": str(folder / "keys")}},
        **given,
        "agents": {
            "defaults": {"model": "scripted/model", "workspace": str(folder)},
            **_object(given, "agents"),
        },
        "gateway": {"auth": {"token": TOKEN}, **_object(given, "gateway")},
    }
    config = await anyio.to_thread.run_sync(
        partial(system_config_from, whole, environment={}, folder=folder)
    )
    is_durable = given.get("tools") == DURABLE["tools"]
    async with open_system(config, workers=1, continues_turns=is_durable) as system:
        app = create_app(system, assets=assets)
        if is_durable:
            await system.agents.continue_turns()
        headers = {"authorization": f"Bearer {TOKEN}"}
        async with (
            serving(app) as url,
            httpx2.AsyncClient(base_url=url, headers=headers, timeout=PATIENCE_SECONDS) as client,
        ):
            yield World(system=system, app=app, url=url, client=client, model=model)


def error_of(answer: httpx2.Response) -> tuple[int, str]:
    """The status and the code of an error response."""
    return answer.status_code, answer.json()["error"]["code"]


def _object(document: Mapping[str, object], key: str) -> dict[str, Any]:
    found: Any = document.get(key, {})
    return found
