"""A turn in Codex, compared with the same turn by a bare JSON-RPC client; and aborts of turns.

Both use the same binary and the same scripted model, and each keeps one thread for all turns, as a
session does. Aborts are measured in each state of a turn, until the run has ended.
"""

import json
import tempfile
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import anyio
from anyio import to_thread

from benchmarks.measurement import elapsed_ms, median, percentile
from benchmarks.one import Effort
from benchmarks.report import Figure
from nacre.agent import AgentRun, RunEvent, TurnRequest
from nacre.bootstrap import System, open_system
from nacre.codex_harness import AppServerClient, AppServers
from nacre.config import SystemConfig, system_config_from
from nacre.json_types import JsonObject, JsonValue
from nacre.plugins import MANIFEST_NAME
from nacre.testing import Call, Say, ScriptedProvider, Stall
from nacre.testing.script import PlainTurn, RecordedRequest

_SESSIONS: Final = 4
_PLUGIN: Final = """
import anyio

async def hold() -> None:
    "Wait until the call is aborted."
    await anyio.sleep_forever()

def register(api):
    api.add_tool(hold)
"""
_HOLD: Final = "hold: "
# What the model says, and the event that shows that the state is reached.
_STATES: Final[dict[str, tuple[PlainTurn, Callable[[RunEvent], bool]]]] = {
    "model": ((Say("I think "), Stall()), lambda event: event.kind == "text.delta"),
    "shell": (
        (Call("exec_command", {"cmd": "sleep 600", "yield_time_ms": 600_000}),),
        lambda event: event.kind == "call.started",
    ),
    "tool": (
        (Call("hold", {}),),
        lambda event: event.kind == "call.started",
    ),
    "approval": (
        (Call("list", {"path": "."}),),
        lambda event: event.kind == "approval.requested",
    ),
}


def _answer(request: RecordedRequest) -> PlainTurn:
    state = request.prompt.partition(_HOLD)[2]
    if state in _STATES and not request.tool_results:
        return _STATES[state][0]
    return Say("done")


async def measure(effort: Effort) -> list[Figure]:
    turns, aborts = effort.times(60, quick=8), effort.times(10, quick=3)
    with tempfile.TemporaryDirectory() as folder:
        async with ScriptedProvider(_answer) as provider:
            config = await to_thread.run_sync(
                partial(_read_config, Path(folder), provider.openai_url)
            )
            async with (
                open_system(config, workers=1) as system,
                _open_bare(config, provider.openai_url) as bare,
            ):
                figures = await _measure_turns(system, bare, turns)
                effort.say("aborts")
                figures += await _measure_aborts(system, aborts)
                figures.append(await _measure_sessions(system, effort.times(10, quick=3)))
    return figures


async def _measure_turns(system: System, bare: "_BareThread", count: int) -> list[Figure]:
    walls: dict[str, list[float]] = {"nacre": [], "bare": []}
    # By turns, so that another load of the machine meets both; the first of each warms up.
    for number in range(count + 1):
        for name, run in (("nacre", partial(_run_turn, system, "bench")), ("bare", bare.run)):
            started = time.perf_counter()
            await run()
            if number:
                walls[name].append(elapsed_ms(started))
    added = [a - b for a, b in zip(walls["nacre"], walls["bare"], strict=True)]
    p50 = {name: median(found) for name, found in walls.items()}
    return [
        Figure(
            name="codex_turn_p50",
            value=p50["nacre"],
            details={"p95": percentile(walls["nacre"], 95)},
        ),
        Figure(name="codex_turn_bare_p50", value=p50["bare"]),
        Figure(name="codex_turn_added", value=median(added), details={"least": min(added)}),
        Figure(name="codex_turn_ratio", value=p50["nacre"] / p50["bare"]),
    ]


