"""Faults in the middle of Codex turns: killed processes, other writers, and nothing that leaks."""

import os
import signal
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import psutil
import pytest

from nacre.agent import AgentRun, ClientTool
from nacre.codex_harness import AppServers, hook_relay
from nacre.codex_harness.hook_relay import HookRelay
from nacre.json_types import JsonObject, encode_json
from nacre.testing import Call, Say
from nacre.testing.script import PlainTurn, RecordedRequest
from tests.codex_harness.codex_setup import codex_document, mock_provider_config, read_config
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


QUESTION: JsonObject = {
    "id": "colour",
    "header": "Colour",
    "question": "Which one?",
    "options": [
        {"label": "Red", "description": "like a rose"},
        {"label": "Blue", "description": "like the sea"},
    ],
}
STATES: dict[str, tuple[Call, Callable[[AgentRun], Awaitable[None]]]] = {
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


@requirement("codex:crash-in-a-turn")
async def test_a_kill_in_any_state_ends_the_turn_and_the_next_one_resumes_the_thread(
    tmp_path: Path,
) -> None:
    command = NativeCommand(tmp_path / "pipe")
    os.mkfifo(command.pipe)
    states = {"a native command runs": (command.call, command.wait_until_running), **STATES}
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


def wait_for_end(processes: list[psutil.Process]) -> list[psutil.Process]:
    """Wait until processes have ended; returns those that have not."""
    return psutil.wait_procs(processes, timeout=60)[1]


@requirement("codex:second-writer")
async def test_a_thread_that_another_process_has_open_is_replaced(tmp_path: Path) -> None:
    script = [Say("one"), Say("two"), Say("three")]
    async with open_setup(tmp_path, script) as setup, AppServers() as others:
        first = await setup.turn("first")
        before = await setup.system.store.thread(first.session_id)
        assert before is not None
        await kill_app_servers()
        # Another process of the same user, such as `codex resume`.
        codex = (await read_config(codex_document(setup.provider.openai_url), tmp_path)).codex
        async with others.use(codex, "main") as other:
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

    async with open_setup(tmp_path, answer) as setup:
        before = await take_turns(setup, range(20))
        after = await take_turns(setup, range(20, 100))
        # Codex reads the login shell of each new thread in the background.
        for server in await anyio.to_thread.run_sync(app_servers):
            shells = await anyio.to_thread.run_sync(server.children, True)
            assert await anyio.to_thread.run_sync(wait_for_end, shells) == []
        assert await count_processes() <= 3
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


async def count_processes() -> int:
    def count() -> int:
        return len(psutil.Process().children(recursive=True))

    return await anyio.to_thread.run_sync(count)
