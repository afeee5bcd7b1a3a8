"""Three gateways on one PostgreSQL behind a proxy; one of them is killed every 20 seconds.

Fifty sessions run turns through the proxy, which sends each connection to the next gateway. Some
turns wait for an approval. Every client reads the events of its runs, and continues after a
disconnect wherever the proxy leads it.
"""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import os
import random
import secrets
import tempfile
from collections import Counter
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import anyio
import anyio.to_thread
import httpx2

from benchmarks.gateway_model import Spoken, quick_model
from benchmarks.gateway_peer import TOKEN, Peer, gateway, write_config
from benchmarks.report import Figure
from nacre.private_files import write_private
from nacre.testing.script import Call, Say
from tests.storage.conftest import run_server

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator

    from benchmarks.one import Effort

_GATEWAYS: Final = 3
_SESSIONS: Final = 50
_MAX_RUNS: Final = 2_000
_SECONDS: Final = 600
_QUICK_SECONDS: Final = 60
_KILL_SECONDS: Final = 20.0
# Each fourth turn asks for an approval.
_APPROVAL_TURNS: Final = 4
# How long a client tries one thing before it gives up: longer than a lease.
_PATIENCE_SECONDS: Final = 60.0
_RETRY_SECONDS: Final = 0.2
_PAUSE_SECONDS: Final = 1.0
_TAKEOVER_NUMBERS: Final = 1_000_000
_ENDS: Final = ("run.completed", "run.failed", "run.aborted", "run.interrupted")
_PLUGIN: Final = """
from nacre.plugins.api import AskApproval, PluginApi


def register(api: PluginApi) -> None:
    async def add(a: int, b: int) -> int:
        "Add two numbers."
        return a + b

    async def pay(amount: int) -> int:
        "Pay an amount."
        return amount

    async def ask(event):
        return AskApproval("money is about to move") if event.tool_name == "pay" else None

    api.add_tool(add)
    api.add_tool(pay)
    api.add_hook("before_tool_call", ask)
"""


def answer_with_call(request: dict[str, Any]) -> list[Spoken]:
    """A model that adds, or pays, which needs an approval."""
    last = request["messages"][-1]
    if last["role"] != "user":
        return [Say("done")]
    call = "tools.pay({amount: 3})" if "pay" in str(last["content"]) else "tools.add({a: 1, b: 2})"
    return [Call("exec", {"code": f"return await {call}"})]


class _Proxy:
    """Sends each connection to the next gateway that accepts it."""

    def __init__(self) -> None:
        self.ports: list[int] = []
        self._turn = itertools.count()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(len(self.ports)):
            port = self.ports[next(self._turn) % len(self.ports)]
            try:
                to_gateway = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                continue
            await _join(reader, writer, *to_gateway)
            return
        writer.close()


async def _join(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    gateway_reader: asyncio.StreamReader,
    gateway_writer: asyncio.StreamWriter,
) -> None:
    async def copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while chunk := await source.read(1 << 16):
                target.write(chunk)
                await target.drain()
        with suppress(OSError):
            target.close()

    await asyncio.gather(copy(reader, gateway_writer), copy(gateway_reader, writer))


@dataclass(slots=True)
class _Outcome:
    """What all clients saw."""

    turns: int = 0
    endings: Counter[str] = field(default_factory=Counter[str])
    reconnects: int = 0
    approvals: int = 0
    lost_turns: list[str] = field(default_factory=list[str])
    lost_approvals: dict[str, str] = field(default_factory=dict[str, str])
    """What happened, by the message of the turn."""
    broken_streams: list[str] = field(default_factory=list[str])


class _GaveUp(Exception):
    """The cluster did not do this in time."""


class _Numbers:
    """The numbers of the events of one run, as its client gets them."""

    def __init__(self) -> None:
        self._next = 0
        self.kinds: list[str] = []

    def check(self, event: dict[str, Any]) -> str:
        """What is missing before this event; empty if nothing is."""
        kind, expected = event["kind"], self._next
        self.kinds.append(kind)
        if kind == "replay.started":
            # The gateway with the run is gone: all stored events come, with their own numbers.
            self._next = 0
            return ""
        if kind == "events.dropped":
            return f"{event.get('count')} events dropped ({', '.join(self.kinds)})"
        number = event.get("sequence")
        if number is None:
            # It is not one of the run.
            return ""
        self._next = number + 1
        # A gateway that takes over a turn leaves out numbers that the killed one may have used.
        if number == expected or (number > expected and number % _TAKEOVER_NUMBERS == 0):
            return ""
        return f"event {number} instead of {expected} ({', '.join(self.kinds)})"


