"""A complete system: turns with core, plugin and MCP tools, and reloading the configuration."""

import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio import to_thread

from nacre.agent import OWNER_RIGHTS, RunResult, TurnRequest
from nacre.bootstrap import System, open_system
from nacre.config.models import ProviderConfig
from nacre.config.system import SystemConfig, system_config_from
from nacre.errors import StorageError
from nacre.plugins import RESERVED_COMMANDS
from nacre.providers import chat_completions
from nacre.run_context import RunContext
from nacre.sandbox import Completed
from nacre.sandbox.pool import WorkerPool
from nacre.storage import SessionRecord
from nacre.testing import Call, Say, ScriptedProvider
from nacre.tools.core.shell_process import ShellProblem
from tests.plugins.plugin_folders import LOADING, SLOW_GREETING, plugin_folder
from tests.tools.core.tool_calls import Calls

SMALL_SERVER = Path(__file__).parents[1] / "cli" / "mcp" / "small_mcp_server.py"


def configuration(folder: Path, document: Mapping[str, Any]) -> SystemConfig:
    defaults = {"storage": {"url": f"sqlite:///{folder / 'nacre.db'}"}}
    agents = {"defaults": {"workspace": str(folder / "workspace")}}
    whole = {**defaults, "agents": agents, **document}
    return system_config_from(whole, environment={"HOME": str(folder)}, folder=folder)


@asynccontextmanager
async def opened(folder: Path, **document: Any) -> AsyncGenerator[System]:
    config = await to_thread.run_sync(configuration, folder, document)
    async with open_system(config, workers=1) as system:
        yield system


async def said(system: System, text: str, **more: Any) -> RunResult:
    with anyio.fail_after(30):
        run = await system.agents.start(TurnRequest(message=text, **more))
        return await run.wait()


def models(provider: ScriptedProvider) -> dict[str, Any]:
    return {
        "models": {
            "providers": {
                "scripted": {
                    "api": "openai-completions",
                    "baseUrl": provider.openai_url,
                    "apiKey": "none",
                }
            }
        }
    }


def agents(folder: Path) -> dict[str, Any]:
    return {"defaults": {"model": "scripted/one", "workspace": str(folder / "workspace")}}


async def test_without_any_configuration_the_demonstration_answers(tmp_path: Path) -> None:
    async with opened(tmp_path) as system:
        result = await said(system, "hello")
    assert result.error == ""
    assert "demonstration" in result.text


@pytest.mark.parametrize(
    ("tools", "starts"),
    [
        ({}, 0),
        ({"toolSearch": {"enabled": True, "mode": "tools"}}, 0),
        ({"toolSearch": {"enabled": True, "mode": "code"}}, 1),
        ({"codeMode": {"enabled": True}}, 1),
    ],
)
async def test_workers_start_with_the_system_only_if_models_can_write_programs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tools: Mapping[str, Any], starts: int
) -> None:
    warmed: list[WorkerPool] = []
    warm = WorkerPool.warm

    def count_and_warm(pool: WorkerPool) -> None:
        warmed.append(pool)
        warm(pool)

    monkeypatch.setattr(WorkerPool, "warm", count_and_warm)
    async with opened(tmp_path, tools=tools) as system:
        assert len(warmed) == starts
        # Without them, the first program starts them.
        result = await system.runtime.sandbox.cell("return 1").run()
    assert isinstance(result, Completed)
    assert warmed


async def test_a_program_reaches_core_plugin_and_mcp_tools(tmp_path: Path) -> None:
    program = """
        await tools.write({ path: "notes.txt", content: "kept" });
        const { text } = await tools.call("openclaw:core:read", { path: "notes.txt" });
        const hello = await tools.greet({ name: "Ada" });
        const listed = await API.list("mcp");
        return { text, hello, listed };
    """
    script = [Call("exec", {"code": program}), Say("done")]
    async with ScriptedProvider(script) as provider:
        async with opened(
            tmp_path,
            **models(provider),
            agents=agents(tmp_path),
            tools={"codeMode": True, "fs": {"ask": "never"}},
            plugins={"paths": [str(plugin_folder(tmp_path))], "entryPoints": False},
            mcp={
                "servers": {"small": {"command": sys.executable, "args": [str(SMALL_SERVER), "a"]}}
            },
        ) as system:
            result = await said(system, "go")
        assert (result.text, result.error) == ("done", "")
        assert provider.requests[0].tool_names == ("exec", "wait")
        result_seen: dict[str, Any] = provider.requests[1].last_object
    assert result_seen["status"] == "completed", result_seen
    value = result_seen["value"]
    assert value["text"] == "kept"
    assert value["hello"] == "hello Ada"
    assert "mcp/small.d.ts" in [file["path"] for file in value["listed"]]
    assert (tmp_path / "workspace" / "notes.txt").read_text(encoding="utf-8") == "kept"


