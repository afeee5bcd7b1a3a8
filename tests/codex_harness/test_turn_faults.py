"""Faults in the middle of Codex turns: killed processes, other writers, and nothing that leaks."""

import os
import signal
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import anyio
import anyio.to_thread
import psutil
import pytest

from nacre.agent import OWNER_RIGHTS, AgentRun, ClientTool
from nacre.codex_harness import AppServerClient, AppServers, client, hook_relay
from nacre.codex_harness.hook_relay import HookRelay
from nacre.json_types import JsonObject, JsonValue, encode_json
from nacre.messages import UserMessage
from nacre.testing import Call, Say, Stall
from nacre.testing.script import PlainTurn, RecordedRequest, Turn
from tests.codex_harness.codex_setup import (
    codex_document,
    mock_provider_config,
    read_config,
    skip_old_codex,
)
from tests.codex_harness.test_harness import Setup, app_servers, open_setup
from tests.contract.requirements import requirement
from tests.plugins.plugin_folders import plugin_folder

SHOP = """
from nacre.hooks import AskApproval

async def pay(amount: int) -> str:
    "Pay for something."
    return f"paid {amount}"

async def before_tool_call(event):
    is_asked = event.tool_name == "pay" or "touch" in str(event.input)
    return AskApproval("it costs money") if is_asked else None

def register(api):
    api.add_tool(pay)
    api.add_hook("before_tool_call", before_tool_call)
"""


async def kill_app_servers() -> None:
    for process in await anyio.to_thread.run_sync(app_servers):
        process.send_signal(signal.SIGKILL)


async def until(run: AgentRun, kind: str) -> None:
    with anyio.fail_after(60):
        async for event in run.events.follow():
            if event.kind == kind:
                return
    raise AssertionError(f"the run ended without {kind}")


@dataclass
class NativeCommand:
    """A native command that runs until it is killed, and says when it has begun."""

    pipe: Path
    process: psutil.Process | None = None

    @property
    def call(self) -> Call:
        command = f"echo $$ > '{self.pipe}' && exec sleep 100000"
        return Call("exec_command", {"cmd": command, "yield_time_ms": 60_000})

    async def wait_until_running(self, _run: AgentRun) -> None:
        with anyio.fail_after(60):
            # Opening the pipe blocks until the command writes into it.
            number = await anyio.to_thread.run_sync(self.pipe.read_text, abandon_on_cancel=True)
        self.process = psutil.Process(int(number))


class HeldModel:
    """A model that is asked, and answers nothing."""

    def __init__(self) -> None:
        self._is_asked = anyio.Event()

    def hold(self, _request: RecordedRequest) -> PlainTurn:
        self._is_asked.set()
        return Stall()

    async def wait_until_asked(self) -> None:
        with anyio.fail_after(60):
            await self._is_asked.wait()


QUESTION: JsonObject = {
    "id": "colour",
    "header": "Colour",
    "question": "Which one?",
    "options": [
        {"label": "Red", "description": "like a rose"},
        {"label": "Blue", "description": "like the sea"},
    ],
}
State: TypeAlias = tuple[Turn, Callable[[AgentRun], Awaitable[None]]]
"""What the model says, and a function that waits until the state is reached."""
STATES: dict[str, State] = {
    "a tool of the client is open": (
        Call("pick", {}),
        lambda run: until(run, "client_call.requested"),
    ),
    "an approval of a native command is open": (
        Call("exec_command", {"cmd": "touch made.txt"}),
        lambda run: until(run, "approval.requested"),
    ),
    "a question is open": (
        Call("request_user_input", {"questions": [QUESTION]}),
        lambda run: until(run, "input.requested"),
    ),
    "an approval is open": (
        Call("pay", {"amount": 1}),
        lambda run: until(run, "approval.requested"),
    ),
}


