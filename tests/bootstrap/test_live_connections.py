"""MCP servers and models that are exchanged: the old ones end with the last run that uses them."""

import os
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio import to_thread

from nacre.agent import AgentRun, TurnRequest
from nacre.bootstrap import System
from nacre.bootstrap.system import LiveMcp, LiveProviders
from nacre.config.mcp_entry import McpServerConfig
from nacre.config.models import ModelsConfig
from nacre.mcp_client import McpServer
from nacre.providers.registry import Providers
from nacre.testing import Call, Say, ScriptedProvider, Stall
from tests.bootstrap.test_system import agents, configuration, models, opened, said
from tests.mcp_client.peers import PATIENCE_SECONDS, call, ended, is_alive, text_of

HELD_SERVER = Path(__file__).with_name("held_mcp_server.py")


class HeldServer:
    """A server of `held_mcp_server.py`, from the other end of its pipes."""

    def __init__(self, folder: Path, tool: str) -> None:
        self._folder = folder / tool
        self._folder.mkdir()
        for name in ("called", "result"):
            os.mkfifo(self._folder / name)
        self.entry = {
            "command": sys.executable,
            "args": [str(HELD_SERVER), tool, str(self._folder)],
        }

    @property
    def config(self) -> McpServerConfig:
        command, args = sys.executable, tuple(self.entry["args"])
        return McpServerConfig(name="held", transport="stdio", command=command, args=args)

    async def called(self) -> None:
        """Return when a call is at it."""
        with anyio.fail_after(PATIENCE_SECONDS):
            await anyio.Path(self._folder / "called").read_text()

    async def answer(self, text: str) -> None:
        with anyio.fail_after(PATIENCE_SECONDS):
            await anyio.Path(self._folder / "result").write_text(text)


def program(tool: str) -> Call:
    return Call("exec", {"code": f"return (await MCP.held.{tool}({{}})).content[0].text"})


@asynccontextmanager
async def system_with(
    folder: Path, provider: ScriptedProvider, server: HeldServer
) -> AsyncGenerator[System]:
    async with opened(folder, **document(folder, provider, server)) as system:
        yield system


def document(folder: Path, provider: ScriptedProvider, server: HeldServer | None) -> dict[str, Any]:
    servers = {"held": server.entry} if server is not None else {}
    return {
        **models(provider),
        "agents": agents(folder),
        "tools": {"codeMode": True},
        "mcp": {"servers": servers},
    }


async def reload(
    system: System, folder: Path, provider: ScriptedProvider, server: HeldServer | None
) -> None:
    written = document(folder, provider, server)
    await system.apply(await to_thread.run_sync(configuration, folder, written))


async def started(system: System, text: str = "go") -> AgentRun:
    return await system.agents.start(TurnRequest(message=text, session_key="s"))


def pid_in(system: System) -> int:
    (status,) = system.mcp.status()
    assert status.pid is not None
    return status.pid


async def test_servers_that_no_run_uses_end_at_once(tmp_path: Path) -> None:
    server = HeldServer(tmp_path, "old")
    script = [Call("exec", {"code": "return (await MCP.held.$api()).tools"}), Say("done")]
    async with (
        ScriptedProvider(script) as provider,
        system_with(tmp_path, provider, server) as system,
    ):
        await said(system, "go")
        pid = pid_in(system)
        await reload(system, tmp_path, provider, None)
        await ended(pid)
        assert system.mcp.status() == []


async def test_a_call_that_is_under_way_is_answered_before_its_server_ends(tmp_path: Path) -> None:
    server = HeldServer(tmp_path, "old")
    async with ScriptedProvider([program("old"), Say("done")]) as provider:
        async with system_with(tmp_path, provider, server) as system:
            run = await started(system)
            await server.called()
            pid = pid_in(system)
            await reload(system, tmp_path, provider, None)
            await server.answer("as promised")
            with anyio.fail_after(PATIENCE_SECONDS):
                result = await run.wait()
            await ended(pid)
        assert (run.state, result.text) == ("completed", "done")
        assert provider.requests[1].last_object["value"] == "as promised"


async def test_a_run_that_is_aborted_lets_go_of_its_servers(tmp_path: Path) -> None:
    server = HeldServer(tmp_path, "old")
    async with (
        ScriptedProvider([program("old")]) as provider,
        system_with(tmp_path, provider, server) as system,
    ):
        run = await started(system)
        await server.called()
        pid = pid_in(system)
        await reload(system, tmp_path, provider, None)
        with anyio.fail_after(PATIENCE_SECONDS):
            assert await run.abort()
        await ended(pid)


async def test_the_next_turn_of_a_session_uses_the_new_servers(tmp_path: Path) -> None:
    old, new = HeldServer(tmp_path, "old"), HeldServer(tmp_path, "new")
    script = [program("old"), Say("one"), program("new"), Say("two")]
    async with ScriptedProvider(script) as provider:
        async with system_with(tmp_path, provider, old) as system:
            for number, server in enumerate((old, new)):
                run = await started(system)
                await server.called()
                if number == 0:
                    await reload(system, tmp_path, provider, new)
                await server.answer(f"answer {number}")
                with anyio.fail_after(PATIENCE_SECONDS):
                    await run.wait()
        values = [provider.requests[index].last_object["value"] for index in (1, 3)]
    assert values == ["answer 0", "answer 1"]