async def _measure_aborts(system: System, count: int) -> list[Figure]:
    figures: list[Figure] = []
    for state, (_, is_reached) in _STATES.items():
        walls: list[float] = []
        for number in range(count):
            run = await _start(system, f"abort-{state}-{number}", f"{_HOLD}{state}")
            async for event in run.events.follow():
                if is_reached(event):
                    break
            started = time.perf_counter()
            await system.agents.abort(run.id)
            walls.append(elapsed_ms(started))
            if run.state != "aborted":
                raise RuntimeError(f"the turn ended as {run.state}")
        figures.append(
            Figure(name=f"codex_abort_{state}", value=max(walls), details={"p50": median(walls)})
        )
    return figures


async def _measure_sessions(system: System, count: int) -> Figure:
    """Four sessions at once in one process, compared with one: the time of a turn of each."""
    alone: list[float] = []
    together: list[float] = []
    for number in range(count + 1):
        started = time.perf_counter()
        await _run_turn(system, "session-0")
        if number:
            alone.append(elapsed_ms(started))
        started = time.perf_counter()
        async with anyio.create_task_group() as tasks:
            for index in range(_SESSIONS):
                tasks.start_soon(_run_turn, system, f"session-{index}")
        if number:
            together.append(elapsed_ms(started))
    return Figure(name="codex_sessions_ratio", value=median(together) / median(alone))


def _read_config(folder: Path, url: str) -> SystemConfig:
    place = folder / "holder"
    place.mkdir()
    (place / MANIFEST_NAME).write_text(json.dumps({"id": "holder"}), encoding="utf-8")
    (place / "plugin.py").write_text(_PLUGIN, encoding="utf-8")
    provider = {"api": "openai-responses", "baseUrl": url, "apiKey": "sk-of-the-mock"}
    document = {
        "models": {"providers": {"mock": {**provider, "agentRuntime": {"id": "codex"}}}},
        "agents": {"defaults": {"model": "mock/gpt-5.5"}},
        "tools": {"fs": {"ask": "always"}},
        "plugins": {
            "paths": [str(place)],
            "entryPoints": False,
            "entries": {"codex": {"config": {"codexDynamicToolsLoading": "direct"}}},
        },
    }
    environment = {
        "HOME": str(folder),
        "XDG_STATE_HOME": str(folder / "state"),
        "XDG_DATA_HOME": str(folder / "data"),
    }
    return system_config_from(document, environment=environment, folder=folder)


async def _start(system: System, session: str, message: str) -> AgentRun:
    return await system.agents.start(TurnRequest(message=message, session_key=session))


async def _run_turn(system: System, session: str) -> None:
    result = await (await _start(system, session, "say done")).wait()
    if result.text != "done":
        raise RuntimeError(f"the turn ended with {result.error or result.text!r}")


class _BareThread:
    """One thread of a client that does nothing but wait for the end of each turn."""

    def __init__(self, client: AppServerClient, thread_id: str) -> None:
        self._client = client
        self._thread_id = thread_id
        self._ended = anyio.Event()
        client.subscribe(thread_id, self)

    async def run(self) -> None:
        self._ended = anyio.Event()
        text: JsonObject = {"type": "text", "text": "say done"}
        params: JsonObject = {"threadId": self._thread_id, "input": [text]}
        await self._client.request("turn/start", params)
        await self._ended.wait()

    def on_notification(self, method: str, params: JsonObject, /) -> None:
        if method == "turn/completed":
            self._ended.set()

    async def on_request(self, method: str, params: JsonObject, /) -> JsonValue:
        raise RuntimeError(f"Codex asks for {method}")


@asynccontextmanager
async def _open_bare(config: SystemConfig, url: str) -> AsyncGenerator[_BareThread]:
    folder = config.codex.homes.parent
    async with AppServers() as servers, servers.use(config.codex, "bare") as client:
        started: Any = await client.request(
            "thread/start",
            {
                "model": "gpt-5.5",
                "modelProvider": "bare",
                "cwd": str(folder),
                "approvalPolicy": "never",
                "sandbox": "danger-full-access",
                "config": {
                    "model_providers.bare": {
                        "name": "bare",
                        "base_url": url,
                        "wire_api": "responses",
                        "requires_openai_auth": False,
                        "supports_websockets": False,
                    }
                },
            },
        )
        yield _BareThread(client, str(started["thread"]["id"]))
