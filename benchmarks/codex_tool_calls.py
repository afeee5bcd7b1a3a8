"""A call of a Nacre tool by Codex, compared with one in the built-in loop and with a bare client.

The scripted model asks for one call after the other. A step is the time from one model request to
the next: the call, and whatever the harness does around it. The bare client answers the calls of
Codex at once, without Nacre, so its steps are the share of Codex and of the model. What a step of
Codex takes more than one of the built-in loop is therefore the sum of two figures: what Codex
itself needs, and what Nacre adds.
"""

import json
import tempfile
import time
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import anyio
from anyio import to_thread

from benchmarks.measurement import elapsed_ms, median, percentile
from benchmarks.one import Effort
from benchmarks.report import Figure
from nacre.agent import TurnRequest
from nacre.bootstrap import System, open_system
from nacre.codex_harness import AppServerClient, AppServers
from nacre.codex_harness.dynamic_tools import DynamicTools
from nacre.codex_harness.tool_specs import NAMESPACE
from nacre.config import SystemConfig, system_config_from
from nacre.json_types import JsonObject, JsonValue
from nacre.plugins import MANIFEST_NAME
from nacre.testing import Call, Say, ScriptedProvider
from nacre.testing.script import PlainTurn, RecordedRequest

_CALLS: Final = 20
_PLUGIN: Final = """
async def add_one(i: int) -> int:
    "Add one to a number."
    return i + 1

def register(api):
    api.add_tool(add_one)
"""
_TOOL: Final[JsonObject] = {
    "name": "add_one",
    "description": "Add one to a number.",
    "inputSchema": {"type": "object", "properties": {"i": {"type": "integer"}}},
    "namespace": NAMESPACE,
    "deferLoading": True,
}