@requirement("codex:crash-in-a-turn", "codex:crash-names-effects")
async def test_a_kill_in_any_state_ends_the_turn_and_the_next_one_resumes_the_thread(
    tmp_path: Path,
) -> None:
    command = NativeCommand(tmp_path / "pipe")
    os.mkfifo(command.pipe)
    model = HeldModel()
    states: dict[str, State] = {
        "the model has not answered": (model.hold, lambda _: model.wait_until_asked()),
        "a native command runs": (command.call, command.wait_until_running),
        **STATES,
    }
    script: list[Any] = []
    for call, _ in states.values():
        script += [call, Say("again")]
    folder = await anyio.to_thread.run_sync(plugin_folder, tmp_path, "shop", SHOP)
    codex = {"codexDynamicToolsLoading": "direct"}
    plugins = {
        "paths": [str(folder)],
        "entryPoints": False,
        "entries": {"codex": {"config": codex}},
    }
    threads: set[str] = set()
    async with open_setup(tmp_path, script, {"plugins": plugins}) as setup:
        for state, (_, reached) in states.items():
            run = await setup.start(state, client_tools=[ClientTool(name="pick")])
            await reached(run)
            await kill_app_servers()
            with anyio.fail_after(60):
                result = await run.wait()
            assert run.state == "failed", state
            assert "app-server was killed by SIGKILL" in result.error
            has_acted = state != "the model has not answered"
            assert ("check what it has done" in result.error) == has_acted, state
            assert run.pending_client_calls == ()
            assert run.pending_approvals == ()
            assert setup.system.approvals.pending == ()
            again = await setup.turn("again", client_tools=[ClientTool(name="pick")])
            assert again.result is not None
            assert (again.result.error, again.result.text) == ("", "again")
            record = await setup.system.store.thread(run.session_id)
            assert record is not None
            threads.add(record.thread_id)
        assert command.process is not None
        assert await anyio.to_thread.run_sync(wait_for_end, [command.process]) == []
    assert len(threads) == 1


@requirement("codex:crash-in-a-turn", "codex:crash-of-the-process")
async def test_a_kill_before_a_turn_has_begun_fails_it_and_the_next_one_resumes_the_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted: list[str] = []
    plain = AppServerClient.request

    async def request(
        client: AppServerClient, method: str, params: JsonObject, **options: Any
    ) -> JsonValue:
        if method in wanted:
            wanted.clear()
            # It is killed before it can answer.
            await anyio.to_thread.run_sync(signal_app_servers, signal.SIGSTOP, signal.SIGKILL)
        return await plain(client, method, params, **options)

    async def end_app_server(thread_id: str) -> None:
        client = setup.system.codex.servers.find_by_thread(thread_id)
        assert client is not None
        await anyio.to_thread.run_sync(signal_app_servers, signal.SIGKILL)
        with anyio.fail_after(60):
            await client.wait_closed()

    monkeypatch.setattr(AppServerClient, "request", request)
    async with open_setup(tmp_path, lambda _: Say("done")) as setup:
        first = await setup.turn("first")
        before = await setup.system.store.thread(first.session_id)
        assert before is not None
        for method in ("initialize", "model/list", "thread/resume", "turn/start", "thread/start"):
            # The next turn starts a process, which has to load the thread.
            await end_app_server(before.thread_id)
            wanted.append(method)
            key = "other" if method == "thread/start" else "main"
            run = await setup.turn(method, session_key=key)
            assert run.result is not None
            assert "app-server was killed by SIGKILL" in run.result.error, method
            assert "check what it has done" not in run.result.error
            assert wanted == []
            await go_on(setup, key)
            await go_on(setup, "main")
            after = await setup.system.store.thread(first.session_id)
            assert after is not None
            assert after.thread_id == before.thread_id


def signal_app_servers(*signals: signal.Signals) -> None:
    for process in app_servers():
        for each in signals:
            process.send_signal(each)


