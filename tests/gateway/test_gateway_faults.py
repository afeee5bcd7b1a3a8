"""Gateway processes on one PostgreSQL: one of them is stopped, or the server is restarted."""

from __future__ import annotations

import itertools
import json
import os
import signal
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import anyio
import anyio.to_thread
import pytest

from nacre.testing import Call, Say, ScriptedProvider, Stall
from tests.gateway.processes import PATIENCE_SECONDS, config_file, served
from tests.gateway.worlds import DURABLE
from tests.plugins.plugin_folders import plugin_folder
from tests.storage.conftest import own_postgres, postgres, postgres_server

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Collection, Sequence
    from pathlib import Path

    import httpx2

    from nacre.testing.script import PlainTurn, RecordedRequest
    from tests.gateway.processes import GatewayProcess
    from tests.storage.conftest import PostgresServer

__all__ = ["own_postgres", "postgres", "postgres_server"]

LOOK_UP: Final = {
    "name": "look_up",
    "description": "Looks it up.",
    "parameters": {"type": "object"},
}
CELL: Final = "return await tools.look_up({q: 1})"
# Both tools append to a file, so that a call that was made twice is seen.
PLUGIN: Final = """
from pathlib import Path

from nacre.plugins.api import AskApproval, PluginApi


def register(api: PluginApi) -> None:
    async def pay(what: str) -> str:
        "Pay something."
        return await note(what)

    async def note(what: str) -> str:
        "Note something."
        with Path("EFFECTS").open("a") as file:
            file.write(what + chr(10))
        return what

    async def ask(event):
        return AskApproval("money is about to move") if event.tool_name == "pay" else None

    api.add_tool(pay)
    api.add_tool(note)
    api.add_hook("before_tool_call", ask)
"""
CLOCK: Final = """
import time

NOW = time.time


def register(api):
    time.time = lambda: NOW() + SECONDS
"""
ENDS: Final = ("run.completed", "run.failed", "run.aborted", "run.interrupted")


class Model:
    """Calls a tool if it is asked to, is slow if it is asked to, and repeats everything else."""

    def __init__(self) -> None:
        self.is_slow = anyio.Event()
        self.may_end = anyio.Event()

    def answer(self, request: RecordedRequest) -> PlainTurn:
        last = request.messages[-1]
        if last.role == "tool":
            return Say(f"found {request.last_object['value']}")
        if request.prompt.startswith(("pay", "note")):
            tool = request.prompt.partition(" ")[0]
            what = json.dumps({"what": request.prompt})
            return Call("exec", {"code": f"return await tools.{tool}({what})"})
        if request.prompt.startswith("look"):
            return Call("exec", {"code": CELL})
        if request.prompt.startswith("slow"):
            self.is_slow.set()
            return [Stall(self.may_end), Say("too late")]
        return Say(f"so {request.prompt}")


