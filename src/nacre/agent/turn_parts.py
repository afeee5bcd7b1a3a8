"""What every turn of a service is made with, and what one of them holds while it lasts."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence
    from contextlib import AbstractContextManager

    from nacre.agent.model_step import ProviderSource
    from nacre.agent.surface_choice import SurfaceFactory
    from nacre.agent.transcript import FailedTurnWrites
    from nacre.config.agents import AgentConfig
    from nacre.config.system import SystemConfig
    from nacre.hooks import HookRunner
    from nacre.run_context import AbortSignal, RunContext
    from nacre.storage import Store
    from nacre.tools import Tool
    from nacre.tools.tool_servers import ToolServer


ProvidersInUse: TypeAlias = "Callable[[], AbstractContextManager[ProviderSource]]"


class ServersInUse(Protocol):
    """The MCP servers as a session sees them, by its id; they stay open until it is left, and end
    then if the session is not kept."""

    def __call__(
        self, session_id: str, /, *, is_kept: bool
    ) -> AbstractContextManager[Sequence[ToolServer]]: ...


class ToolSource(Protocol):
    """Where an agent's own tools come from: core tools and those of plugins."""

    def tools(self, agent: AgentConfig, context: RunContext, /) -> Sequence[Tool]:
        """What there is for this run, before policy."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class ServiceContext:
    """Shared by all turns to come; a change of the configuration brings others."""

    config: SystemConfig
    store: Store
    unkept: FailedTurnWrites
    providers: ProvidersInUse
    """The models; they stay open until it is left."""
    tools: ToolSource
    servers: ServersInUse
    surfaces: SurfaceFactory
    hooks: HookRunner
    farewell: AbortSignal
    """Aborted when nobody waits any longer for hooks that are told of the end of a turn."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TurnContext:
    """What one turn has of the configuration that it begins with, whatever changes meanwhile."""

    config: SystemConfig
    agent: AgentConfig
    providers: ProviderSource
    servers: Sequence[ToolServer]
    tools: Sequence[Tool]


@contextmanager
def open_turn_context(
    parts: ServiceContext, agent: AgentConfig, context: RunContext, *, is_kept: bool
) -> Generator[TurnContext]:
    """All of it at one moment, so that it fits together; open until this is left."""
    servers_in_use = parts.servers(context.session_id, is_kept=is_kept)
    with parts.providers() as providers, servers_in_use as servers:
        yield TurnContext(
            config=parts.config,
            agent=agent,
            providers=providers,
            servers=servers,
            tools=parts.tools.tools(agent, context),
        )