class _Model:
    """Asks for one call after the other, and notes when it is asked."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def answer(self, request: RecordedRequest) -> PlainTurn:
        self.times.append(time.perf_counter())
        done = len(request.tool_results)
        if done and request.last_result != done:
            raise RuntimeError(f"call {done} returned {request.last_result!r}")
        # Codex has the tool in a namespace, and gives the model a search instead of its definition.
        namespace = NAMESPACE if "tool_search" in request.tool_names else ""
        call = Call("add_one", {"i": done}, namespace=namespace)
        return Say("done") if done == _CALLS else call

    def take_steps(self) -> list[float]:
        times, self.times = self.times, []
        if len(times) != _CALLS + 1:
            raise RuntimeError(f"the model was asked {len(times)} times, not {_CALLS + 1}")
        return [(end - start) * 1000 for start, end in pairwise(times)]


async def measure(effort: Effort) -> list[Figure]:
    rounds = effort.times(12, quick=3)
    steps: dict[str, list[float]] = {"codex": [], "bare": [], "built_in": []}
    rounds_of: dict[str, list[float]] = {name: [] for name in steps}
    model = _Model()
    answers: list[float] = []
    with tempfile.TemporaryDirectory() as folder, _time_answers(answers):
        async with ScriptedProvider(model.answer) as provider:
            config = await to_thread.run_sync(
                partial(_read_config, Path(folder), provider.openai_url)
            )
            async with (
                open_system(config, workers=1) as system,
                _open_bare(config, provider.openai_url) as bare,
            ):
                runs = {
                    "codex": partial(_run_turn, system, "mock/gpt-5.5"),
                    "bare": bare.run,
                    "built_in": partial(_run_turn, system, "plain/gpt-5.5"),
                }
                # By turns, so that another load of the machine meets all; the first warms up.
                for number in range(rounds + 1):
                    for name, run in runs.items():
                        await run()
                        found = model.take_steps()
                        if number:
                            steps[name] += found
                            rounds_of[name].append(median(found))
    p50 = {name: median(found) for name, found in steps.items()}
    # Of each round, so that another load of the machine meets both sides.
    added = [a - b for a, b in zip(rounds_of["codex"], rounds_of["bare"], strict=True)]
    return [
        Figure(
            name="codex_tool_call_p50",
            value=p50["codex"],
            details={"p95": percentile(steps["codex"], 95)},
        ),
        Figure(name="codex_tool_call_bare_p50", value=p50["bare"]),
        Figure(name="codex_tool_call_built_in_p50", value=p50["built_in"]),
        Figure(name="codex_tool_call_added", value=median(added), details={"least": min(added)}),
        Figure(name="codex_tool_call_more", value=p50["codex"] - p50["built_in"]),
        Figure(name="codex_tool_call_own", value=p50["bare"] - p50["built_in"]),
        Figure(name="codex_tool_call_answer", value=median(answers)),
        Figure(name="codex_tool_call_ratio", value=p50["codex"] / p50["bare"]),
    ]


@contextmanager
def _time_answers(times: list[float]) -> Generator[None]:
    """Note how long Nacre takes to answer each call of Codex, in milliseconds."""
    plain = DynamicTools.call

    async def call(self: DynamicTools, params: JsonObject) -> JsonObject:
        started = time.perf_counter()
        try:
            return await plain(self, params)
        finally:
            times.append(elapsed_ms(started))

    DynamicTools.call = call
    try:
        yield
    finally:
        DynamicTools.call = plain


def _read_config(folder: Path, url: str) -> SystemConfig:
    place = folder / "adder"
    place.mkdir()
    (place / MANIFEST_NAME).write_text(json.dumps({"id": "adder"}), encoding="utf-8")
    (place / "plugin.py").write_text(_PLUGIN, encoding="utf-8")
    provider = {"api": "openai-responses", "baseUrl": url, "apiKey": "sk-of-the-mock"}
    document = {
        "models": {
            "providers": {
                "mock": {**provider, "agentRuntime": {"id": "codex"}},
                "plain": provider,
            }
        },
        "agents": {"defaults": {"model": "mock/gpt-5.5", "maxSteps": _CALLS + 5}},
        "plugins": {
            "paths": [str(place)],
            "entryPoints": False,
        },
    }
    environment = {
        "HOME": str(folder),
        "XDG_STATE_HOME": str(folder / "state"),
        "XDG_DATA_HOME": str(folder / "data"),
    }
    return system_config_from(document, environment=environment, folder=folder)


async def _run_turn(system: System, model: str) -> None:
    # A new session for each, because a growing session sends more data.
    run = await system.agents.start(TurnRequest(message="count", model=model))
    result = await run.wait()
    if result.text != "done":
        raise RuntimeError(f"the turn ended with {result.error or result.text!r}")


class _BareTurns:
    """Turns of a client that does nothing but answer."""

    def __init__(self, client: AppServerClient, url: str, folder: Path) -> None:
        self._client = client
        self._url = url
        self._folder = folder
        self._ended = anyio.Event()

    async def run(self) -> None:
        self._ended = anyio.Event()
        started: Any = await self._client.request(
            "thread/start",
            {
                "model": "gpt-5.5",
                "modelProvider": "bare",
                "cwd": str(self._folder),
                "approvalPolicy": "never",
                "sandbox": "danger-full-access",
                "config": {
                    "model_providers.bare": {
                        "name": "bare",
                        "base_url": self._url,
                        "wire_api": "responses",
                        "requires_openai_auth": False,
                        "supports_websockets": False,
                    }
                },
                "dynamicTools": [_TOOL],
            },
        )
        thread_id = str(started["thread"]["id"])
        unsubscribe = self._client.subscribe(thread_id, self)
        text: JsonObject = {"type": "text", "text": "count"}
        await self._client.request("turn/start", {"threadId": thread_id, "input": [text]})
        await self._ended.wait()
        unsubscribe()

    def on_notification(self, method: str, params: JsonObject, /) -> None:
        if method == "turn/completed":
            self._ended.set()

    async def on_request(self, method: str, params: JsonObject, /) -> JsonValue:
        arguments: Any = params["arguments"]
        text: JsonObject = {"type": "inputText", "text": str(arguments["i"] + 1)}
        return {"contentItems": [text], "success": True}


@asynccontextmanager
async def _open_bare(config: SystemConfig, url: str) -> AsyncGenerator[_BareTurns]:
    folder = config.codex.homes.parent
    async with AppServers() as servers, servers.use(config.codex, "bare") as client:
        yield _BareTurns(client, url, folder)