@dataclass(kw_only=True)
class Gateway:
    """A process, and a client of it."""

    process: GatewayProcess
    client: httpx2.AsyncClient

    async def get(self, path: str) -> dict[str, Any]:
        answer = await self.client.get(path)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def start(self, text: str, key: str, **more: Any) -> dict[str, Any]:
        body = {"text": text, "sessionKey": key, **more}
        answer = await self.client.post("/api/runs", json=body)
        assert answer.status_code == 202, answer.text
        return answer.json()

    async def kinds(self, run_id: str, *, until: Collection[str] = ENDS) -> list[str]:
        """The kinds of the events of a run, read until one of these. Reads again if the stream ends
        before, as when another gateway has the run."""
        with anyio.fail_after(PATIENCE_SECONDS):
            while True:
                kinds: list[str] = []
                async with self.client.stream("GET", f"/api/runs/{run_id}/events") as answer:
                    assert answer.status_code == 200
                    async for line in answer.aiter_lines():
                        if line.startswith("event: "):
                            kinds.append(line.removeprefix("event: "))
                            if kinds[-1] in until:
                                return kinds

    async def until_waiting(self, run_id: str) -> dict[str, Any]:
        await self.kinds(run_id, until=["run.waiting"])
        return await self.get(f"/api/runs/{run_id}")

    async def texts(self, session_id: str) -> list[str]:
        session = await self.get(f"/api/sessions/{session_id}")
        return [it["text"] for it in session["messages"] if it["role"] in ("user", "assistant")]

    async def deliver(self, run: dict[str, Any], content: str) -> httpx2.Response:
        """Answer the only open call of a run."""
        (call,) = run["pendingClientCalls"]
        results = {"results": [{"callId": call["callId"], "content": content}]}
        return await self.client.post(f"/api/runs/{run['runId']}/client-results", json=results)

    async def ask(self, user: str) -> list[dict[str, Any]]:
        """Have the model call a tool of an OpenAI client; returns the messages so far."""
        messages: list[dict[str, Any]] = [{"role": "user", "content": "look"}]
        return [*messages, await self._chat(user, messages)]

    async def give_result(self, asked: list[dict[str, Any]], user: str) -> str:
        """Continue with the result of the only call; returns the answer."""
        (call,) = asked[-1]["tool_calls"]
        result = {"role": "tool", "tool_call_id": call["id"], "content": "a pearl"}
        text: str = (await self._chat(user, [*asked, result]))["content"]
        return text

    async def _chat(self, user: str, messages: list[dict[str, Any]]) -> dict[str, Any]:
        tools = [{"type": "function", "function": LOOK_UP}]
        body = {"model": "nacre", "messages": messages, "tools": tools, "user": user}
        answer = await self.client.post("/v1/chat/completions", json=body)
        assert answer.status_code == 200, answer.text
        return answer.json()["choices"][0]["message"]

    async def stop(self) -> None:
        """Stop the process where it is, as a debugger or a suspended machine does."""
        pid = self.process.process.pid
        self.process.signal(signal.SIGSTOP)
        _, status = await anyio.to_thread.run_sync(os.waitpid, pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)

    def resume(self) -> None:
        self.process.signal(signal.SIGCONT)


@dataclass(kw_only=True)
class Talker:
    """A client with one session that sends a message to the next gateway, and again until it is
    accepted."""

    gateways: Sequence[Gateway]
    name: str
    prompts: list[str] = field(default_factory=list[str])
    answered: anyio.Event = field(default_factory=anyio.Event)
    """A turn has ended since this was replaced."""
    is_over: bool = False

    def __post_init__(self) -> None:
        self._next = itertools.cycle(self.gateways)

    async def talk(self) -> None:
        """Run turns, one after the other, until it `is_over`."""
        while not self.is_over:
            await self.talk_once()
            self.answered.set()

    async def talk_once(self) -> None:
        prompt = f"note {self.name} {len(self.prompts)}"
        self.prompts.append(prompt)
        await follow(self._next, await self._send(prompt))

    async def _send(self, prompt: str) -> str:
        body = {"text": prompt, "sessionKey": self.name}
        while True:
            answer = await next(self._next).client.post(
                "/api/runs", json=body, headers={"idempotency-key": prompt}
            )
            if answer.status_code == 202:
                run_id: str = answer.json()["runId"]
                return run_id
            assert answer.status_code == 503, answer.text


async def follow(at: itertools.cycle[Gateway], run_id: str) -> None:
    """Read the events of a run until it is completed. Where a stream ends before, the next gateway
    continues it."""
    last, sequences = "", list[int]()
    with anyio.fail_after(PATIENCE_SECONDS):
        while True:
            headers = {"last-event-id": last} if last else {}
            path = f"/api/runs/{run_id}/events"
            async with next(at).client.stream("GET", path, headers=headers) as answer:
                assert answer.status_code in (200, 503), await answer.aread()
                async for line in answer.aiter_lines():
                    name, _, value = line.partition(": ")
                    if name == "id":
                        last = value
                    if name == "data" and "sequence" in (event := json.loads(value)):
                        sequences.append(event["sequence"])
                        if event["kind"] in ENDS:
                            assert event["kind"] == "run.completed", event
                            assert sequences == [*range(len(sequences))]
                            return


