"""What a command asks of the agents: which agent, which model, which session."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from nacre.agent import TurnRequest
from nacre.cli.exit_status import UsageProblem
from nacre.cli.terminal import warn
from nacre.errors import SessionError
from nacre.tools.nearest_names import NearestNames

if TYPE_CHECKING:
    from nacre.config.system import SystemConfig
    from nacre.storage import Store

CHANNEL: Final = "terminal"
_DEMO_MODEL: Final = "demo/demo"


@dataclass(frozen=True, kw_only=True, slots=True)
class Target:
    """As the options name it; None for what the configuration says."""

    agent: str | None = None
    model: str | None = None
    session: str | None = None


def checked_model(config: SystemConfig, target: Target) -> str:
    """The model that will answer; raises UsageProblem for an agent that is not there."""
    try:
        agent = config.agents.agent(target.agent or config.agents.default_id)
    except SessionError as error:
        near = NearestNames(config.agents.ids).nearest(target.agent or "", 1)
        raise UsageProblem(f"{error}{f'; did you mean {near[0]!r}?' if near else ''}") from None
    return target.model or agent.model


def hint_at_demo(model: str) -> None:
    """Nobody is to take the demonstration for a model."""
    if model == _DEMO_MODEL:
        warn(
            "the built-in demonstration model answers; for a real one give its provider a key, "
            "such as OPENAI_API_KEY, and name it: "
            "`nacre config set agents.defaults.model openai/<model>`"
        )


def how_to_go_on(command: str, session: str) -> str:
    """What to type to go on in the session."""
    return f"go on with: nacre {command} --session {shlex.quote(session)}"


async def request_for(target: Target, store: Store) -> TurnRequest:
    """A turn without its message, in the session that is named, if one is."""
    request = TurnRequest(agent_id=target.agent or "", model=target.model or "", channel=CHANNEL)
    if not target.session:
        return request
    if await store.session(target.session) is not None:
        return replace(request, session_id=target.session)
    return replace(request, session_key=target.session)