async def test_an_empty_document_has_code_mode_off(tmp_path: Path) -> None:
    async with ScriptedProvider([Say("hi")]) as provider:
        async with opened(tmp_path, **models(provider), agents=agents(tmp_path)) as system:
            await said(system, "hello")
        assert "read" in provider.requests[0].tool_names


async def test_a_changed_configuration_holds_for_the_next_turn(tmp_path: Path) -> None:
    folder = plugin_folder(tmp_path)
    async with ScriptedProvider([Say("one"), Say("two"), Say("three")]) as provider:
        first: dict[str, Any] = {**models(provider), "agents": agents(tmp_path)}
        async with opened(tmp_path, **first) as system:
            await said(system, "hello")
            second = {**first, "plugins": {"paths": [str(folder)], "entryPoints": False}}
            await system.apply(await to_thread.run_sync(configuration, tmp_path, second))
            await said(system, "hello")
            third = {**second, "tools": {"codeMode": True}}
            await system.apply(await to_thread.run_sync(configuration, tmp_path, third))
            await said(system, "hello")
        names = [request.tool_names for request in provider.requests]
    assert "greet" not in names[0]
    assert "greet" in names[1]
    assert names[2] == ("exec", "wait")


@asynccontextmanager
async def reloading(folder: Path, system: System, document: Any) -> AsyncGenerator[None]:
    """The configuration changes, and its second plugin loads until the end of the block."""
    changed = await to_thread.run_sync(configuration, folder, document)
    LOADING.started.clear()
    LOADING.may_end.clear()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(system.apply, changed)
        try:
            assert await to_thread.run_sync(LOADING.started.wait, 30)
            yield
        finally:
            LOADING.may_end.set()


def two_plugins(folder: Path) -> dict[str, Any]:
    paths = [plugin_folder(folder, "quick"), plugin_folder(folder, "slow", SLOW_GREETING)]
    return {"plugins": {"paths": list(map(str, paths)), "entryPoints": False}}


async def test_a_turn_that_comes_while_plugins_load_has_the_new_plugins_with_the_new_rules(
    tmp_path: Path,
) -> None:
    plugins = await to_thread.run_sync(two_plugins, tmp_path)
    async with ScriptedProvider([Say("one")]) as provider:
        first: dict[str, Any] = {**models(provider), "agents": agents(tmp_path)}
        second = {**first, **plugins, "tools": {"deny": ["quick"]}}
        async with opened(tmp_path, **first) as system:
            async with reloading(tmp_path, system, second):
                run = await system.agents.start(TurnRequest(message="hello"))
                # The turn gets as far as it can.
                await anyio.wait_all_tasks_blocked()
            with anyio.fail_after(30):
                await run.wait()
        (request,) = provider.requests
        assert [name for name in request.tool_names if "greet" in name] == ["greet_slowly"]


async def test_a_turn_that_waits_for_plugins_can_be_aborted(tmp_path: Path) -> None:
    plugins = await to_thread.run_sync(two_plugins, tmp_path)
    async with opened(tmp_path) as system:
        async with reloading(tmp_path, system, plugins):
            run = await system.agents.start(TurnRequest(message="hello"))
            with anyio.fail_after(30):
                assert await run.abort("enough")
        assert run.state == "aborted"
        kept = await system.store.turn(run.id)
        assert kept is not None and kept.error == "enough"


async def test_a_turn_that_is_asked_for_during_a_change_of_models_goes_to_the_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with ScriptedProvider([Say("one")]) as provider:
        scripted = models(provider)["models"]["providers"]["scripted"]
        first: dict[str, Any] = {**models(provider), "agents": agents(tmp_path)}
        second: dict[str, Any] = {
            "models": {"providers": {"other": scripted}},
            "agents": {"defaults": {**agents(tmp_path)["defaults"], "model": "other/two"}},
        }
        async with opened(tmp_path, **first) as system:
            changed = await to_thread.run_sync(configuration, tmp_path, second)
            add_session = system.store.add_session

            async def add_and_change(**given: Any) -> SessionRecord:
                added = await add_session(**given)
                await system.apply(changed)
                return added

            monkeypatch.setattr(system.store, "add_session", add_and_change)
            result = await said(system, "hello")
    assert (result.text, result.model) == ("one", "other/two")