@requirement("codex:crash-in-a-turn", "codex:native-compaction")
@pytest.mark.parametrize("text", ["/compact", "/codex review Look at nothing."])
async def test_a_kill_in_a_compaction_or_a_review_does_not_cost_the_thread(
    tmp_path: Path, text: str
) -> None:
    model = HeldModel()
    async with open_setup(tmp_path, [Say("one"), model.hold, Say("two")]) as setup:
        first = await setup.turn("first")
        before = await setup.system.store.thread(first.session_id)
        run = await setup.start(text, rights=OWNER_RIGHTS)
        await model.wait_until_asked()
        await kill_app_servers()
        with anyio.fail_after(60):
            result = await run.wait()
        # A compaction has been started, and nobody waits for its end.
        assert ("was killed by SIGKILL" in result.error) == text.startswith("/codex")
        # The next turn starts another process as soon as Nacre knows of the end of this one.
        assert before is not None
        connection = setup.system.codex.servers.find_by_thread(before.thread_id)
        if connection is not None:
            with anyio.fail_after(60):
                await connection.wait_closed()
        again = await setup.turn("second")
        after = await setup.system.store.thread(first.session_id)
    assert again.result is not None
    assert (again.result.error, again.result.text) == ("", "two")
    assert after is not None
    assert after.thread_id == before.thread_id


