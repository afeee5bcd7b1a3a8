"""Large prompts and large answers: the memory of the gateway afterwards."""

import tempfile
from pathlib import Path
from typing import Any, Final

import anyio
import psutil

from benchmarks.gateway_model import Spoken, quick_model
from benchmarks.gateway_peer import Client, Peer, gateway, write_config
from benchmarks.one import Effort
from benchmarks.report import Figure
from nacre.testing.script import Say

_PROMPT_BYTES: Final = 8_000_000
_ANSWER_BYTES: Final = 20_000_000
_AT_ONCE: Final = 4
_LARGE: Final = "a large answer"
# The gateway returns memory when it has been idle for some seconds.
_SETTLE_SECONDS: Final = 12


def _script(request: dict[str, Any]) -> list[Spoken]:
    is_large = request["messages"][-1]["content"] == _LARGE
    return [Say("x" * _ANSWER_BYTES if is_large else "done")]


async def measure(effort: Effort) -> list[Figure]:
    prompts, answers = effort.times(140, quick=24), effort.times(20, quick=4)
    with tempfile.TemporaryDirectory() as folder:
        async with quick_model(_script) as model:
            write_config(Path(folder), model.url, {"codeMode": {"enabled": True}})
            async with gateway(Path(folder)) as peer:
                curve = _Curve(peer, effort)
                await _send(peer, "warm up", 1)
                await curve.add("start")
                await _send(peer, "word " * (_PROMPT_BYTES // 5), prompts)
                model.asked.clear()
                await curve.add("prompts")
                await _send(peer, _LARGE, answers)
                await curve.add("answers")
    details = {f"{name}Mb": mb for name, mb in curve.points.items()}
    growth = curve.points["answers"] - curve.points["start"]
    return [Figure(name="gateway_memory_growth", value=growth, details=details)]


class _Curve:
    """The memory of the gateway process after each phase, and right before it was idle."""

    def __init__(self, peer: Peer, effort: Effort) -> None:
        self._process = psutil.Process(peer.process.pid)
        self._effort = effort
        self.points: dict[str, float] = {}

    async def add(self, phase: str) -> None:
        self.points[f"{phase}Busy"] = self._memory_mb()
        await anyio.sleep(_SETTLE_SECONDS)
        self.points[phase] = self._memory_mb()
        busy, idle = self.points[f"{phase}Busy"], self.points[phase]
        self._effort.say(f"  after {phase}: {busy:.0f} MB, idle {idle:.0f} MB")

    def _memory_mb(self) -> float:
        return self._process.memory_info().rss / 1e6


async def _send(peer: Peer, text: str, count: int) -> None:
    """Send the same prompt so many times, some at once."""
    left = list(range(count))

    async def talk() -> None:
        client = await Client.connect(peer)
        while left:
            left.pop()
            await client.chat(text)
        client.close()

    async with anyio.create_task_group() as tasks:
        for _ in range(min(_AT_ONCE, count)):
            tasks.start_soon(talk)
