"""What an agent has besides the tools of MCP servers: its core tools, and plugins."""

from __future__ import annotations

import logging
import os
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from nacre.cli.output import say
from nacre.errors import MissingReferenceError
from nacre.hooks import Hooks

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Collection, Iterable, Mapping
    from pathlib import Path

    from nacre.config.agents import AgentConfig
    from nacre.config.plugins import PluginsConfig
    from nacre.errors import ConfigError
    from nacre.plugins import PluginHost
    from nacre.run_context import RunContext
    from nacre.tools import Tool
    from nacre.tools.core.core_tools import CoreTools

_UNHEARD: Final = logging.NullHandler()


@dataclass(frozen=True, kw_only=True, slots=True)
class AgentParts:
    """What is configured; a part with a fault in its settings is left out."""

    agent_id: str
    agent: AgentConfig | None
    plugins: PluginsConfig | None
    problems: dict[str, str]
    """By part, why it is left out."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AgentTools:
    """The tools, as long as they can be called."""

    tools: tuple[Tool, ...] = ()
    hooks: Hooks = field(default_factory=Hooks)
    problems: Mapping[str, str] = field(default_factory=dict[str, str])
    """By plugin or part, why its tools are missing."""


def read_agent_parts(
    document: Mapping[str, object], *, folder: Path, agent_id: str | None
) -> AgentParts:
    """Of the agent with this id, or of the one that the configuration has as its default."""
    # Not a part of every command, and not cheap to import.
    from nacre.config.system import read_system

    found = read_system(document, environment=os.environ, folder=folder)
    agents = found.config.agents
    wanted = agent_id or agents.default_id
    agent = next(
        (it for it in agents.by_id.values() if it.id.casefold() == wanted.casefold()), None
    )
    nobody = f"there is no agent {wanted!r}" if agent is None else ""
    problems = {
        "core": _first_in(found.problems, ("tools", "agents")) or nobody,
        "plugins": _first_in(found.problems, ("plugins",)),
    }
    return AgentParts(
        agent_id=wanted,
        # Not with a default in the place of the fault: it may be about what must not be done.
        agent=None if problems["core"] else agent,
        plugins=None if problems["plugins"] else found.config.plugins,
        problems={part: problem for part, problem in problems.items() if problem},
    )


@asynccontextmanager
async def open_agent_tools(
    parts: AgentParts, *, reserved_ids: Collection[str]
) -> AsyncGenerator[AgentTools]:
    """Load the plugins, and end at the end whatever the tools have started."""
    hooks = Hooks()
    tools: list[Tool] = []
    problems = dict(parts.problems)
    async with AsyncExitStack() as stack:
        if parts.agent is not None:
            core = await stack.enter_async_context(_core_tools(parts.agent))
            tools += core.tools
        if parts.plugins is not None:
            host = await stack.enter_async_context(_plugin_host(hooks, reserved_ids))
            await host.apply(parts.plugins)
            tools += host.tools
            problems |= {it.id: it.problem for it in host.status() if it.state == "failed"}
        yield AgentTools(tools=tuple(tools), hooks=hooks, problems=problems)


def _core_tools(agent: AgentConfig) -> CoreTools:
    from nacre.tools.core.core_tools import CoreTools

    return CoreTools(agent.core_tools, workspace=agent.workspace, messages=_Said())


def _plugin_host(hooks: Hooks, reserved_ids: Collection[str]) -> PluginHost:
    from nacre.code_mode.namespaces import NamespaceRegistry
    from nacre.plugins import PluginHost

    # What it logs of plugins that fail is told as what is missing.
    logging.getLogger("nacre.plugins.host").addHandler(_UNHEARD)
    return PluginHost(hooks=hooks, namespaces=NamespaceRegistry(), reserved_ids=reserved_ids)


def _first_in(problems: Iterable[ConfigError], sections: Collection[str]) -> str:
    """The first fault in these sections; a secret that is not here is none of a tool's settings."""
    for problem in problems:
        section = problem.path.partition(".")[0].partition("[")[0]
        if section in sections and not isinstance(problem, MissingReferenceError):
            return str(problem)
    return ""


class _Said:
    """Where the tool `message` sends what it is given."""

    async def send(self, text: str, context: RunContext, /) -> None:
        say(text)
