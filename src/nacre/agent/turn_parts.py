"""What every turn of a service is made with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

    from nacre.agent.model_step import ProviderSource
    from nacre.agent.surface_choice import SurfaceChoice
    from nacre.agent.unkept_turns import UnkeptTurns
    from nacre.config.agents import AgentConfig
    from nacre.config.system import SystemConfig
    from nacre.hooks import HookRunner
    from nacre.run_context import AbortSignal, RunContext
    from nacre.storage import Store
    from nacre.tools import Tool
    from nacre.tools.tool_servers import ToolServer


ServersInUse: TypeAlias = "Callable[[str], AbstractContextManager[Sequence[ToolServer]]]"


class ToolSource(Protocol):
    """Where an agent's own tools come from: core tools and those of plugins."""

    def tools(self, agent: AgentConfig, context: RunContext, /) -> Sequence[Tool]:
        """What there is for this run, before policy."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class TurnParts:
    """Shared by all turns."""

    config: SystemConfig
    store: Store
    unkept: UnkeptTurns
    providers: ProviderSource
    tools: ToolSource
    servers: ServersInUse
    """The MCP servers as a session sees them, by its id; they stay open until it is left."""
    surfaces: SurfaceChoice
    hooks: HookRunner
    farewell: AbortSignal
    """Aborted when nobody waits any longer for hooks that are told of the end of a turn."""