@asynccontextmanager
async def open_gateways(
    folder: Path,
    server: PostgresServer,
    model: ScriptedProvider,
    *,
    clocks: Sequence[float] = (0, 0),
) -> AsyncGenerator[list[Gateway]]:
    """Gateways whose clocks differ from that of the machine by these seconds."""
    tools = plugin_folder(folder, code=PLUGIN.replace("EFFECTS", str(folder / "effects")))
    async with AsyncExitStack() as stack:
        opened: list[Gateway] = []
        for number, seconds in enumerate(clocks):
            own_folder = folder / str(number)
            clock = plugin_folder(own_folder, "clock", CLOCK.replace("SECONDS", str(seconds)))
            document = {
                **DURABLE,
                "storage": {"url": server.url()},
                "sandbox": {"snapshotKeys": {"file": str(folder / "keys")}},
                "plugins": {"entryPoints": False, "paths": [str(tools), str(clock)]},
            }
            config = await config_file(own_folder, model, document)
            process, client = await stack.enter_async_context(served(own_folder, config))
            opened.append(Gateway(process=process, client=client))
        yield opened


async def sql(server: PostgresServer, statement: str) -> str:
    return await anyio.to_thread.run_sync(server.sql, statement)


async def until_sql(server: PostgresServer, statement: str, wanted: str) -> None:
    with anyio.fail_after(PATIENCE_SECONDS):
        while await sql(server, statement) != wanted:
            pass


