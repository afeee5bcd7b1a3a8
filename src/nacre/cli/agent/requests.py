"""What a command asks of the agents: which agent, which model, which session."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from nacre.agent import TurnRequest
from nacre.cli.output import UsageProblem, warn
from nacre.cli.stored_records import session_names, unknown_name_problem
from nacre.errors import ConfigError, SessionError
from nacre.providers.provider_keys import key_of
from nacre.tools.nearest_names import NearestNames

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nacre.bootstrap import System
    from nacre.config.system import SystemConfig

CHANNEL: Final = "terminal"
_DEMO_MODEL: Final = "demo/demo"
_ID_PREFIX: Final = "session_"


@dataclass(frozen=True, kw_only=True, slots=True)
class Target:
    """As the options name it; None for what the configuration says."""

    agent: str | None = None
    model: str | None = None
    session: str | None = None


def resolve_model(
    config: SystemConfig, target: Target, *, lacking: Sequence[ConfigError] = ()
) -> str:
    """The model that will answer; raises UsageProblem for an agent that is not there, and for a
    model that cannot be asked for want of a secret. Warns of what else is `lacking` one."""
    try:
        agent = config.agents.agent(target.agent or config.agents.default_id)
    except SessionError as error:
        near = NearestNames(config.agents.ids).nearest(target.agent or "", 1)
        raise UsageProblem(f"{error}{f'; did you mean {near[0]!r}?' if near else ''}") from None
    model = target.model or agent.model
    if lacking:
        _refuse_without_key(config, model)
    for problem in lacking:
        warn(str(problem))
    return model


def _refuse_without_key(config: SystemConfig, model: str) -> None:
    provider = config.models.providers.get(model.partition("/")[0])
    if provider is None or provider.api == "demo":
        return
    try:
        key_of(provider)
    except ConfigError as error:
        raise UsageProblem(str(error)) from None


def warn_of_demo_model(model: str) -> None:
    """Nobody is to take the demonstration for a model."""
    if model == _DEMO_MODEL:
        warn(
            "the built-in demonstration model answers; for a real one give its provider a key, "
            "such as OPENAI_API_KEY, and name it: "
            "`nacre config set agents.defaults.model openai/gpt-6`"
        )


def resume_hint(target: Target, session: str, *, config_file: str | None) -> str:
    """What to type to go on in the session, with the options of this command."""
    options = {
        "--config": config_file,
        "--agent": target.agent,
        "--model": target.model,
        "--session": session,
    }
    words = [word for name, value in options.items() if value for word in (name, value)]
    return f"go on with: {shlex.join(['nacre', 'chat', *words])}"


async def request_for(target: Target, system: System) -> TurnRequest:
    """A turn without its message, in the session that is named, if one is.

    Raises UsageProblem for the id of a session that is not there.
    """
    request = TurnRequest(agent_id=target.agent or "", model=target.model or "", channel=CHANNEL)
    if not target.session:
        return request
    if await system.store.session(target.session) is not None:
        return replace(request, session_id=target.session)
    if target.session.startswith(_ID_PREFIX):
        await _refuse_unless_key(target.session, target, system)
    return replace(request, session_key=target.session)


async def _refuse_unless_key(session: str, target: Target, system: System) -> None:
    """What looks like an id is a key only where there is one already, made through the API."""
    agents = system.config.agents
    agent = agents.agent(target.agent or agents.default_id)
    if await system.store.session_by_key(agent.id, session) is None:
        names = await session_names(system.store)
        where = f"a name of yours begins with something else than {_ID_PREFIX}"
        raise unknown_name_problem("session", session, names, where=where)
