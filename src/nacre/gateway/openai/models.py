"""What `model` means in a request: an agent, or a model for the default agent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from nacre.errors import ConfigError, MissingReferenceError, SessionError
from nacre.gateway.errors import ApiError

if TYPE_CHECKING:
    from nacre.bootstrap import System
    from nacre.json_types import JsonObject

OWN_NAME: Final = "nacre"

_AGENT_PREFIXES: Final = ("nacre/", "agent:")
_MAX_SHOWN: Final = 100
_MAX_LISTED: Final = 20


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelChoice:
    """Who answers. Empty means: the session's agent or the default one, and the agent's model."""

    name: str
    """As the client wrote it."""
    agent_id: str = ""
    model: str = ""


def model_ids(system: System) -> list[str]:
    """All names that a client may use; where a provider lists no models, any of its own as well."""
    agents = (f"{OWN_NAME}/{agent_id}" for agent_id in system.config.agents.ids)
    return [OWN_NAME, *agents, *system.providers.list_models()]


def models_to_json(system: System) -> JsonObject:
    """The list, and what OpenAI's has no place for: providers of which any model may be named."""
    return {
        "object": "list",
        "data": [model_to_json(name) for name in model_ids(system)],
        "openProviders": [*system.providers.list_open_providers()],
    }


def model_choice(system: System, name: str) -> ModelChoice:
    """Raises ApiError (404) for what is neither an agent nor a model."""
    if name == OWN_NAME:
        return ModelChoice(name=name)
    for prefix in _AGENT_PREFIXES:
        if name.startswith(prefix):
            return ModelChoice(name=name, agent_id=_agent_id(system, name, prefix))
    try:
        system.providers.get(name)
    except MissingReferenceError:
        # It is there, and cannot be asked; whoever starts a run is told why.
        pass
    except ConfigError:
        raise _unknown(system, name) from None
    return ModelChoice(name=name, model=name)


def model_to_json(name: str) -> JsonObject:
    owner = OWN_NAME if name == OWN_NAME else name.partition("/")[0]
    return {"id": name, "object": "model", "created": 0, "owned_by": owner}


def _agent_id(system: System, name: str, prefix: str) -> str:
    try:
        return system.config.agents.agent(name.removeprefix(prefix)).id
    except SessionError:
        raise _unknown(system, name) from None


def _unknown(system: System, name: str) -> ApiError:
    known = model_ids(system)
    more = f" and {len(known) - _MAX_LISTED} more" if len(known) > _MAX_LISTED else ""
    shown = ", ".join(known[:_MAX_LISTED])
    providers = system.providers.list_open_providers()[:_MAX_LISTED]
    others = f", and any model of {', '.join(providers)}" if providers else ""
    return ApiError(
        404,
        f"there is no model {name[:_MAX_SHOWN]!r}; there are: {shown}{more}{others}",
        code="model_not_found",
        path="model",
    )
