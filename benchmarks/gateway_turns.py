"""The overhead of the gateway per turn, with a model that answers at once."""

import tempfile
import time
from pathlib import Path
from typing import Any, Final

from benchmarks.gateway_model import QuickModel, Spoken, quick_model
from benchmarks.gateway_peer import Client, gateway, write_config
from benchmarks.measurement import CpuTimer, elapsed_ms, percentile
from benchmarks.one import Effort
from benchmarks.report import Figure
from nacre.testing.script import Call, Say

_PROGRAM: Final = (
    "const first = await tools.add({a: 1, b: 2}); const second = await tools.add({a: first, b: 3});"
    "return await tools.add({a: second, b: 36});"
)
_EXEC: Final = "run a program"
_CODE_MODE: Final = {"codeMode": {"enabled": True}}


def _script(request: dict[str, Any]) -> list[Spoken]:
    last = request["messages"][-1]
    if last["role"] == "user" and last["content"].startswith(_EXEC):
        return [Call("exec", {"code": _PROGRAM}, call_id="call_1")]
    if last["role"] == "tool" and '"value":42' not in last["content"].replace(" ", ""):
        raise RuntimeError(f"the program did not return 42: {last['content']}")
    return [Say("Here you are.")]


async def measure(effort: Effort) -> list[Figure]:
    count = effort.times(300, quick=40)
    with tempfile.TemporaryDirectory() as folder:
        async with quick_model(_script) as model:
            write_config(Path(folder), model.url, _CODE_MODE)
            async with gateway(Path(folder)) as peer:
                client = await Client.connect(peer)
                figures = [
                    *await _measured(
                        client, model, "gateway_unkept", "say something", count, is_kept=False
                    ),
                    *await _measured(client, model, "gateway_turn", "say something", count),
                    *await _measured(client, model, "gateway_exec", _EXEC, count),
                ]
                client.close()
    return figures


async def _measured(
    client: Client,
    model: QuickModel,
    name: str,
    text: str,
    count: int,
    *,
    is_kept: bool = True,
) -> list[Figure]:
    def session(number: str) -> dict[str, str]:
        # A new session for each, because a growing session sends more data.
        return {"user": f"{name} {number}"} if is_kept else {}

    # Warm up: connections, the engine, and code that is compiled at the first use.
    for number in range(20):
        await client.chat(text, **session(f"warm-up {number}"))
    added: list[float] = []
    with CpuTimer() as cpu:
        for number in range(count):
            already = len(model.asked)
            started = time.perf_counter()
            answer = await client.chat(text, **session(str(number)))
            wall = elapsed_ms(started)
            if answer["choices"][0]["message"]["content"] != "Here you are.":
                raise RuntimeError(f"not what the model said: {answer}")
            added.append(wall - sum(asked.own_ms for asked in model.asked[already:]))
    return [
        Figure(name=f"{name}_p50", value=percentile(added, 50), details={"least": min(added)}),
        Figure(name=f"{name}_p95", value=percentile(added, 95)),
        Figure(name=f"{name}_cpu", value=cpu.ms / count),
    ]