async def test_the_models_of_all_agents_are_loaded_before_the_first_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened_providers: list[str] = []
    backend = chat_completions.ChatCompletionsBackend

    def open_backend(config: ProviderConfig) -> object:
        opened_providers.append(config.name)
        return backend(config)

    monkeypatch.setattr(chat_completions, "ChatCompletionsBackend", open_backend)
    local = {"api": "openai-completions", "baseUrl": "http://127.0.0.1:1/v1"}
    agents = [{"id": name, "model": f"{name}/m"} for name in ("b", "a")]
    document = {
        "models": {"providers": dict.fromkeys(("a", "b", "unused"), local)},
        "agents": {"defaults": {"workspace": str(tmp_path)}, "list": agents},
    }
    async with opened(tmp_path, **document) as system:
        await system.prepare_models()
    assert opened_providers == ["b", "a"]


async def test_a_broken_plugin_keeps_nothing_else_from_working(tmp_path: Path) -> None:
    broken = plugin_folder(tmp_path, "broken", "raise RuntimeError('no')")
    plugins = {"paths": [str(broken)], "entryPoints": False}
    async with opened(tmp_path, plugins=plugins) as system:
        assert [status.state for status in system.plugins.status()] == ["failed"]
        assert (await said(system, "hello")).error == ""


async def test_a_database_that_cannot_be_opened_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "nacre.db").write_text("not a database" * 100, encoding="utf-8")
    with pytest.raises(StorageError, match=r"nacre\.db"):
        async with opened(tmp_path):
            pass


async def test_sessions_go_on_after_a_restart(tmp_path: Path) -> None:
    async with ScriptedProvider([Say("I am Ada"), Say("as I said")]) as provider:
        document: dict[str, Any] = {**models(provider), "agents": agents(tmp_path)}
        async with opened(tmp_path, **document) as system:
            await said(system, "who are you?", session_key="s")
        async with opened(tmp_path, **document) as system:
            await said(system, "again?", session_key="s")
        assert [message.role for message in provider.requests[1].messages][-3:] == [
            "user",
            "assistant",
            "user",
        ]


async def test_the_message_tool_speaks_to_whoever_follows_the_run(tmp_path: Path) -> None:
    script = [Call("message", {"text": "half way"}), Say("done")]
    async with ScriptedProvider(script) as provider:
        document: dict[str, Any] = {**models(provider), "agents": agents(tmp_path)}
        async with opened(tmp_path, **document) as system:
            run = await system.agents.start(TurnRequest(message="go"))
            with anyio.fail_after(30):
                await run.wait()
    told = [event.data for event in run.events.events if event.kind == "message.sent"]
    assert told == [{"text": "half way"}]


async def test_mcp_servers_that_another_task_brings_are_closed_in_the_end(tmp_path: Path) -> None:
    program = 'return (await API.list("mcp")).map((file) => file.path)'
    script = [Call("exec", {"code": program}), Say("done")]
    server = {"command": sys.executable, "args": [str(SMALL_SERVER), "a"]}
    async with ScriptedProvider(script) as provider:
        first = {**models(provider), "agents": agents(tmp_path), "tools": {"codeMode": True}}
        second = {**first, "mcp": {"servers": {"small": server}}}
        async with opened(tmp_path, **first) as system:
            changed = await to_thread.run_sync(configuration, tmp_path, second)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(system.apply, changed)
            await said(system, "go")
        assert "mcp/small.d.ts" in provider.requests[1].last_object["value"]  # pyright: ignore[reportOperatorIssue]


EXEC: dict[str, Any] = {"exec": {"enabled": True, "ask": "never"}}


def document(folder: Path, *agents: str, **tools: Any) -> dict[str, Any]:
    """Agents that may run commands, unless `tools` has other settings for one."""
    listed = [{"id": name, "tools": {**EXEC, **tools.get(name, {})}} for name in agents]
    return {"agents": {"defaults": {"workspace": str(folder / "workspace")}, "list": listed}}


@asynccontextmanager
async def system_of(folder: Path, *agents: str) -> AsyncGenerator[System]:
    await to_thread.run_sync((folder / "workspace").mkdir)
    async with opened(folder, **document(folder, *agents)) as system:
        yield system


async def reload(system: System, folder: Path, written: dict[str, Any]) -> None:
    await system.apply(await to_thread.run_sync(configuration, folder, written))


def tools_of(system: System, agent_id: str) -> Calls:
    agent = system.config.agents.agent(agent_id)
    return Calls(system.tools.tools(agent, RunContext(agent_id=agent_id)))


async def started(system: System, agent_id: str) -> Calls:
    """The agent's tools, with a command in the background."""
    tools = tools_of(system, agent_id)
    await tools.call("exec", command="exec sleep 1000", background=True)
    return tools


async def states(tools: Calls) -> list[str]:
    return [each["status"] for each in (await tools.call("process", action="list"))["processes"]]


