"""The instructions of an agent: the same for every request of a session, so that caches hold."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from nacre.config.agents import AgentConfig

_DEFAULT_INSTRUCTIONS: Final = (
    "You are {name}, an agent that works for a person. Do what is asked, with the tools that you "
    "have where they help; say plainly what you did and what you could not do."
)


def build_instructions(agent: AgentConfig, *, added: str = "", has_tools: bool = True) -> str:
    """What the model is told before anything is said; `added` is the caller's. No clock in it."""
    parts = [
        agent.instructions.strip() or _DEFAULT_INSTRUCTIONS.format(name=agent.name or agent.id)
    ]
    if has_tools:
        parts.append(f"The workspace is {agent.workspace}.")
    if added.strip():
        parts.append(added.strip())
    return "\n\n".join(parts)