class _Session:
    """A client with one session."""

    def __init__(self, client: httpx2.AsyncClient, name: str, outcome: _Outcome) -> None:
        self._client = client
        self._name = name
        self._outcome = outcome
        self.session_id = ""
        self.endings: dict[str, str] = {}
        """How each run ended, by its message, in the order of the messages."""

    async def talk(self, until: float) -> None:
        for number in itertools.count(1):
            if anyio.current_time() >= until:
                return
            text = f"{'pay' if number % _APPROVAL_TURNS == 0 else 'add'} {self._name} {number}"
            try:
                await self._turn(text)
            except _GaveUp as error:
                self._outcome.lost_turns.append(f"{text}: {error}")
            await anyio.sleep(_PAUSE_SECONDS * random.random())

    async def _turn(self, text: str) -> None:
        headers = {"idempotency-key": secrets.token_hex(8)}
        body = {"text": text, "sessionKey": self._name}
        started = await self._request("POST", "/api/runs", json=body, headers=headers)
        self._outcome.turns += 1
        self.session_id = started["sessionId"]
        self.endings[text] = ""
        run_id, error = started["runId"], ""
        numbers = _Numbers()
        asked: set[str] = set()
        async for event in self._events(run_id):
            if gap := numbers.check(event):
                self._outcome.broken_streams.append(f"{text} ({run_id}): {gap}")
            if event["kind"] == "approval.requested":
                asked.add(event["data"]["approvalId"])
                await self._approve(event["data"]["approvalId"], text)
            if event["kind"] == "approval.answered":
                asked.discard(event["data"]["approvalId"])
            if event["kind"] in _ENDS:
                self.endings[text] = event["kind"]
                error = str(event["data"].get("error", ""))
        self._outcome.endings[self.endings[text]] += 1
        if self.endings[text] not in ("run.completed", "run.interrupted"):
            ending = f"{text} ({run_id}): {self.endings[text]} {error}"
            if not self.endings[text]:
                run = await self._request("GET", f"/api/runs/{run_id}")
                seen = ", ".join(numbers.kinds)
                ending = f"{text} ({run_id}): no end, but {run['state']}, after {seen}"
            self._outcome.lost_turns.append(ending)
        elif asked and (lost := asked - await self._allowed()):
            ending = f"{run_id}: {self.endings[text]} without {', '.join(lost)}"
            self._outcome.lost_approvals.setdefault(text, ending)

    async def _events(self, run_id: str) -> AsyncIterator[dict[str, Any]]:
        """All events of a run, over as many connections as it takes."""
        last = ""
        deadline = anyio.current_time() + 2 * _PATIENCE_SECONDS
        while anyio.current_time() < deadline:
            headers = {"last-event-id": last} if last else {}
            with suppress(httpx2.TransportError, _GaveUp):
                async for event_id, event in self._stream(run_id, headers, deadline):
                    last = event_id
                    yield event
                    if event["kind"] in _ENDS:
                        return
            self._outcome.reconnects += 1
            await anyio.sleep(_RETRY_SECONDS)

    async def _stream(
        self, run_id: str, headers: dict[str, str], deadline: float
    ) -> AsyncIterator[tuple[str, dict[str, Any]]]:
        path = f"/api/runs/{run_id}/events"
        async with self._client.stream("GET", path, headers=headers) as response:
            if response.status_code != 200:
                raise _GaveUp(f"GET {path}: {response.status_code}")
            event_id = kind = ""
            async for line in response.aiter_lines():
                if anyio.current_time() > deadline:
                    # Comments keep the stream alive.
                    return
                name, _, value = line.partition(": ")
                if name == "id":
                    event_id = value
                elif name == "event":
                    kind = value
                elif name == "data":
                    yield event_id, {"data": {}, **json.loads(value), "kind": kind}

    async def _allowed(self) -> set[str]:
        """The approvals of the session that are stored as given."""
        path = f"/api/approvals?all=true&limit=1000&sessionId={self.session_id}"
        past = (await self._request("GET", path))["past"]
        return {it["approvalId"] for it in past if it["state"] == "allowed"}

    async def _approve(self, approval_id: str, text: str) -> None:
        self._outcome.approvals += 1
        try:
            await self._request(
                "POST", f"/api/approvals/{approval_id}", json={"answer": "allow-once"}, already=409
            )
        except _GaveUp as error:
            self._outcome.lost_approvals[text] = str(error)

    async def _request(
        self, method: str, path: str, *, already: int = 0, **options: Any
    ) -> dict[str, Any]:
        """Send a request until a gateway answers it; `already` is the status of a repetition."""
        last = "no answer"
        with anyio.move_on_after(_PATIENCE_SECONDS):
            while True:
                try:
                    response = await self._client.request(method, path, **options)
                except httpx2.TransportError as error:
                    last = repr(error)
                else:
                    if response.is_success or response.status_code == already:
                        return response.json()
                    last = f"{response.status_code} {response.text[:200]}"
                await anyio.sleep(_RETRY_SECONDS)
        raise _GaveUp(f"{method} {path}: {last}")

    async def check(self) -> str:
        """What is wrong with the stored session; empty if nothing is."""
        page = await self._request("GET", f"/api/sessions/{self.session_id}?turns=200")
        stored = [turn["prompt"] for turn in page["turns"]]
        if stored != list(self.endings)[-len(stored) :]:
            return f"{self._name}: {stored} instead of {list(self.endings)}"
        running = [turn["prompt"] for turn in page["turns"] if turn["status"] == "running"]
        return f"{self._name}: {running} never end" if running else ""