@pytest.mark.parametrize(
    "changed",
    [{"exec": {"enabled": False}}, {"deny": ["exec"]}, {"allow": ["read"]}],
    ids=["switched off", "denied", "not allowed"],
)
async def test_commands_of_an_agent_that_may_not_run_any_more_are_ended(
    tmp_path: Path, changed: dict[str, Any]
) -> None:
    async with system_of(tmp_path, "main", "other") as system:
        tools, others = await started(system, "main"), await started(system, "other")
        await reload(system, tmp_path, document(tmp_path, "main", "other", main=changed))
        assert await states(tools) == ["ended"]
        assert await states(others) == await states(tools_of(system, "other")) == ["running"]


async def test_commands_of_an_agent_that_is_gone_are_ended(tmp_path: Path) -> None:
    async with system_of(tmp_path, "main", "other") as system:
        tools = await started(system, "other")
        await reload(system, tmp_path, document(tmp_path, "main"))
        assert await states(tools) == ["ended"]


async def test_commands_outlive_a_change_of_other_settings_and_can_be_reached(
    tmp_path: Path,
) -> None:
    changed = {"fs": {"ask": "never"}, "exec": {"enabled": True, "timeoutSeconds": 5}}
    async with system_of(tmp_path, "main") as system:
        old = await started(system, "main")
        await reload(system, tmp_path, document(tmp_path, "main", main=changed))
        new = tools_of(system, "main")
        assert new.tools["exec"] is not old.tools["exec"]
        assert await states(new) == ["running"]
        await new.call("process", action="kill", processId="p1")
        assert await states(old) == ["ended"]


async def test_a_run_that_began_before_starts_nothing_in_the_background_any_more(
    tmp_path: Path,
) -> None:
    async with system_of(tmp_path, "main") as system:
        old = tools_of(system, "main")
        off = document(tmp_path, "main", main={"exec": {"enabled": False}})
        await reload(system, tmp_path, off)
        with pytest.raises(ShellProblem, match="may no longer use `exec`"):
            await old.call("exec", command="sleep 1000", background=True)
        assert (await old.call("exec", command="echo done"))["output"] == "done\n"


async def test_an_agent_that_may_again_begins_anew(tmp_path: Path) -> None:
    async with system_of(tmp_path, "main") as system:
        await started(system, "main")
        off = document(tmp_path, "main", main={"exec": {"enabled": False}})
        await reload(system, tmp_path, off)
        await reload(system, tmp_path, document(tmp_path, "main"))
        assert await states(await started(system, "main")) == ["running"]


async def test_commands_end_with_the_system(tmp_path: Path) -> None:
    async with system_of(tmp_path, "main") as system:
        tools = await started(system, "main")
    assert await states(tools) == ["ended"]


COMMANDS = """
from nacre.plugins.api import PluginApi, RunContext

async def weather(arguments: str, context: RunContext) -> str:
    return f"sunny in {arguments or 'Oslo'} for {context.agent_id}"

def crash(arguments: str, context: RunContext) -> str:
    raise ValueError("no paper left")

def register(api: PluginApi) -> None:
    api.add_command("weather", weather, description="Show the weather", arguments="[city]")
    api.add_command("paper", crash, description="Print", owner_only=True)
"""
REPLACING = """
def register(api):
    api.add_command("status", lambda arguments, context: "mine", description="Replace it")
"""


async def test_plugins_add_chat_commands_and_take_them_along(tmp_path: Path) -> None:
    folders = [plugin_folder(tmp_path, "one", COMMANDS), plugin_folder(tmp_path, "two", REPLACING)]
    plugins = {"paths": list(map(str, folders)), "entryPoints": False}
    async with opened(tmp_path, plugins=plugins) as system:
        assert (await said(system, "/weather Rome")).text == "sunny in Rome for main"
        assert "/weather [city]" in (await said(system, "/help")).text
        assert "Did you mean /weather?" in (await said(system, "/wether")).text
        assert "You may not use /paper" in (await said(system, "/paper")).text
        crashed = await said(system, "/paper", rights=OWNER_RIGHTS)
        assert crashed.error == "/paper failed: no paper left"
        # A plugin cannot replace a command of Nacre.
        (refused,) = [it.problem for it in system.plugins.status() if it.id == "two"]
        assert "/status is a chat command of Nacre" in refused
        own = {name for it in system.agents.commands.all for name in (it.name, *it.aliases)}
        # `nacre chat` adds the last two.
        assert own - {"weather", "paper"} == RESERVED_COMMANDS - {"quit", "exit"}

        await system.apply(await to_thread.run_sync(configuration, tmp_path, dict[str, Any]()))
        assert "demonstration" in (await said(system, "/weather")).text
