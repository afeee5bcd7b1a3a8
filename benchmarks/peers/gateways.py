"""A turn of Nacre's gateway beside the LiteLLM proxy, with a model that answers at once."""

import asyncio
import json
import os
import socket
import subprocess
import tempfile
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import anyio
import psutil

from benchmarks.gateway_model import Spoken, quick_model
from benchmarks.gateway_peer import TOKEN, Client, Peer, gateway, write_config
from benchmarks.measurement import cpu_seconds, elapsed_ms
from benchmarks.peers.comparison import Result, Results
from benchmarks.peers.registry import PeerUnavailableError, install_litellm
from nacre.testing.script import Call, Say

BASE: Final = "unkept"
LABELS: Final = {
    BASE: "Nacre, without a session",
    "kept": "Nacre, in a session",
    "exec": "Nacre, session and exec",
    "litellm": "LiteLLM proxy 1.106.2",
}
TITLES: Final = {
    "one": "a turn, 1 client, ms",
    "sixteen": "16 turns of 16 clients at once, ms for all",
    "start": "process to healthy, ms",
    "memory": "idle memory, MB",
}
_CLIENTS: Final = 16
_TURNS: Final = 20
_START_SECONDS: Final = 120
_EXEC: Final = "run a program"
_PROGRAM: Final = (
    "const first = await tools.add({a: 1, b: 2}); const second = await tools.add({a: first, b: 3});"
    "return await tools.add({a: second, b: 36});"
)


def _script(request: dict[str, Any]) -> list[Spoken]:
    last = request["messages"][-1]
    if last["role"] == "user" and last["content"].startswith(_EXEC):
        return [Call("exec", {"code": _PROGRAM}, call_id="call_1")]
    return [Say("Here you are.")]


async def measure(rounds: int, say: Callable[[str], None]) -> Results:
    results: Results = {work: {name: Result() for name in LABELS} for work in TITLES}
    with tempfile.TemporaryDirectory() as folder:
        async with quick_model(_script) as model:
            write_config(Path(folder), model.url, {"codeMode": {"enabled": True}})
            async with gateway(Path(folder)) as nacre:
                try:
                    async with _litellm(Path(folder), model.url, say) as litellm:
                        await _measure(results, nacre, litellm, rounds, say)
                except PeerUnavailableError as error:
                    for by_peer in results.values():
                        by_peer["litellm"].note = str(error)
                    await _measure(results, nacre, None, rounds, say)
    return results


async def _measure(
    results: Results, nacre: Peer, litellm: Peer | None, rounds: int, say: Callable[[str], None]
) -> None:
    running = {BASE: nacre, "kept": nacre, "exec": nacre}
    if litellm is not None:
        running["litellm"] = litellm
    for name in (BASE, "litellm"):
        if name in running:
            results["start"][name].add([running[name].start_ms])
            results["memory"][name].add([_memory_mb(running[name])])
    for name in ("kept", "exec"):
        results["start"][name].note = results["memory"][name].note = "as without a session"
    # The first round warms up.
    for number in range(rounds + 1):
        say(f"gateways: round {number} of {rounds}")
        for name, peer in running.items():
            one, sixteen = Result(), Result()
            await _measure_turns(name, peer, number, one, sixteen)
            if number:
                results["one"][name].add(one.walls, one.cpus[0])
                results["sixteen"][name].add(sixteen.walls, sixteen.cpus[0])


async def _measure_turns(name: str, peer: Peer, number: int, one: Result, sixteen: Result) -> None:
    # New connections: servers close idle ones after seconds.
    clients = [await Client.connect(peer) for _ in range(_CLIENTS)]
    before = _cpu_seconds(peer)
    walls: list[float] = []
    for turn in range(_TURNS):
        started = time.perf_counter()
        await _take_turn(name, clients[0], f"{number} {turn}")
        walls.append(elapsed_ms(started))
    after = _cpu_seconds(peer)
    one.add(walls, (after - before) * 1000 / _TURNS)
    started = time.perf_counter()
    async with anyio.create_task_group() as tasks:
        for client, each in enumerate(clients):
            tasks.start_soon(_take_turn, name, each, f"{number} of client {client}")
    sixteen.add([elapsed_ms(started)], (_cpu_seconds(peer) - after) * 1000 / _CLIENTS)
    for client in clients:
        client.close()


async def _take_turn(name: str, client: Client, number: str) -> None:
    # A new session for each, because a growing session sends more data.
    more = {"user": f"{name} {number}"} if name in ("kept", "exec") else {}
    answer = await client.chat(_EXEC if name == "exec" else "say something", **more)
    if answer["choices"][0]["message"]["content"] != "Here you are.":
        raise RuntimeError(f"not what the model said: {answer}")


@asynccontextmanager
async def _litellm(
    folder: Path, model_url: str, say: Callable[[str], None]
) -> AsyncGenerator[Peer]:
    command = await asyncio.to_thread(install_litellm, say)
    model = {"model": "openai/model", "api_base": model_url, "api_key": "x"}
    config = {
        "model_list": [{"model_name": "nacre", "litellm_params": model}],
        "general_settings": {"master_key": TOKEN},
        "litellm_settings": {"telemetry": False},
    }
    # JSON is YAML.
    file = folder / "litellm.yaml"
    file.write_text(json.dumps(config), encoding="utf-8")
    port = _free_port()
    quiet = {"LITELLM_LOG": "ERROR", "LITELLM_LOCAL_MODEL_COST_MAP": "True", "NO_PROXY": "*"}
    options = ["--config", str(file), "--host", "127.0.0.1", "--port", str(port)]
    log = folder / "litellm.log"
    started = time.perf_counter()
    process = _start([*command, *options], {**os.environ, **quiet}, log)
    try:
        if not await _is_healthy(process, port):
            raise PeerUnavailableError(f"did not start: {_last_line(log)}")
        yield Peer(process=process, port=port, start_ms=elapsed_ms(started))
    finally:
        for each in reversed(_tree(process.pid)):
            each.kill()
        process.wait()


def _start(command: list[str], env: dict[str, str], log: Path) -> subprocess.Popen[bytes]:
    with log.open("wb") as output:
        return subprocess.Popen(command, cwd=log.parent, env=env, stdout=output, stderr=output)


async def _is_healthy(process: subprocess.Popen[bytes], port: int) -> bool:
    """Wait until the server accepts connections; False if it does not."""
    with anyio.move_on_after(_START_SECONDS):
        while process.poll() is None:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                await anyio.sleep(0.05)
                continue
            writer.close()
            return True
    return False


def _last_line(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return lines[-1][:300] if lines else "no message"


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def _tree(pid: int) -> list[psutil.Process]:
    try:
        process = psutil.Process(pid)
        return [process, *process.children(recursive=True)]
    except psutil.Error:
        return []


def _cpu_seconds(peer: Peer) -> float:
    return sum(cpu_seconds(each.pid) for each in _tree(peer.process.pid))


def _memory_mb(peer: Peer) -> float:
    return sum(each.memory_full_info().pss for each in _tree(peer.process.pid)) / 1e6
