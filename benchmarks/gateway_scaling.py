"""One to three gateways on one PostgreSQL: turns, events of another gateway, and takeovers."""

from __future__ import annotations

import statistics
import tempfile
import time
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import anyio
import anyio.to_thread

from benchmarks.gateway_cluster import answer_with_call, write_cluster_config
from benchmarks.gateway_model import Spoken, quick_model
from benchmarks.gateway_peer import Client, Peer, gateway
from benchmarks.measurement import CpuTimer, elapsed_ms, percentile
from benchmarks.report import Figure
from nacre.testing.script import Call
from tests.storage.conftest import run_server

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from benchmarks.one import Effort
    from tests.storage.conftest import PostgresServer

_GATEWAYS: Final = 3
_SESSIONS: Final = 24
_PATIENCE_SECONDS: Final = 300.0
_ANSWERING: Final = 8
_ANSWER_SECONDS: Final = 40.0
_WATCH: Final = "watch"
# Three seconds of a run that does something each 30 ms.
_STEPS: Final = (
    "for (let i = 0; i < 100; i++) {"
    " await tools.add({a: i, b: 1}); await new Promise((done) => setTimeout(done, 30)); }"
)


def _script(request: dict[str, Any]) -> list[Spoken]:
    last = request["messages"][-1]
    if last["role"] == "user" and last["content"] == _WATCH:
        return [Call("exec", {"code": _STEPS})]
    return answer_with_call(request)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Cluster:
    """A server, and the directories of gateways that use it."""

    server: PostgresServer
    folders: Sequence[Path]
    effort: Effort

    async def count(self, query: str) -> int:
        text = await anyio.to_thread.run_sync(self.server.sql, f"SELECT count(*) FROM {query}")
        return int(text)

    async def until(self, query: str, wanted: int, *, seconds: float = 300) -> int:
        """Wait until a count is reached; returns the last one."""
        deadline = anyio.current_time() + seconds
        while True:
            found = await self.count(query)
            if found >= wanted or anyio.current_time() > deadline:
                return found
            await anyio.sleep(0.02)


@asynccontextmanager
async def _open_cluster(effort: Effort) -> AsyncGenerator[_Cluster]:
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        database = run_server(is_durable=True)
        server = await anyio.to_thread.run_sync(database.__enter__)
        stack.push(database.__exit__)
        model = await stack.enter_async_context(quick_model(_script))
        folders = [folder / f"gateway-{number}" for number in range(_GATEWAYS)]
        for each in folders:
            write_cluster_config(each, model.url, server.url(), keys=folder / "keys")
        yield _Cluster(server=server, folders=folders, effort=effort)


async def measure(effort: Effort) -> list[Figure]:
    async with _open_cluster(effort) as cluster:
        figures: list[Figure] = []
        for part in (_measure_turns, _measure_takeovers, _measure_adoption):
            found = await part(cluster)
            effort.say("  " + ", ".join(f"{it.name} {it.value or 0:.1f}" for it in found))
            figures += found
        return figures


# Turns and events.


async def _measure_turns(cluster: _Cluster) -> list[Figure]:
    async with AsyncExitStack() as stack:
        peers = [await stack.enter_async_context(gateway(it)) for it in cluster.folders]
        rates: dict[int, list[float]] = {count: [] for count in range(1, _GATEWAYS + 1)}
        costs: dict[int, list[float]] = {count: [] for count in range(1, _GATEWAYS + 1)}
        turns = cluster.effort.times(10, quick=2)
        # In turns, so that load of the machine affects them alike; the first round warms up.
        for number in range(1 + cluster.effort.times(5, quick=1)):
            for count in rates:
                rate, cost = await _run_turns(peers[:count], f"{number}.{count}", turns)
                if number:
                    rates[count].append(rate)
                    costs[count].append(cost)
        one = statistics.median(rates[1])
        figures = [
            Figure(
                name=f"scaling_turns_{count}",
                value=statistics.median(found),
                details={
                    "cpuMsPerTurn": statistics.median(costs[count]),
                    "ratioToOne": statistics.median(found) / one,
                },
            )
            for count, found in rates.items()
        ]
        return [*figures, *await _measure_hops(cluster, peers), await _measure_lag(cluster, peers)]


async def _run_turns(peers: Sequence[Peer], name: str, turns: int) -> tuple[float, float]:
    """Turns per second, and the CPU time of each in all processes."""

    async def talk(number: int) -> None:
        client = await Client.connect(peers[number % len(peers)])
        for _ in range(turns):
            await client.chat("add", user=f"turns {name} {number}")
        client.close()

    started = time.perf_counter()
    with CpuTimer() as cpu:
        async with anyio.create_task_group() as tasks:
            for number in range(_SESSIONS):
                tasks.start_soon(talk, number)
    total = _SESSIONS * turns
    return total / (elapsed_ms(started) / 1000), cpu.ms / total


async def _measure_hops(cluster: _Cluster, peers: Sequence[Peer]) -> list[Figure]:
    """A turn at the gateway that serves the session, and at another one."""
    times: tuple[list[float], list[float]] = ([], [])
    clients = [await Client.connect(peer) for peer in peers[:2]]
    for number in range(cluster.effort.times(60, quick=5)):
        user = f"hop {number}"
        await clients[0].chat("add", user=user)
        for client, found in zip(clients, times, strict=True):
            started = time.perf_counter()
            await client.chat("add", user=user)
            found.append(elapsed_ms(started))
    for client in clients:
        client.close()
    own, other = (statistics.median(found) for found in times)
    return [
        Figure(name="scaling_turn_own", value=own),
        Figure(name="scaling_turn_other", value=other),
    ]


