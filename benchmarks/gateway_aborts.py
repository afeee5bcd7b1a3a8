"""The time until an abort is confirmed, in each state of a run."""

import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import anyio

from benchmarks.gateway_model import QuickModel, Spoken, quick_model
from benchmarks.gateway_peer import Client, Peer, gateway, write_config
from benchmarks.measurement import elapsed_ms, percentile
from benchmarks.one import Effort
from benchmarks.report import Figure
from nacre.testing.script import Call

_TOOLS: Final = {"codeMode": {"enabled": True}, "fs": {"ask": "always"}}
_CLIENT_TOOL: Final = {"name": "weather", "parameters": {"type": "object"}}
_PROGRAMS: Final = {
    "tool": "return await tools.hold({})",
    "cell": "await tools.add({a: 1, b: 2}); while (true);",
    "approval": "return await tools.list({path: '.'})",
    "client": "return await tools.weather({})",
}
# The event that starts each state.
_REACHED: Final[dict[str, Callable[[dict[str, Any]], bool]]] = {
    "model": lambda event: event["kind"] == "text.delta",
    "tool": lambda event: event["kind"] == "call.started" and _is_nested(event),
    "cell": lambda event: event["kind"] == "call.ended" and _is_nested(event),
    "approval": lambda event: event["kind"] == "approval.requested",
    "client": lambda event: event["kind"] == "client_call.requested",
}


def _is_nested(event: dict[str, Any]) -> bool:
    return bool(event["data"].get("parentToolCallId"))


def _script(request: dict[str, Any]) -> list[Spoken] | None:
    state = request["messages"][-1]["content"]
    return None if state == "model" else [Call("exec", {"code": _PROGRAMS[state]})]


async def measure(effort: Effort) -> list[Figure]:
    count = effort.times(40, quick=5)
    with tempfile.TemporaryDirectory() as folder:
        async with quick_model(_script) as model:
            write_config(Path(folder), model.url, _TOOLS)
            async with gateway(Path(folder)) as peer:
                walls: dict[str, list[float]] = {}
                for state in _REACHED:
                    walls[state] = [await _abort(peer, model, state) for _ in range(count)]
                left = await _left(peer)
    figures = [
        Figure(
            name=f"gateway_abort_{state}",
            value=max(found),
            details={"p50": percentile(found, 50), "p95": percentile(found, 95)},
        )
        for state, found in walls.items()
    ]
    return [*figures, Figure(name="gateway_abort_left", value=left)]


async def _abort(peer: Peer, model: QuickModel, state: str) -> float:
    """Milliseconds until the gateway reports that the run has stopped."""
    follower, client = await Client.connect(peer), await Client.connect(peer)
    asked = {"text": state, "clientTools": [_CLIENT_TOOL]}
    run = await client.post("/api/runs", asked)
    model.abandoned.clear()
    async for event in follower.events(run["runId"]):
        if _REACHED[state](event):
            break
    started = time.perf_counter()
    answer = await client.post(f"/api/runs/{run['runId']}/abort", {})
    wall = elapsed_ms(started)
    if (answer["state"], answer["wasAborted"]) != ("aborted", True):
        raise RuntimeError(f"the run was not aborted: {answer}")
    if state == "model":
        await _within_a_second(model.abandoned.wait)
    follower.close()
    client.close()
    return wall


async def _within_a_second(wait: Callable[[], Awaitable[object]]) -> None:
    with anyio.fail_after(1):
        await wait()


async def _left(peer: Peer) -> int:
    """The number of aborted runs that are still running or waiting."""
    client = await Client.connect(peer)
    runs = (await client.get("/api/runs"))["runs"]
    pending = (await client.get("/api/approvals"))["pending"]
    client.close()
    return sum(run["state"] != "aborted" for run in runs) + len(pending)
