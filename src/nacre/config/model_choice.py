"""Which models an agent may be given: `<provider>/<model>`, of a provider that can be asked."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from nacre.config.documents import shown
from nacre.config.fields import member_path
from nacre.config.models import API_KEY_VARIABLES
from nacre.config.setting_paths import nearest_key
from nacre.errors import ConfigError, MissingReferenceError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from nacre.config.models import ModelsConfig, ProviderConfig
    from nacre.config.reading import Reading

_MODEL = re.compile(r"([^\s/]+)/(\S+)")


def check_model(text: str, path: str, models: ModelsConfig, reading: Reading) -> None:
    """Notes a fault at `path` if no provider can be asked for this model."""
    named = _MODEL.fullmatch(text)
    provider = None if named is None else models.providers.get(named[1])
    if named is None:
        allowed = '<provider>/<model>, such as "openai/gpt-6"'
        reading.note(ConfigError(path, f"is {shown(text)}; allowed: {allowed}"))
    elif provider is None:
        problem = f"is {shown(text)}, but `models.providers` has no {named[1]!r}"
        reading.note(ConfigError(path, f"{problem}; {_hint(named[1], models.providers)}"))
    else:
        _check_model_of(provider, named[2], path, reading)
        _check_key(provider, path, reading)


def _check_model_of(provider: ProviderConfig, model_id: str, path: str, reading: Reading) -> None:
    if provider.models and model_id not in provider.models:
        place = f"{_place_of(provider)}.models"
        problem = f"names {shown(model_id)}, which `{place}` lacks"
        reading.note(ConfigError(path, f"{problem}; {_hint(model_id, provider.models)}"))


def _check_key(provider: ProviderConfig, path: str, reading: Reading) -> None:
    """Another server than the provider's own may need no key."""
    variable, place = API_KEY_VARIABLES[provider.api], _place_of(provider)
    if provider.api_key or provider.base_url or provider.headers or not variable:
        return
    # That the key cannot be read is told already.
    if not reading.has_problem_at(place):
        problem = (
            f"names a model of {provider.name}, which has no API key; set {variable}, or write "
            f"`{place}.apiKey` or `{place}.apiKeyFile`"
        )
        reading.note(MissingReferenceError(path, problem))


def _place_of(provider: ProviderConfig) -> str:
    return member_path("models.providers", provider.name)


def _hint(name: str, known: Iterable[str]) -> str:
    names = tuple(known)
    near = nearest_key(name, names)
    return f"did you mean {near!r}?" if near else f"there are: {', '.join(names)}"
