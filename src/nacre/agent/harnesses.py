"""Chooses the harness of each turn by its model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nacre.config import choose_runtime
from nacre.errors import CodexError

if TYPE_CHECKING:
    from nacre.agent.manual_call import ManualCalls
    from nacre.agent.turn_context import Harness, TurnContext
    from nacre.config import AgentConfig, SystemConfig


class Harnesses:
    """A harness that passes each turn on to the one of its model.

    A turn that has failed in one harness is never repeated in another: it may have had effects.
    """

    def __init__(self, *, built_in: Harness, codex: Harness, manual: ManualCalls) -> None:
        self._built_in = built_in
        self._codex = codex
        self._manual = manual

    def label(self, model: str, agent: AgentConfig, config: SystemConfig, /) -> str:
        return self._find(model, agent, config).label(model, agent, config)

    def plan_surface(self, turn: TurnContext, /) -> str:
        if turn.request.manual_call is not None:
            return self._manual.plan_surface(turn.request.manual_call)
        return self._find_for(turn).plan_surface(turn)

    def needs_history(self, turn: TurnContext, /) -> bool:
        return self._find_for(turn).needs_history(turn)

    async def run(self, turn: TurnContext, /) -> None:
        """Raises CodexError if the turn is for Codex, and Codex is turned off."""
        if turn.request.manual_call is not None:
            await self._manual.run(turn, turn.request.manual_call)
            return
        _check_allowed(turn)
        await self._find_for(turn).run(turn)

    async def compact(self, turn: TurnContext, /) -> str:
        _check_allowed(turn)
        return await self._find_for(turn).compact(turn)

    async def reset(self, session_id: str, /) -> None:
        # The session may have had turns in both.
        await self._codex.reset(session_id)
        await self._built_in.reset(session_id)

    def _find_for(self, turn: TurnContext) -> Harness:
        return self._find(turn.models[0], turn.agent, turn.service.config)

    def _find(self, model: str, agent: AgentConfig, config: SystemConfig) -> Harness:
        choice = choose_runtime(model, agent, config.models, config.codex)
        return self._codex if choice.id == "codex" else self._built_in


def _check_allowed(turn: TurnContext) -> None:
    config = turn.service.config
    choice = choose_runtime(turn.models[0], turn.agent, config.models, config.codex)
    if choice.id == "codex" and config.codex.refusal:
        raise CodexError(
            f"the model {turn.models[0]} runs in Codex (`{choice.place}`), but "
            f"{config.codex.refusal}"
        )
