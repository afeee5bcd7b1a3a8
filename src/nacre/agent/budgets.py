"""How far one run may go: model calls, tokens, and time that is the run's own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio

from nacre.errors import NacreError
from nacre.messages import Usage

if TYPE_CHECKING:
    from nacre.config.agents import AgentConfig


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
