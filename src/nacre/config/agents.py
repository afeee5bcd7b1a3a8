"""The `agents` contract: each agent's model, budgets and tools, over what all of them share."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from nacre.config.core_tools import CoreToolsConfig
from nacre.config.tools import ToolsConfig
from nacre.errors import SessionError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


@dataclass(frozen=True, kw_only=True, slots=True)
class CompactionConfig:
    """When a long session is summed up, and how many of its last turns stay as they are."""

    is_enabled: bool = True
    threshold_share: float = 0.8
    """Of what the model can read."""
    keep_turns: int = 4


@dataclass(frozen=True, kw_only=True, slots=True)
class AgentSettings:
    """What is asked of the model; None leaves it to the provider."""

    temperature: float | None = None
    max_output_tokens: int | None = None
    is_parallel: bool = True
    """Whether the model may make several calls at once, and they are run at once."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AgentConfig:
    """One agent, complete: its own settings over the defaults."""

    id: str
    name: str
    model: str
    """`<provider>/<model>`."""
    fallback_models: tuple[str, ...] = ()
    workspace: Path
    """May not be there yet."""
    instructions: str = ""
    max_steps: int = 40
    max_tokens: int = 1_000_000
    """Of one run, read and written."""
    timeout_seconds: float = 3600.0
    settings: AgentSettings = field(default_factory=AgentSettings)
    compaction: CompactionConfig = field(default_factory=CompactionConfig)
    core_tools: CoreToolsConfig = field(default_factory=CoreToolsConfig)
    tools: ToolsConfig = field(default_factory=ToolsConfig)
    """Code mode, Tool Search and policy."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AgentsConfig:
    """All agents; there is at least one."""

    default_id: str
    by_id: Mapping[str, AgentConfig]

    @property
    def ids(self) -> tuple[str, ...]:
        return tuple(self.by_id)

    def agent(self, agent_id: str) -> AgentConfig:
        """Case does not matter; raises SessionError for an id that no agent has."""
        wanted = agent_id.casefold()
        for found in self.by_id.values():
            if found.id.casefold() == wanted:
                return found
        known = ", ".join(self.ids)
        raise SessionError(f"there is no agent {agent_id!r}; there are: {known}", code="not_found")
