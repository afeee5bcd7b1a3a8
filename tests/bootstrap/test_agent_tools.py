"""Commands in the background when the configuration changes: whose go on, and whose end."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from anyio import to_thread

from nacre.bootstrap import System
from nacre.run_context import RunContext
from nacre.tools.core.shell_process import ShellProblem
from tests.bootstrap.test_system import configuration, opened
from tests.tools.core.tool_calls import Calls

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
        with pytest.raises(ShellProblem, match="may not use `exec` any more"):
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
