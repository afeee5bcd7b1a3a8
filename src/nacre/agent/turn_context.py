"""Contexts shared by the turns of a service or held by one turn, and the budget of a run."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

import anyio

from nacre.errors import NacreError
from nacre.messages import Usage

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence
    from contextlib import AbstractContextManager

    from nacre.agent.model_step import ProviderSource
    from nacre.agent.surfaces import SurfaceFactory
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


class BudgetExceededError(NacreError):
    """A run has reached one of its limits; the message names the setting."""


class RunBudget:
    """Counts what a run uses. Its time stands still while it waits for people and clients."""

    def __init__(self, agent: AgentConfig) -> None:
        self._agent = agent
        self._seconds_left = agent.timeout_seconds
        self._resumed_at: float | None = None
        self._change = anyio.Event()
        self.steps = 0
        self.usage = Usage()

    def take_step(self) -> None:
        """Before every model call; raises BudgetExceededError."""
        agent = self._agent
        if self.steps >= agent.max_steps:
            raise BudgetExceededError(
                f"the run has made {self.steps} model calls without an end; "
                f"`maxSteps` of the agent {agent.id} is {agent.max_steps}"
            )
        if self.usage.total_tokens >= agent.max_tokens:
            raise BudgetExceededError(
                f"the run has used {self.usage.total_tokens} tokens; "
                f"`maxTokens` of the agent {agent.id} is {agent.max_tokens}"
            )
        self.steps += 1

    def add(self, usage: Usage) -> None:
        self.usage = self.usage + usage

    def set_running(self, is_running: bool) -> None:
        """Let the time run, or stand still."""
        now = anyio.current_time()
        if self._resumed_at is not None:
            self._seconds_left -= now - self._resumed_at
        self._resumed_at = now if is_running else None
        change, self._change = self._change, anyio.Event()
        change.set()

    async def time_is_up(self) -> str:
        """Return when the time is used up, with what to say then."""
        while True:
            left = float("inf")
            if self._resumed_at is not None:
                left = self._seconds_left - (anyio.current_time() - self._resumed_at)
            if left <= 0:
                agent = self._agent
                return (
                    f"the run took longer than {agent.timeout_seconds:g} seconds; "
                    f"`timeoutSeconds` of the agent {agent.id} says so"
                )
            with anyio.move_on_after(left):
                await self._change.wait()
