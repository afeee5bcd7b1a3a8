"""Turns inside of the real Codex: text, usage, records, abort, and a process that dies."""

import signal
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import psutil
import pytest

from nacre.agent import AgentRun, TurnRequest
from nacre.bootstrap import System, open_system
from nacre.messages import AssistantMessage, TextPart, ThinkingPart, UserMessage
from nacre.testing import Call, RecordedRequest, Say, ScriptedProvider, Stall, Think
from nacre.testing.script import Script
from tests.codex_harness.codex_setup import (
    CODEX_VERSION,
    codex_document,
    fake_server,
    read_config,
)
from tests.contract.requirements import requirement

pytestmark = pytest.mark.anyio


class Setup:
    """An open system, its scripted model and its directory."""

    def __init__(self, system: System, provider: ScriptedProvider, folder: Path) -> None:
        self.system = system
        self.provider = provider
        self.folder = folder

    async def turn(self, message: str, **options: Any) -> AgentRun:
        run = await self.start(message, **options)
        with anyio.fail_after(60):
            await run.wait()
        return run

    async def start(self, message: str, **options: Any) -> AgentRun:
        options.setdefault("session_key", "main")
        return await self.system.agents.start(TurnRequest(message=message, **options))


@asynccontextmanager
async def open_setup(
    folder: Path, script: Script, document: Mapping[str, Any] | None = None, **settings: Any
) -> AsyncGenerator[Setup]:
    async with ScriptedProvider(script) as provider:
        whole = {**codex_document(provider.openai_url, **settings), **(document or {})}
        config = await read_config(whole, folder)
        async with open_system(config, workers=1) as system:
            yield Setup(system, provider, folder)


def app_servers() -> list[psutil.Process]:
    return [it for it in psutil.Process().children(recursive=True) if is_app_server(it)]


def is_app_server(process: psutil.Process) -> bool:
    try:
        return "app-server" in process.cmdline()
    except psutil.Error:
        # It has just ended.
        return False


def said(request: RecordedRequest) -> list[str]:
    """The messages of the user; old versions have the context of Nacre in front of them."""
    texts = [message.text for message in request.messages if message.role == "user"]
    return [text.rpartition("\n")[2] for text in texts]


def kinds(run: AgentRun) -> list[str]:
    return [event.kind for event in run.events.events]


@requirement("codex:model-loop", "codex:mirror")
async def test_a_turn_runs_in_codex_and_its_session_keeps_what_was_said(tmp_path: Path) -> None:
    script = [[Think("A greeting."), Say("Hello Ada.")], Say("You said hi.")]
    async with open_setup(tmp_path, script) as setup:
        first = await setup.turn("hi")
        assert first.result is not None
        assert (first.result.error, first.result.text) == ("", "Hello Ada.")
        assert first.result.usage.output_tokens > 0
        assert {"codex_app_server.lifecycle", "text.delta", "thinking.delta"} <= set(kinds(first))
        second = await setup.turn("what did I say?")
        assert second.result is not None
        assert second.result.text == "You said hi."

        stored = [it.message for it in await setup.system.store.messages(first.session_id)]
        assert [type(message) for message in stored] == [UserMessage, AssistantMessage] * 2
        answer = stored[1]
        assert isinstance(answer, AssistantMessage)
        assert answer.parts == (ThinkingPart(text="A greeting."), TextPart(text="Hello Ada."))
        turns = await setup.system.store.turns(first.session_id)
        assert [turn.surface for turn in turns] == ["codex", "codex"]

    # The thread was used again: Codex itself remembers the first message.
    last = setup.provider.requests[-1]
    texts = said(last)
    assert [text for text in texts if text in ("hi", "what did I say?")] == [
        "hi",
        "what did I say?",
    ]
    assert last.headers["authorization"] == "Bearer sk-of-the-mock"
    # None of Nacre's own control tools.
    assert not {"exec", "wait", "tool_search_code", "tool_describe"} & set(last.tool_names)


@requirement("codex:abort")
async def test_an_abort_interrupts_the_native_turn_and_the_thread_goes_on(tmp_path: Path) -> None:
    script = [[Say("I begin "), Stall()], Say("Again.")]
    async with open_setup(tmp_path, script) as setup:
        run = await setup.start("think")
        async for event in run.events.follow():
            if event.kind == "text.delta":
                break
        assert await setup.system.agents.abort(run.id, "enough")
        assert run.result is not None
        assert (run.state, run.result.error) == ("aborted", "enough")
        assert run.result.text == "I begin "
        # Version 0.125 interrupts the turn and leaves the connection to the model open.
        if CODEX_VERSION >= (0, 163):
            with anyio.fail_after(30):
                assert await setup.provider.requests[-1].wait_until_over() == "abandoned"

        again = await setup.turn("go on")
        assert again.result is not None
        assert again.result.text == "Again."
        record = await setup.system.store.thread(run.session_id)
        assert record is not None
    assert {"think", "go on"} <= set(said(setup.provider.requests[-1]))


@requirement("codex:crash-in-a-turn")
async def test_a_process_that_is_killed_ends_the_turn_and_the_next_one_resumes_the_thread(
    tmp_path: Path,
) -> None:
    script = [Say("One."), [Say("Two "), Stall()], Say("Three.")]
    async with open_setup(tmp_path, script) as setup:
        first = await setup.turn("first")
        before = await setup.system.store.thread(first.session_id)
        run = await setup.start("second")
        async for event in run.events.follow():
            if event.kind == "text.delta":
                break
        for process in await anyio.to_thread.run_sync(app_servers):
            process.send_signal(signal.SIGKILL)
        with anyio.fail_after(60):
            await run.wait()
        assert run.state == "failed"
        assert run.result is not None
        assert "the Codex app-server was killed by SIGKILL" in run.result.error

        third = await setup.turn("third")
        assert third.result is not None
        assert (third.result.error, third.result.text) == ("", "Three.")
        after = await setup.system.store.thread(first.session_id)
        assert before is not None
        assert after is not None
        assert before.thread_id == after.thread_id
    users = said(setup.provider.requests[-1])
    assert [text for text in users if text in ("first", "second", "third")] == [
        "first",
        "second",
        "third",
    ]


@requirement("codex:fails-closed")
@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        (
            {"config": {"appServer": {"command": "/no/such/codex"}}},
            "is '/no/such/codex', which is not a program",
        ),
        (
            {"config": {"appServer": fake_server("version=0.100.0")}},
            "is Codex 0.100.0; Nacre needs 0.125.0 or newer",
        ),
        (
            {"enabled": False},
            "the model mock/gpt-5.5 runs in Codex (`models.providers.mock.agentRuntime.id`), but "
            "`plugins.entries.codex.enabled` is false",
        ),
    ],
)
async def test_a_turn_for_codex_never_runs_elsewhere(
    tmp_path: Path, entry: Mapping[str, Any], problem: str
) -> None:
    plugins = {"plugins": {"entries": {"codex": entry}}}
    async with open_setup(tmp_path, [Say("from the built-in loop")], plugins) as setup:
        run = await setup.turn("hi")
        assert run.state == "failed"
        assert run.result is not None
        assert problem in run.result.error
    assert setup.provider.requests == []


async def test_codex_calls_a_tool_of_nacre(tmp_path: Path) -> None:
    script = [Call("list", {"path": "."}), Say("Done.")]
    codex = {"codexDynamicToolsLoading": "direct"}
    async with open_setup(tmp_path, script, codex=codex) as setup:
        run = await setup.turn("list the files")
        assert run.result is not None
        assert (run.result.error, run.result.text) == ("", "Done.")
        assert "call.ended" in kinds(run)
