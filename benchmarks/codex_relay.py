"""The relay of native hooks: the cost of one hook, compared with an empty Python process."""

import subprocess
import sys
import time
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from anyio import to_thread

from benchmarks.measurement import elapsed_ms, ended_cpu_seconds, median
from benchmarks.one import Effort
from benchmarks.report import Figure
from nacre.codex_harness.hook_relay import make_generation, make_relay_id, open_hook_relay
from nacre.config import HookRelayConfig, RelayEvent
from nacre.json_types import JsonObject, encode_json

# As long as a usual payload of Codex.
_PAYLOAD = encode_json(
    {
        "hook_event_name": "PreToolUse",
        "tool_name": "Bash",
        "tool_use_id": "call_1",
        "tool_input": {"command": "rg --files src | head -50"},
        "transcript_path": "/home/user/.local/state/" + "x" * 200,
    }
)


@dataclass
class _PassingHandler:
    """Lets every call pass."""

    events: list[RelayEvent] = field(default_factory=list[RelayEvent])

    async def answer(self, event: RelayEvent, payload: JsonObject, /) -> JsonObject | None:
        self.events.append(event)
        return None


async def measure(effort: Effort) -> list[Figure]:
    count = effort.times(60, quick=10)
    async with open_hook_relay() as relay:
        handler = _PassingHandler()
        registration = relay.register(
            handler,
            relay_id=make_relay_id("main", "session"),
            generation=make_generation(),
            config=HookRelayConfig(),
        )
        config: Any = registration.thread_config(["pre_tool_use"], must_answer=True)
        hook: str = config["hooks.PreToolUse"][0]["hooks"][0]["command"]
        # As Codex runs it, and a Python process that does nothing.
        relayed = ["/bin/sh", "-c", hook]
        bare = [sys.executable, "-c", "pass"]
        walls: dict[str, list[float]] = {"relay": [], "bare": []}
        cpus: dict[str, list[float]] = {"relay": [], "bare": []}
        # By turns, so that another load of the machine meets both.
        for _ in range(count + 1):
            for name, command in (("relay", relayed), ("bare", bare)):
                wall, cpu = await to_thread.run_sync(partial(_run, command))
                walls[name].append(wall)
                cpus[name].append(cpu)
    if len(handler.events) != count + 1:
        raise RuntimeError(f"the relay saw {len(handler.events)} of {count + 1} hooks")
    wall, cpu = median(walls["relay"][1:]), median(cpus["relay"][1:])
    return [
        Figure(
            name="codex_relay_wall",
            value=wall,
            details={"least": min(walls["relay"]), "most": max(walls["relay"][1:])},
        ),
        Figure(name="codex_relay_cpu", value=cpu),
        Figure(name="codex_relay_ratio", value=wall / median(walls["bare"][1:])),
    ]


def _run(command: list[str]) -> tuple[float, float]:
    """Wall and CPU milliseconds of the process."""
    cpu, started = ended_cpu_seconds(), time.perf_counter()
    done = subprocess.run(command, input=_PAYLOAD, capture_output=True, check=True)
    if done.stdout:
        raise RuntimeError(f"the call was not passed: {done.stdout.decode()}")
    return elapsed_ms(started), (ended_cpu_seconds() - cpu) * 1000
