"""The tools of an agent: the core tools of its workspace, and those of the plugins."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

import anyio

from nacre.run_context import RunContext
from nacre.tools.core.core_tools import CoreTools
from nacre.tools.policy import policy_from_config

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from nacre.config.agents import AgentConfig
    from nacre.config.core_tools import CoreToolsConfig
    from nacre.config.system import SystemConfig
    from nacre.plugins import PluginHost
    from nacre.tools import Tool
    from nacre.tools.core.message import MessageSink

_NOT_ALLOWED: Final = "by a change of the configuration this agent may not use `exec` any more"


@dataclass(frozen=True, kw_only=True, slots=True)
class _AgentCoreTools:
    """Core tools, and what they were made for."""

    workspace: Path
    config: CoreToolsConfig
    core: CoreTools


class AgentTools:
    """Core tools are made when an agent first runs, and again when its settings change.

    An async context manager. Commands in the background outlive a change, but not the permission
    to run commands.
    """

    def __init__(self, plugins: PluginHost, *, messages: MessageSink) -> None:
        self._plugins = plugins
        self._messages = messages
        self._core_tools: dict[str, _AgentCoreTools] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        async with anyio.create_task_group() as tasks:
            for made in self._core_tools.values():
                tasks.start_soon(made.core.__aexit__, None, None, None)

    def tools(self, agent: AgentConfig, context: RunContext, /) -> Sequence[Tool]:
        """Before policy, in the order of the catalog."""
        return (*self._core_tools_of(agent).tools, *self._plugins.tools)

    async def configure(self, config: SystemConfig) -> None:
        """End the commands of agents that are gone, or may not run any now. Runs that have begun
        keep their tools, but start nothing in the background."""
        # All of them before the first is waited for: turns that begin meanwhile get new tools.
        retired = [self._core_tools.pop(key) for key in self._without_commands(config)]
        async with anyio.create_task_group() as tasks:
            for made in retired:
                tasks.start_soon(made.core.end_background_commands, _NOT_ALLOWED)

    def _core_tools_of(self, agent: AgentConfig) -> CoreTools:
        key = agent.id.casefold()
        last = self._core_tools.get(key)
        if last and (last.workspace, last.config) == (agent.workspace, agent.core_tools):
            return last.core
        core = CoreTools(
            agent.core_tools,
            workspace=agent.workspace,
            messages=self._messages,
            in_place_of=last.core if last else None,
        )
        self._core_tools[key] = _AgentCoreTools(
            workspace=agent.workspace, config=agent.core_tools, core=core
        )
        return core

    def _without_commands(self, config: SystemConfig) -> list[str]:
        agents = {agent.id.casefold(): agent for agent in config.agents.by_id.values()}
        return [
            key
            for key, made in self._core_tools.items()
            if key not in agents or not _may_run_commands(agents[key], made.core, config)
        ]


def _may_run_commands(agent: AgentConfig, core: CoreTools, config: SystemConfig) -> bool:
    policy = policy_from_config(config.document, RunContext(agent_id=agent.id))
    is_permitted = all(policy.permits(tool) for tool in core.tools if tool.name == "exec")
    return agent.core_tools.exec.is_enabled and is_permitted