async def measure(effort: Effort) -> list[Figure]:
    seconds = _QUICK_SECONDS if effort.is_quick else _SECONDS
    outcome, kills, wrong = await _run(effort, seconds)
    approvals = [f"{text}: {problem}" for text, problem in outcome.lost_approvals.items()]
    for problem in (*outcome.lost_turns, *approvals, *outcome.broken_streams, *wrong):
        effort.say(f"  {problem}")
    details = {
        "seconds": float(seconds),
        "kills": float(kills),
        "turns": float(outcome.turns),
        "completed": float(outcome.endings["run.completed"]),
        "interrupted": float(outcome.endings["run.interrupted"]),
        "approvals": float(outcome.approvals),
        "reconnects": float(outcome.reconnects),
    }
    return [
        Figure(name="cluster_lost_turns", value=len(outcome.lost_turns), details=details),
        Figure(name="cluster_lost_approvals", value=len(outcome.lost_approvals)),
        Figure(name="cluster_broken_streams", value=len(outcome.broken_streams)),
        Figure(name="cluster_wrong_sessions", value=len(wrong)),
    ]


async def _run(effort: Effort, seconds: float) -> tuple[_Outcome, int, list[str]]:
    outcome = _Outcome()
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        database = run_server(is_durable=True)
        server = await anyio.to_thread.run_sync(database.__enter__)
        stack.push(database.__exit__)
        model = await stack.enter_async_context(quick_model(answer_with_call))
        folders = [folder / f"gateway-{number}" for number in range(_GATEWAYS)]
        for each in folders:
            write_cluster_config(each, model.url, server.url(), keys=folder / "keys")
        proxy = _Proxy()
        url = await stack.enter_async_context(_serve(proxy))
        killer = _Killer(folders, proxy, effort)
        await stack.enter_async_context(killer)
        client = await stack.enter_async_context(_http_client(url))
        sessions = [_Session(client, f"session-{n}", outcome) for n in range(_SESSIONS)]
        until = anyio.current_time() + seconds
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(killer.run, until - _KILL_SECONDS)
            for session in sessions:
                tasks.start_soon(session.talk, until)
        wrong = [problem for session in sessions if (problem := await session.check())]
    return outcome, killer.kills, wrong


def write_cluster_config(folder: Path, model_url: str, storage_url: str, *, keys: Path) -> None:
    """Write the configuration of one of several gateways on a database, with its own directory."""
    folder.mkdir()
    code_mode = {"codeMode": {"enabled": True, "durable": True}}
    write_config(folder, model_url, code_mode, plugin_code=_PLUGIN)
    if not keys.exists():
        key = base64.b64encode(os.urandom(32)).decode()
        write_private(keys, f"k1 {key}\n".encode())
    file = folder / "nacre.json5"
    document = json.loads(file.read_text(encoding="utf-8"))
    document["storage"] = {"url": storage_url}
    document["gateway"]["maxConcurrentRuns"] = _MAX_RUNS
    document["sandbox"] = {"snapshotKeys": {"file": str(keys)}, "maxSuspendedCells": _MAX_RUNS}
    file.write_text(json.dumps(document), encoding="utf-8")


@asynccontextmanager
async def _serve(proxy: _Proxy) -> AsyncGenerator[str]:
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


def _http_client(url: str) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(
        base_url=url,
        # A connection of its own for each request, so that the next gateway gets it.
        headers={"authorization": f"Bearer {TOKEN}", "connection": "close"},
        limits=httpx2.Limits(max_keepalive_connections=0),
        timeout=httpx2.Timeout(_PATIENCE_SECONDS),
    )


class _Killer:
    """The gateways, one of which is killed and replaced from time to time."""

    def __init__(self, folders: list[Path], proxy: _Proxy, effort: Effort) -> None:
        self._folders = folders
        self._proxy = proxy
        self._effort = effort
        self._stacks: list[AsyncExitStack] = []
        self._peers: list[Peer] = []
        self.kills = 0

    async def __aenter__(self) -> None:
        for folder in self._folders:
            stack = AsyncExitStack()
            self._peers.append(await stack.enter_async_context(gateway(folder)))
            self._stacks.append(stack)
        self._proxy.ports = [peer.port for peer in self._peers]

    async def __aexit__(self, *_: object) -> None:
        for stack in self._stacks:
            await stack.aclose()

    async def run(self, until: float) -> None:
        for at in itertools.cycle(range(len(self._folders))):
            await anyio.sleep(_KILL_SECONDS)
            if anyio.current_time() >= until:
                return
            await anyio.to_thread.run_sync(self._peers[at].kill)
            self.kills += 1
            self._effort.say(f"  kill {self.kills}")
            await self._stacks[at].aclose()
            self._stacks[at] = AsyncExitStack()
            self._peers[at] = await self._stacks[at].enter_async_context(gateway(self._folders[at]))
            self._proxy.ports[at] = self._peers[at].port
