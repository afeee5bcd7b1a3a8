"""The gateway is killed during two hundred turns and restarted."""

import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any, Final

import anyio

from benchmarks.gateway_model import Spoken, quick_model
from benchmarks.gateway_peer import Client, Peer, gateway, write_config
from benchmarks.one import Effort
from benchmarks.report import Figure
from nacre.testing.script import Call, Say

_SESSIONS: Final = 200
_CODE_MODE: Final = {"codeMode": {"enabled": True}}
_GO_ON: Final = "and on"
_MESSAGES_OF_TURN: Final = 4
_BROKEN: Final = (OSError, EOFError, ValueError, RuntimeError)


def _script(request: dict[str, Any]) -> list[Spoken]:
    if request["messages"][-1]["role"] == "user":
        return [Call("exec", {"code": "return await tools.add({a: 1, b: 2})"})]
    return [Say("three")]


class _Talks:
    """Two hundred sessions that run turns until the gateway is killed, and the finished turns."""

    def __init__(self, peer: Peer, enough: int) -> None:
        self._peer = peer
        self._enough = enough
        self.is_enough = anyio.Event()
        self.seen: defaultdict[str, int] = defaultdict(int)

    async def talk(self, user: str) -> None:
        try:
            client = await Client.connect(self._peer)
            while True:
                await client.chat(f"turn {self.seen[user] + 1}", user=user)
                self.seen[user] += 1
                if sum(self.seen.values()) >= self._enough:
                    self.is_enough.set()
        except _BROKEN:
            # The gateway was killed during this turn.
            return


async def measure(effort: Effort) -> list[Figure]:
    kills = effort.times(5, quick=1)
    lost = half = stuck = turns = 0
    for kill in range(kills):
        with tempfile.TemporaryDirectory() as folder:
            async with quick_model(_script) as model:
                write_config(Path(folder), model.url, _CODE_MODE)
                seen = await _killed(Path(folder), enough=200 + 77 * kill)
                async with gateway(Path(folder)) as peer:
                    found = await _checked(peer, seen)
        turns += sum(seen.values())
        lost, half, stuck = lost + found[0], half + found[1], stuck + found[2]
        effort.say(f"  kill {kill + 1}: {sum(seen.values())} turns seen, {found}")
    details = {"kills": float(kills), "turnsSeen": float(turns)}
    return [
        Figure(name="gateway_kill_lost", value=lost, details=details),
        Figure(name="gateway_kill_half", value=half),
        Figure(name="gateway_kill_stuck", value=stuck),
    ]


async def _killed(folder: Path, *, enough: int) -> dict[str, int]:
    async with gateway(folder) as peer:
        talks = _Talks(peer, enough)
        async with anyio.create_task_group() as tasks:
            for number in range(_SESSIONS):
                tasks.start_soon(talks.talk, f"session {number}")
            await talks.is_enough.wait()
            peer.kill()
    return talks.seen


async def _checked(peer: Peer, seen: dict[str, int]) -> tuple[int, int, int]:
    """The sessions that lost a turn, that have a partial turn, and that do not continue."""
    client = await Client.connect(peer)
    stuck = 0
    for user in seen:
        answer = await client.chat(_GO_ON, user=user)
        stuck += answer["choices"][0]["message"]["content"] != "three"
    whole = {session["session"]["key"]: session async for session in client.sessions()}
    client.close()
    lost = sum(not _has_all(whole.get(user), count) for user, count in seen.items())
    return lost, sum(map(_has_half, whole.values())), stuck


def _has_all(session: dict[str, Any] | None, count: int) -> bool:
    finished = [] if session is None else _finished(session)
    expected = [f"turn {number}" for number in range(1, count + 1)]
    return [turn["prompt"] for turn in finished[:count]] == expected


def _has_half(session: dict[str, Any]) -> bool:
    finished = _finished(session)
    others = [turn["status"] for turn in session["turns"] if turn not in finished]
    return (
        len(session["messages"]) != _MESSAGES_OF_TURN * len(finished)
        or any(len(turn["calls"]) != 1 for turn in finished)
        or any(status != "interrupted" for status in others)
    )


def _finished(session: dict[str, Any]) -> list[dict[str, Any]]:
    return [turn for turn in session["turns"] if turn["status"] == "completed"]
