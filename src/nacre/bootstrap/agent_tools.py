"""The tools of an agent: the core tools of its workspace, and those of the plugins."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nacre.tools.core.core_tools import CoreTools

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AsyncExitStack
    from pathlib import Path

    from nacre.config.agents import AgentConfig
    from nacre.config.core_tools import CoreToolsConfig
    from nacre.plugins import PluginHost
    from nacre.run_context import RunContext
    from nacre.tools import Tool
    from nacre.tools.core.message import MessageSink


class AgentTools:
    """Core tools are made when an agent first runs, and again when its settings change."""

    def __init__(
        self, plugins: PluginHost, stack: AsyncExitStack, *, messages: MessageSink
    ) -> None:
        self._plugins = plugins
        self._messages = messages
        self._stack = stack
        self._core: dict[tuple[str, Path, CoreToolsConfig], CoreTools] = {}

    def tools(self, agent: AgentConfig, context: RunContext, /) -> Sequence[Tool]:
        """Before policy, in the order of the catalog."""
        key = (agent.id, agent.workspace, agent.core_tools)
        core = self._core.get(key)
        if core is None:
            core = self._core[key] = CoreTools(
                agent.core_tools, workspace=agent.workspace, messages=self._messages
            )
            self._stack.push_async_exit(core)
        return (*core.tools, *self._plugins.tools)