class SentRequests:
    """Tells when a request of a method has been answered, or is about to be sent."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, method: str) -> None:
        self.is_answered = anyio.Event()
        self.on_send: Callable[[], object] = lambda: None
        plain, seen = AppServerClient.request, self

        async def request(
            client: AppServerClient, name: str, params: JsonObject, **options: Any
        ) -> JsonValue:
            if name != method:
                return await plain(client, name, params, **options)
            seen.on_send()
            try:
                return await plain(client, name, params, **options)
            finally:
                seen.is_answered.set()

        monkeypatch.setattr(AppServerClient, "request", request)


@requirement("codex:steering-not-repeated")
async def test_a_message_that_codex_may_have_used_before_a_kill_is_stored_and_not_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steering = SentRequests(monkeypatch, "turn/steer")
    script = [Call("pick", {}, namespace="openclaw"), Say("again")]
    queue = {"messages": {"queue": {"debounceMs": 0}}}
    tools = [ClientTool(name="pick")]
    async with open_setup(tmp_path, script, queue) as setup:
        run = await setup.start("first", client_tools=tools)
        await until(run, "client_call.requested")
        assert await setup.start("and this") is run
        with anyio.fail_after(60):
            await steering.is_answered.wait()
            await kill_app_servers()
            await run.wait()
        assert run.state == "failed"
        assert setup.system.agents.runs(run.session_id) == [run]
        again = await setup.turn("second", client_tools=tools)
        assert again.result is not None
        assert again.result.text == "again"
        stored = [it.message for it in await setup.system.store.messages(run.session_id)]
    said = [it.text for it in stored if isinstance(it, UserMessage)]
    assert said == ["first", "and this", "second"]
    assert len(setup.provider.requests) == 2


@requirement("codex:abort")
async def test_a_turn_that_codex_starts_after_its_abort_is_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def answer(request: RecordedRequest) -> PlainTurn:
        return Stall() if request.prompt.endswith("first") else Say("two")

    start = SentRequests(monkeypatch, "turn/start")
    async with open_setup(tmp_path, answer) as setup:
        run = await setup.start("first")
        start.on_send = lambda: run.request_abort("enough")
        with anyio.fail_after(60):
            await run.wait()
        assert run.state == "aborted"
        start.on_send = lambda: None
        # It would wait forever for a turn that nobody has interrupted.
        second = await setup.turn("second")
    assert second.result is not None
    assert (second.result.error, second.result.text) == ("", "two")


def wait_for_end(processes: list[psutil.Process]) -> list[psutil.Process]:
    """Wait until processes have ended; returns those that have not."""
    return psutil.wait_procs(processes, timeout=60)[1]


@requirement("codex:frozen-process")
@pytest.mark.parametrize("is_aborted", [True, False])
async def test_a_frozen_process_is_replaced_and_the_thread_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_aborted: bool
) -> None:
    monkeypatch.setattr(client, "_MAX_SILENT_SECONDS", 2.0)
    monkeypatch.setattr(client, "_MAX_PROBE_SECONDS", 2.0)
    script = [[Say("I begin "), Stall()], Say("Again."), Say("And again.")]
    async with open_setup(tmp_path, script) as setup:
        run = await setup.start("first")
        await until(run, "text.delta")
        before = await setup.system.store.thread(run.session_id)
        frozen = await anyio.to_thread.run_sync(app_servers)
        for process in frozen:
            process.send_signal(signal.SIGSTOP)
        if is_aborted:
            with anyio.fail_after(60):
                assert await run.abort("enough")
            # Nobody knows yet that it is frozen: this turn has to wait for the end of the last.
            run = await setup.turn("second")
        with anyio.fail_after(60):
            result = await run.wait()
        assert "app-server did not answer any more, and Nacre has ended it" in result.error
        monkeypatch.setattr(client, "_MAX_SILENT_SECONDS", 60.0)
        again = await setup.turn("third")
        assert again.result is not None
        assert (again.result.error, again.result.text) == ("", "Again.")
        assert await anyio.to_thread.run_sync(wait_for_end, frozen) == []
        after = await setup.system.store.thread(run.session_id)
    assert before is not None
    assert after is not None
    assert after.thread_id == before.thread_id


@requirement("codex:idle-turns-go-on")
async def test_a_model_that_thinks_for_a_long_time_is_not_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "_MAX_SILENT_SECONDS", 0.05)
    monkeypatch.setattr(client, "_MAX_PROBE_SECONDS", 0.3)
    monkeypatch.setattr(client, "_READ_SECONDS", 2.0)
    may_answer = anyio.Event()
    probes: list[str] = []
    plain = AppServerClient.post

    def post(self: AppServerClient, method: str, params: JsonObject) -> None:
        probes.append(method)
        # Silent for many times as long as the limit.
        if probes.count(client.PROBE) == 3:
            may_answer.set()
        plain(self, method, params)

    monkeypatch.setattr(AppServerClient, "post", post)
    async with open_setup(tmp_path, [[Stall(until=may_answer), Say("at last")]]) as setup:
        run = await setup.turn("think")
    assert run.result is not None
    assert (run.result.error, run.result.text) == ("", "at last")


@requirement("codex:timeout-ends-one-turn")
async def test_a_turn_that_takes_too_long_ends_alone(tmp_path: Path) -> None:
    def answer(request: RecordedRequest) -> PlainTurn:
        if request.prompt.endswith("forever"):
            return Stall()
        return Say("done") if request.tool_results else Call("pick", {}, namespace="openclaw")

    async with open_setup(tmp_path, answer, agent={"timeoutSeconds": 5}) as setup:
        # Its time stands still while it waits for its client.
        other = await setup.start("other", session_key="o", client_tools=[ClientTool(name="pick")])
        await until(other, "client_call.requested")
        processes = await anyio.to_thread.run_sync(app_servers)
        late = await setup.turn("forever", session_key="late")
        assert late.result is not None
        assert "`timeoutSeconds` of the agent main" in late.result.error
        other.deliver(other.pending_client_calls[0].call_id, "the red one")
        with anyio.fail_after(60):
            assert (await other.wait()).text == "done"
        assert await anyio.to_thread.run_sync(app_servers) == processes
        # The thread of the turn that was cut off goes on as well.
        before = await setup.system.store.thread(late.session_id)
        again = await setup.start(
            "again", session_key="late", client_tools=[ClientTool(name="pick")]
        )
        await until(again, "client_call.requested")
        after = await setup.system.store.thread(late.session_id)
        await again.abort("enough")
    assert before is not None
    assert after is not None


@requirement("codex:sessions-at-once")
async def test_sessions_of_an_agent_share_a_process_and_an_abort_or_a_kill(
    tmp_path: Path,
) -> None:
    def answer(request: RecordedRequest) -> PlainTurn:
        return [Say("I begin "), Stall()] if request.prompt.endswith("wait") else Say("done")

    async with open_setup(tmp_path, answer) as setup:
        keys = [f"session-{number}" for number in range(4)]
        runs = [await setup.start("wait", session_key=key) for key in keys]
        for run in runs:
            await until(run, "text.delta")
        assert len({it.pid for it in await anyio.to_thread.run_sync(app_servers)}) == 1
        # The abort of one turn is none of the others.
        assert await runs[0].abort("enough")
        assert [run.state for run in runs] == ["aborted", "running", "running", "running"]
        other = await setup.turn("go", session_key="session-4")
        assert other.result is not None
        assert other.result.text == "done"
        await kill_app_servers()
        with anyio.fail_after(60):
            results = [await run.wait() for run in runs[1:]]
        assert all("was killed by SIGKILL" in result.error for result in results)
        # All of them start again at once, in one new process.
        async with anyio.create_task_group() as tasks:
            for key in keys:
                tasks.start_soon(go_on, setup, key)
        assert len(await anyio.to_thread.run_sync(app_servers)) == 1


async def go_on(setup: Setup, session_key: str) -> None:
    run = await setup.turn("go", session_key=session_key)
    assert run.result is not None
    assert (run.result.error, run.result.text) == ("", "done")


@requirement("codex:second-writer")
@skip_old_codex("lets two processes write to a thread")
async def test_a_thread_that_another_process_has_open_is_replaced(tmp_path: Path) -> None:
    script = [Say("one"), Say("two"), Say("three")]
    async with open_setup(tmp_path, script) as setup, AppServers() as others:
        first = await setup.turn("first")
        before = await setup.system.store.thread(first.session_id)
        assert before is not None
        await kill_app_servers()
        # Another process of the same user, such as `codex resume`.
        codex = (await read_config(codex_document(setup.provider.openai_url), tmp_path)).codex
        async with others.use(codex, "main", "nacre-mock") as other:
            config = mock_provider_config(setup.provider.openai_url)
            config["model_providers.nacre-mock"] = config.pop("model_providers.mock")
            await other.request("thread/resume", {"threadId": before.thread_id, "config": config})
            second = await setup.turn("second")
            third = await setup.turn("third")
        after = await setup.system.store.thread(first.session_id)
        assert after is not None
        # It is not silent: the run, its trajectory and its session say so.
        (turn,) = [
            it for it in await setup.system.store.turns(first.session_id) if it.run_id == second.id
        ]
        note = str(turn.data["note"])
        assert f"instead of {before.thread_id}: another process has it open" in note
        assert note in [it.data.get("note") for it in second.events.events]
        recorded = await setup.system.store.events(run_id=second.id)
        assert note in encode_json([it.event for it in recorded]).decode()
        assert not any("note" in it.data for it in third.events.events)
    assert [run.result and run.result.text for run in (second, third)] == ["two", "three"]
    assert after.thread_id != before.thread_id
    # The new thread knows what was said.
    assert "first" in "\n".join(it.text for it in setup.provider.requests[1].messages)


@requirement("codex:no-leaks")
async def test_a_hundred_turns_leave_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    relays: list[HookRelay] = []

    class CountedRelay(HookRelay):
        def __init__(self, socket_path: str) -> None:
            super().__init__(socket_path)
            relays.append(self)

    monkeypatch.setattr(hook_relay, "HookRelay", CountedRelay)

    def answer(request: RecordedRequest) -> PlainTurn:
        is_calling = request.prompt == "list" and not request.last_result
        return Call("list", {"path": "."}, namespace="openclaw") if is_calling else Say("done")

    # Other tests of this process share gateways.
    others = await anyio.to_thread.run_sync(descendants)
    async with open_setup(tmp_path, answer) as setup:
        before = await take_turns(setup, range(20))
        after = await take_turns(setup, range(20, 100))
        # Codex reads the login shell of each new thread in the background.
        for server in await anyio.to_thread.run_sync(app_servers):
            shells = await anyio.to_thread.run_sync(server.children, True)
            assert await anyio.to_thread.run_sync(wait_for_end, shells) == []
        assert len(await anyio.to_thread.run_sync(descendants) - others) <= 3
        # Each session keeps its last registration for a while.
        assert relays
        assert sum(relay.count for relay in relays) <= 10
    assert after == before
    assert await anyio.to_thread.run_sync(app_servers) == []


async def take_turns(setup: Setup, numbers: range) -> dict[str, int]:
    """Run turns in ten sessions, and count what is open afterwards."""
    for number in numbers:
        message = "list" if number < 10 else "go"
        run = await setup.turn(message, session_key=f"session-{number % 10}")
        assert run.result is not None
        assert run.result.text == "done"
    me = psutil.Process()
    return {"descriptors": me.num_fds(), "threads": me.num_threads()}


def descendants() -> set[psutil.Process]:
    return set(psutil.Process().children(recursive=True))