async def test_a_gateway_that_is_stopped_for_longer_than_its_lease_writes_nothing(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    model = Model()
    async with (
        ScriptedProvider(model.answer) as provider,
        open_gateways(tmp_path, postgres, provider) as (one, other),
    ):
        look = partial(one.start, clientTools=[LOOK_UP])
        waiting, behind = (
            await look("look", "waiting"),
            await one.start("and then", "waiting", queueMode="followup"),
        )
        late = await look("look", "late")
        slow = await one.start("slow", "slow")
        with anyio.fail_after(PATIENCE_SECONDS):
            await model.is_slow.wait()
        asked = [await one.until_waiting(it["runId"]) for it in (waiting, late)]
        await until_sql(postgres, "SELECT count(*) FROM nacre_turn_states", "2")

        await one.stop()
        await sql(postgres, "UPDATE nacre_leases SET expires = 0")
        assert (await other.kinds(slow["runId"]))[-1] == "run.interrupted"
        count = f"SELECT count(*) FROM nacre_events WHERE run_id = '{slow['runId']}'"
        count_before = await sql(postgres, count)
        again = await other.start("again", "slow")
        answers: list[httpx2.Response] = []

        async def deliver_late() -> None:
            answers.append(await one.deliver(asked[1], "a shell"))

        async with anyio.create_task_group() as tasks:
            # It gets this while it is stopped, and handles it when it continues.
            tasks.start_soon(deliver_late)
            answer = await other.deliver(asked[0], "a pearl")
            assert answer.status_code == 200, answer.text
            for run in (waiting, behind, again):
                assert (await other.kinds(run["runId"]))[-1] == "run.completed"
            one.resume()
            model.may_end.set()
        assert answers[0].status_code == 200, answers[0].text
        for run in (waiting, late):
            kinds = await one.kinds(run["runId"])
            assert kinds == await other.kinds(run["runId"])
            assert kinds[-1] == "run.completed"
        # It has dropped the turn that ran, or has tried to store its end.
        lost = f"serves the session {slow['sessionId']} now"
        await one.process.logged(lost, f"the turn {slow['runId']} is left")
        assert await sql(postgres, count) == count_before
        ends = "SELECT run_id FROM nacre_events WHERE event LIKE '%\"turn.ended\"%'"
        ended = (await sql(postgres, ends)).splitlines()
        runs = (waiting, behind, late, again)
        assert sorted(ended) == sorted(run["runId"] for run in runs)
        expected = {
            waiting["sessionId"]: ["look", "", "found a pearl", "and then", "so and then"],
            late["sessionId"]: ["look", "", "found a shell"],
            slow["sessionId"]: ["again", "so again"],
        }
        for session_id, texts in expected.items():
            for gateway in (one, other):
                assert await gateway.texts(session_id) == texts
                more = await gateway.start("more", "", sessionId=session_id)
                await gateway.kinds(more["runId"])
                texts += ["more", "so more"]


async def test_a_server_that_crashes_under_load_and_starts_again_costs_no_turn(
    own_postgres: PostgresServer, tmp_path: Path
) -> None:
    model = Model()
    async with (
        ScriptedProvider(model.answer) as provider,
        open_gateways(tmp_path, own_postgres, provider, clocks=(0, 0, 0)) as gateways,
    ):
        one, other, third = gateways
        paying = await one.start("pay 1", "paying")
        looking = await other.start("look", "looking", clientTools=[LOOK_UP])
        slow = await one.start("slow", "slow")
        behind = await one.start("and then", "slow", queueMode="followup")
        (approval,) = (await one.until_waiting(paying["runId"]))["pendingApprovals"]
        looked = await other.until_waiting(looking["runId"])
        with anyio.fail_after(PATIENCE_SECONDS):
            await model.is_slow.wait()
        talkers = [Talker(gateways=gateways, name=f"session {n}") for n in range(4)]
        async with anyio.create_task_group() as tasks:
            for run in (paying, looking, slow, behind):
                for gateway in gateways:
                    tasks.start_soon(follow, itertools.cycle([gateway]), run["runId"])
            async with anyio.create_task_group() as talks:
                for talker in talkers:
                    talks.start_soon(talker.talk)
                await all_answered(talkers)
                await anyio.to_thread.run_sync(own_postgres.crash)
                await anyio.to_thread.run_sync(own_postgres.start_again)
                for _ in range(2):
                    await all_answered(talkers)
                for talker in talkers:
                    talker.is_over = True
            path = f"/api/approvals/{approval['approvalId']}"
            answer = await third.client.post(path, json={"answer": "allow-once"})
            assert answer.status_code == 200, answer.text
            answer = await third.deliver(looked, "a pearl")
            assert answer.status_code == 200, answer.text
            model.may_end.set()
        effects = await anyio.Path(tmp_path / "effects").read_text()
        prompts = [prompt for talker in talkers for prompt in talker.prompts]
        assert sorted(effects.splitlines()) == sorted(["pay 1", *prompts])
        assert await sql(own_postgres, "SELECT DISTINCT status FROM nacre_turns") == "completed"


async def all_answered(talkers: Sequence[Talker]) -> None:
    """Wait until each of them has had one more turn."""
    with anyio.fail_after(PATIENCE_SECONDS):
        for talker in talkers:
            talker.answered = anyio.Event()
        for talker in talkers:
            await talker.answered.wait()


@pytest.mark.parametrize("clocks", [(0, 3600), (-3600, 0)])
async def test_a_gateway_whose_clock_is_off_serves_and_takes_over_like_others(
    postgres: PostgresServer, tmp_path: Path, clocks: tuple[float, float]
) -> None:
    model = Model()
    async with (
        ScriptedProvider(model.answer) as provider,
        open_gateways(tmp_path, postgres, provider, clocks=clocks) as (one, other),
    ):
        keys = {"idempotency-key": "k"}
        body = {"text": "pay 1", "sessionKey": "paying"}
        first = await one.client.post("/api/runs", json=body, headers=keys)
        paying = first.json()
        (approval,) = (await other.until_waiting(paying["runId"]))["pendingApprovals"]
        asked, answered = await one.ask("kept"), await one.ask("answered")
        # Adding the key of a message deletes what has expired.
        talking = Talker(gateways=[other], name="talking")
        await talking.talk_once()
        again = await other.client.post("/api/runs", json=body, headers=keys)
        assert again.json()["runId"] == paying["runId"], again.text
        assert await other.give_result(answered, "answered") == "found a pearl"
        await until_sql(postgres, "SELECT count(*) FROM nacre_turn_states", "2")
        listed = (await other.get("/api/gateways"))["gateways"]
        assert [it["state"] for it in listed] == ["alive", "alive"]

        one.process.signal(signal.SIGKILL)
        assert (await other.kinds(paying["runId"], until=["run.resumed"]))[-1] == "run.resumed"
        path = f"/api/approvals/{approval['approvalId']}"
        answer = await other.client.post(path, json={"answer": "allow-once"})
        assert answer.status_code == 200, answer.text
        assert (await other.kinds(paying["runId"]))[-1] == "run.completed"
        assert await other.give_result(asked, "kept") == "found a pearl"
        effects = await anyio.Path(tmp_path / "effects").read_text()
        assert sorted(effects.splitlines()) == ["note talking 0", "pay 1"]