async def _measure_lag(cluster: _Cluster, peers: Sequence[Peer]) -> Figure:
    """How long events take to a reader at another gateway. All processes have one clock."""
    lags: dict[int, list[float]] = {0: [], 1: []}

    async def follow(at: int, run_id: str) -> None:
        client = await Client.connect(peers[at])
        async for event in client.events(run_id):
            # Those before the reader came are not news.
            if event["kind"].startswith("call."):
                lags[at].append((time.time() - event["time"]) * 1000)
        client.close()

    for number in range(cluster.effort.times(5, quick=1)):
        client = await Client.connect(peers[0])
        started = await client.post("/api/runs", {"text": _WATCH, "sessionKey": f"lag {number}"})
        client.close()
        async with anyio.create_task_group() as tasks:
            for at in lags:
                tasks.start_soon(follow, at, started["runId"])
    return Figure(
        name="scaling_event_lag",
        value=statistics.median(lags[1]),
        details={
            "p95Ms": percentile(lags[1], 95),
            "ownP50Ms": statistics.median(lags[0]),
            "events": float(len(lags[1])),
        },
    )


# Takeovers.


async def _measure_takeovers(cluster: _Cluster) -> list[Figure]:
    """From the kill of a gateway until another one continues its turn, as a reader sees it."""
    times: list[float] = []
    async with gateway(cluster.folders[1]) as other:
        for number in range(cluster.effort.times(10, quick=1)):
            async with gateway(cluster.folders[0]) as peer:
                client = await Client.connect(peer)
                body = {"text": "pay", "sessionKey": f"takeover {number}"}
                run = await client.post("/api/runs", body)
                await cluster.until(f"nacre_turn_states WHERE run_id = '{run['runId']}'", 1)
                peer.kill()
                killed = time.perf_counter()
                client.close()
                await _until_resumed(other, run["runId"])
                times.append(elapsed_ms(killed))
    return [
        Figure(
            name="scaling_takeover",
            value=statistics.median(times),
            details={"maxMs": max(times), "kills": float(len(times))},
        )
    ]


async def _until_resumed(peer: Peer, run_id: str) -> None:
    client = await Client.connect(peer)
    with anyio.fail_after(_PATIENCE_SECONDS):
        async for event in client.events(run_id):
            if event["kind"] == "run.resumed" and event["data"].get("cause") == "restart":
                break
    client.close()


async def _measure_adoption(cluster: _Cluster) -> list[Figure]:
    """Many cells of a killed gateway wait for a person; another one continues all of them."""
    cells = cluster.effort.times(1_000, quick=50)
    async with AsyncExitStack() as stack:
        other = await stack.enter_async_context(gateway(cluster.folders[1]))
        peer = await stack.enter_async_context(gateway(cluster.folders[0]))
        await _start_waiting(peer, cells)
        # The turns of the takeovers wait too, so they do not count.
        adopt = "nacre_turns WHERE prompt LIKE '%adopt%' AND status ="
        stored = await cluster.until(
            f"{adopt} 'running' AND run_id IN (SELECT run_id FROM nacre_turn_states)", cells
        )
        cluster.effort.say(f"  {stored} turns wait")
        peer.kill()
        killed = time.perf_counter()
        owner = "(SELECT owner FROM nacre_gateways ORDER BY started LIMIT 1)"
        adopted = await cluster.until(f"{adopt} 'running' AND owner = {owner}", cells)
        adopted_ms = elapsed_ms(killed)
        cluster.effort.say(f"  {adopted} turns have another owner")
        completed, deadline = 0, anyio.current_time() + _PATIENCE_SECONDS
        while completed < cells and anyio.current_time() < deadline:
            await _allow_open(cluster, other)
            completed = await cluster.count(f"{adopt} 'completed'")
        seconds = elapsed_ms(killed) / 1000
    return [
        Figure(
            name="scaling_adopted_lost",
            value=cells - completed,
            details={
                "cells": float(cells),
                "adoptedMs": adopted_ms,
                "completedSeconds": seconds,
            },
        )
    ]


async def _start_waiting(peer: Peer, cells: int) -> None:
    async def start(first: int) -> None:
        client = await Client.connect(peer)
        for number in range(first, cells, _SESSIONS):
            body = {"text": "pay adopt", "sessionKey": f"adopt {number}"}
            await client.post("/api/runs", body)
        client.close()

    async with anyio.create_task_group() as tasks:
        for first in range(_SESSIONS):
            tasks.start_soon(start, first)


async def _allow_open(cluster: _Cluster, peer: Peer) -> None:
    """Answer the approvals that are open now; turns that continue ask again."""
    query = "SELECT id FROM nacre_approvals WHERE state = 'open'"
    left = (await anyio.to_thread.run_sync(cluster.server.sql, query)).splitlines()

    async def allow() -> None:
        client = await Client.connect(peer)
        while left:
            # It fails if the turn has not continued yet.
            with suppress(RuntimeError):
                await client.post(f"/api/approvals/{left.pop()}", {"answer": "allow-once"})
        client.close()

    # A gateway may wait for half a minute for a turn that nobody continues.
    with anyio.move_on_after(_ANSWER_SECONDS):
        async with anyio.create_task_group() as tasks:
            for _ in range(_ANSWERING):
                tasks.start_soon(allow)
