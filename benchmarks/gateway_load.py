"""Fifty concurrent sessions with twenty turns each: failures, and memory afterwards."""

import gc
import tempfile
import time
from pathlib import Path
from typing import Any, Final

import anyio
import psutil

from benchmarks.gateway_model import Spoken, quick_model
from benchmarks.gateway_peer import Client, Peer, gateway, write_config
from benchmarks.measurement import percentile
from benchmarks.one import Effort
from benchmarks.report import Figure
from nacre.testing.script import Call, Say

_SESSIONS: Final = 50
_ROUNDS: Final = 3
_CODE_MODE: Final = {"codeMode": {"enabled": True}}
_SETTLE_SECONDS: Final = 3
_MESSAGES_OF_TURN: Final = 4


def _script(request: dict[str, Any]) -> list[Spoken]:
    """A program that returns the number in the prompt."""
    last = request["messages"][-1]
    said = [it["content"] for it in request["messages"] if it["role"] == "user"]
    number = said[-1].split()[-1]
    if last["role"] == "user":
        return [Call("exec", {"code": f"return await tools.add({{a: {number}, b: 1000}})"})]
    return [Say(f"{int(number) + 1000} after {len(said)}")]


class _Load:
    def __init__(self, peer: Peer, turns: int) -> None:
        self._peer = peer
        self._turns = turns
        self.failures: list[str] = []
        self.walls: list[float] = []

    async def run(self, round_number: int) -> None:
        async with anyio.create_task_group() as tasks:
            for session in range(_SESSIONS):
                tasks.start_soon(self._talk, f"round {round_number} session {session}")

    async def _talk(self, user: str) -> None:
        client = await Client.connect(self._peer)
        for number in range(1, self._turns + 1):
            started = time.perf_counter()
            try:
                answer = await client.chat(f"turn {number}", user=user)
            except RuntimeError as error:
                self.failures.append(f"{user}: {error}")
                continue
            self.walls.append(time.perf_counter() - started)
            said = answer["choices"][0]["message"]["content"]
            # The request contained all earlier turns in order.
            if said != f"{number + 1000} after {number}":
                self.failures.append(f"{user}, turn {number}: {said}")
        client.close()


async def measure(effort: Effort) -> list[Figure]:
    turns = effort.times(20, quick=3)
    with tempfile.TemporaryDirectory() as folder:
        async with quick_model(_script) as model:
            write_config(Path(folder), model.url, _CODE_MODE)
            async with gateway(Path(folder)) as peer:
                load = _Load(peer, turns)
                memory: list[float] = []
                started = time.perf_counter()
                for round_number in range(_ROUNDS):
                    await load.run(round_number)
                    # The benchmark's own record of requests must not count.
                    model.asked.clear()
                    gc.collect()
                    await anyio.sleep(_SETTLE_SECONDS)
                    memory.append(_memory_mb(peer))
                    effort.say(f"  round {round_number + 1}: {memory[-1]:.1f} MB")
                seconds = time.perf_counter() - started - _ROUNDS * _SETTLE_SECONDS
                disorder = await _disorder(peer, turns)
    for failure in load.failures[:5]:
        effort.say(f"  {failure[:300]}")
    count = _SESSIONS * turns * _ROUNDS
    return [
        Figure(name="gateway_load_failures", value=len(load.failures)),
        Figure(name="gateway_load_disorder", value=disorder),
        Figure(
            name="gateway_load_growth",
            # The first round fills the bounded record of ended runs.
            value=memory[-1] - memory[0],
            details={f"round{number}Mb": mb for number, mb in enumerate(memory, start=1)},
        ),
        Figure(name="gateway_load_rate", value=count / seconds),
        Figure(name="gateway_load_p95", value=percentile(load.walls, 95) * 1000),
    ]


async def _disorder(peer: Peer, turns: int) -> int:
    """The sessions whose stored turns differ from the actual turns."""
    client = await Client.connect(peer)
    expected = [f"turn {number}" for number in range(1, turns + 1)]
    wrong = seen = 0
    async for session in client.sessions():
        seen += 1
        prompts = [turn["prompt"] for turn in session["turns"] if turn["status"] == "completed"]
        wrong += prompts != expected or len(session["messages"]) != _MESSAGES_OF_TURN * turns
    client.close()
    return wrong + abs(seen - _SESSIONS * _ROUNDS)


def _memory_mb(peer: Peer) -> float:
    """The memory of the gateway and its workers."""
    process = psutil.Process(peer.process.pid)
    everybody = [process, *process.children(recursive=True)]
    return sum(each.memory_info().rss for each in everybody) / 1e6