async def test_servers_stay_open_until_the_last_of_several_runs_has_ended(tmp_path: Path) -> None:
    server = await to_thread.run_sync(HeldServer, tmp_path, "old")
    async with LiveMcp() as mcp:
        await mcp.configure([server.config])
        results: list[str] = []

        async def use(held: McpServer) -> None:
            results.append(text_of(await call(held, "old")))

        with mcp.in_use("b") as (of_second,):
            with mcp.in_use("a") as (of_first,):
                await of_first.tools()
                await of_second.tools()
                pids = [status.pid for status in mcp.status()]
                assert None not in pids and len(set(pids)) == 2
                await mcp.configure([])
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(use, of_second)
                await server.called()
                await server.answer("still here")
        assert results == ["still here"]
        await ended(*pids)
        assert [of_first.status().state, of_second.status().state] == ["closed", "closed"]


class Closings:
    """Which providers were closed, in their order."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.closed: list[Providers] = []
        self._one_more = anyio.Event()
        close = Providers.aclose

        async def noting(providers: Providers) -> None:
            await close(providers)
            self.closed.append(providers)
            self._one_more.set()
            self._one_more = anyio.Event()

        monkeypatch.setattr(Providers, "aclose", noting)

    async def first(self) -> None:
        with anyio.fail_after(5):
            while not self.closed:
                await self._one_more.wait()


async def test_models_that_no_run_uses_are_closed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    closings = Closings(monkeypatch)
    async with LiveProviders(ModelsConfig(providers={})) as live:
        with live.in_use() as old:
            pass
        live.configure(ModelsConfig(providers={}))
        await closings.first()
        assert closings.closed == [old]
        with live.in_use() as new:
            pass
    assert closings.closed == [old, new]


async def test_models_stay_open_until_the_last_of_several_runs_has_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    closings = Closings(monkeypatch)
    async with LiveProviders(ModelsConfig(providers={})) as live:
        with live.in_use() as old:
            with live.in_use():
                live.configure(ModelsConfig(providers={}))
                await anyio.wait_all_tasks_blocked()
            await anyio.wait_all_tasks_blocked()
            assert closings.closed == []
        await closings.first()
        assert closings.closed == [old]


async def test_models_that_cannot_be_closed_keep_nothing_else_from_ending(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def breaks(_providers: Providers) -> None:
        raise RuntimeError("no")

    monkeypatch.setattr(Providers, "aclose", breaks)
    async with LiveProviders(ModelsConfig(providers={})) as live:
        live.configure(ModelsConfig(providers={}))
        await anyio.wait_all_tasks_blocked()
        assert live.list_models() == ["demo/demo"]
    assert "cannot be closed" in caplog.text


async def test_a_run_asks_the_models_that_it_began_with_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closings = Closings(monkeypatch)
    release = anyio.Event()
    script = [[Stall(release), Call("list", {})], Say("done")]
    async with ScriptedProvider(script) as provider:
        async with opened(tmp_path, **models(provider), agents=agents(tmp_path)) as system:
            run = await started(system)
            with anyio.fail_after(PATIENCE_SECONDS):
                async for event in run.events.follow():
                    if event.kind == "model.started":
                        break
            # Neither the model nor its provider is there any more.
            nothing: dict[str, Any] = {}
            await system.apply(await to_thread.run_sync(configuration, tmp_path, nothing))
            assert closings.closed == []
            release.set()
            with anyio.fail_after(PATIENCE_SECONDS):
                result = await run.wait()
            await closings.first()
            assert len(closings.closed) == 1
        assert (run.state, result.text, result.error) == ("completed", "done", "")
        assert len(provider.requests) == 2


def unkept(text: str) -> TurnRequest:
    """As a client of `/v1/chat/completions` without a session key asks."""
    return TurnRequest(message=text, history=[])


async def test_the_servers_of_a_session_that_is_not_kept_end_with_its_run(tmp_path: Path) -> None:
    server = HeldServer(tmp_path, "old")
    async with (
        ScriptedProvider([program("old"), Say("done")]) as provider,
        system_with(tmp_path, provider, server) as system,
    ):
        run = await system.agents.start(unkept("go"))
        await server.called()
        pid = pid_in(system)
        await server.answer("yes")
        with anyio.fail_after(PATIENCE_SECONDS):
            assert (await run.wait()).text == "done"
        await ended(pid)
        (status,) = system.mcp.status()
        assert (status.state, status.session_id) == ("idle", "")


async def test_the_servers_of_a_session_that_is_not_kept_end_also_where_its_run_is_aborted(
    tmp_path: Path,
) -> None:
    server = HeldServer(tmp_path, "old")
    async with (
        ScriptedProvider([program("old")]) as provider,
        system_with(tmp_path, provider, server) as system,
    ):
        run = await system.agents.start(unkept("go"))
        await server.called()
        pid = pid_in(system)
        with anyio.fail_after(PATIENCE_SECONDS):
            assert await run.abort()
        await ended(pid)


async def test_a_session_that_is_kept_goes_on_with_its_servers(tmp_path: Path) -> None:
    server = await to_thread.run_sync(HeldServer, tmp_path, "old")
    async with LiveMcp() as mcp:
        await mcp.configure([server.config])
        with mcp.in_use("kept") as (kept,), mcp.in_use("unkept", is_kept=False) as (other,):
            await kept.tools()
            await other.tools()
            ending = other.status().pid
        await ended(ending)
        (status,) = mcp.status()
        assert (status.session_id, status.state) == ("kept", "ready")


async def test_servers_that_are_still_ending_are_gone_when_all_is_closed(tmp_path: Path) -> None:
    server = await to_thread.run_sync(HeldServer, tmp_path, "old")
    async with LiveMcp() as mcp:
        await mcp.configure([server.config])
        with mcp.in_use("unkept", is_kept=False) as (held,):
            await held.tools()
            pid = held.status().pid
    assert pid is not None and not is_alive(pid)
