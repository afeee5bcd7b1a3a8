"""Model providers: how each is reached, its models, and which model an agent may name."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Literal

from nacre.config.mcp_entry import is_web_address, resolve_headers
from nacre.config.setting_paths import format_value, member_path, nearest_key
from nacre.errors import ConfigError, MissingReferenceError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from nacre.config.agent_sections import ModelsSection, ProviderSection
    from nacre.config.codex import RuntimeId
    from nacre.config.references import Resolver

ProviderApi = Literal[
    "openai-responses", "openai-completions", "anthropic-messages", "google-generative-ai", "demo"
]

DEFAULT_MODEL: Final = "demo/demo"
DEFAULT_CONTEXT_TOKENS: Final = 128_000

API_KEY_VARIABLES: Final[Mapping[ProviderApi, str]] = {
    "openai-responses": "OPENAI_API_KEY",
    "openai-completions": "OPENAI_API_KEY",
    "anthropic-messages": "ANTHROPIC_API_KEY",
    "google-generative-ai": "GEMINI_API_KEY",
    "demo": "",
}
# Providers that are known by their name, and need no entry.
_APIS_BY_NAME: Final[Mapping[str, ProviderApi]] = {
    "openai": "openai-responses",
    "anthropic": "anthropic-messages",
    "google": "google-generative-ai",
    "demo": "demo",
}
_MODEL = re.compile(r"([^\s/]+)/(\S+)")
_PROVIDER_NAME = re.compile(r"[^\s/]{1,64}")


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelConfig:
    """One model of a provider."""

    id: str
    name: str
    context_tokens: int = DEFAULT_CONTEXT_TOKENS
    max_output_tokens: int | None = None
    takes_images: bool = True
    runtime: RuntimeId | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class ProviderConfig:
    """One provider. Its `repr` does not show secrets."""

    name: str
    api: ProviderApi
    base_url: str = field(default="", repr=False)
    """Empty for the provider's own. It may have a password or a key in it."""
    api_key: str = field(default="", repr=False)
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    timeout_seconds: float = 600.0
    max_retries: int = 4
    models: Mapping[str, ModelConfig] = field(default_factory=dict[str, ModelConfig])
    """By id; empty if any model name is accepted."""
    runtime: RuntimeId | None = None
    missing: str = ""
    """The message about a missing variable or file; without it the provider cannot be used."""

    @property
    def is_official_openai(self) -> bool:
        """Whether requests go to OpenAI's own address, without further headers."""
        is_own = self.name == "openai" and self.api == "openai-responses"
        return is_own and not self.base_url and not self.headers


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelsConfig:
    """All providers by name: those of the document, and those that need no entry."""

    providers: Mapping[str, ProviderConfig]


def resolve_models(section: ModelsSection, resolver: Resolver) -> ModelsConfig:
    """Resolve `models`; problems are noted."""
    from nacre.config.agent_sections import ProviderSection

    known = {name: ProviderSection() for name in _APIS_BY_NAME if name not in section.providers}
    entries = {**section.providers, **known}
    return ModelsConfig(
        providers={
            name: _resolve_provider(name, entry, resolver) for name, entry in entries.items()
        }
    )


def _resolve_provider(name: str, entry: ProviderSection, resolver: Resolver) -> ProviderConfig:
    path = member_path("models.providers", name)
    has_fault = resolver.has_problem_at(path)
    if not _PROVIDER_NAME.fullmatch(name):
        problem = "is not a provider name; allowed: 1 to 64 characters, no spaces and slashes"
        resolver.note(ConfigError(path, problem))
    if name not in _APIS_BY_NAME and entry.api is None and not entry.base_url and not has_fault:
        known = ", ".join(_APIS_BY_NAME)
        problem = f"needs `baseUrl`, or `api`: only {known} are known by their names"
        resolver.note(ConfigError(path, problem))
    base_url = _resolve_url(entry.base_url, f"{path}.baseUrl", resolver)
    # Codex speaks only one of them.
    is_for_codex = entry.agent_runtime.id == "codex"
    usual: ProviderApi = "openai-responses" if is_for_codex else "openai-completions"
    api: ProviderApi = entry.api or _APIS_BY_NAME.get(name) or usual
    # The key of the provider must not go to another server with the same API.
    is_own = not base_url or name in _APIS_BY_NAME
    provider = ProviderConfig(
        name=name,
        api=api,
        base_url=base_url,
        api_key=resolver.secret(
            entry, "api_key", path, variable=API_KEY_VARIABLES[api] if is_own else ""
        ),
        headers=resolver.attempt(
            lambda: resolve_headers(entry.headers, f"{path}.headers", resolver.expander.expand), {}
        ),
        timeout_seconds=entry.timeout_seconds,
        max_retries=entry.max_retries,
        models=_resolve_models(entry, path, resolver),
        runtime=entry.agent_runtime.id,
    )
    # Last: all references of the entry have been resolved by now.
    return replace(provider, missing=resolver.missing_below(path))


def _resolve_url(text: str, path: str, resolver: Resolver) -> str:
    url = resolver.expand(text, path)
    if url and not is_web_address(url):
        problem = "is not a provider address; allowed: an http:// or https:// URL"
        resolver.note(ConfigError(path, problem))
        return ""
    return url.rstrip("/")


def _resolve_models(
    entry: ProviderSection, path: str, resolver: Resolver
) -> Mapping[str, ModelConfig]:
    found: dict[str, ModelConfig] = {}
    for index, model in enumerate(entry.models):
        place = f"{path}.models[{index}]"
        if model.id in found:
            problem = f"is {format_value(model.id)}, as another model has it"
            resolver.note(ConfigError(f"{place}.id", problem))
        elif model.id:
            found[model.id] = ModelConfig(
                id=model.id,
                name=model.name or model.id,
                context_tokens=model.context_window,
                max_output_tokens=model.max_tokens,
                takes_images="image" in model.input,
                runtime=model.agent_runtime.id,
            )
        elif not resolver.is_replaced(place) and not resolver.has_problem_at(f"{place}.id"):
            problem = "is missing; write the id by which the provider knows the model"
            resolver.note(ConfigError(f"{place}.id", problem))
    return found


def check_model(
    text: str, path: str, models: ModelsConfig, resolver: Resolver, *, needs_key: bool = True
) -> None:
    """Note a problem at `path` if no provider has this model. It is `<provider>/<model>`."""
    named = _MODEL.fullmatch(text)
    provider = None if named is None else models.providers.get(named[1])
    if named is None:
        allowed = '<provider>/<model>, such as "openai/gpt-6"'
        resolver.note(ConfigError(path, f"is {format_value(text)}; allowed: {allowed}"))
    elif provider is None and resolver.has_problem_at(member_path("models.providers", named[1])):
        # Reported already.
        return
    elif provider is None:
        problem = f"is {format_value(text)}, but `models.providers` has no {named[1]!r}"
        resolver.note(ConfigError(path, f"{problem}; {_hint(named[1], models.providers)}"))
    else:
        _check_model_of(provider, named[2], path, resolver)
        if needs_key:
            _check_key(provider, path, resolver)


def _check_model_of(provider: ProviderConfig, model_id: str, path: str, resolver: Resolver) -> None:
    if provider.models and model_id not in provider.models:
        place = f"{_place_of(provider)}.models"
        problem = f"names {format_value(model_id)}, which `{place}` lacks"
        resolver.note(ConfigError(path, f"{problem}; {_hint(model_id, provider.models)}"))


def _check_key(provider: ProviderConfig, path: str, resolver: Resolver) -> None:
    """A server that is not the provider's own may need no key."""
    variable, place = API_KEY_VARIABLES[provider.api], _place_of(provider)
    if provider.api_key or provider.base_url or provider.headers or not variable:
        return
    # A key that cannot be read is reported already.
    if not resolver.has_problem_at(place):
        problem = (
            f"names a model of {provider.name}, which has no API key; set {variable}, or write "
            f"`{place}.apiKey` or `{place}.apiKeyFile`"
        )
        resolver.note(MissingReferenceError(path, problem))


def _place_of(provider: ProviderConfig) -> str:
    return member_path("models.providers", provider.name)


def _hint(name: str, known: Iterable[str]) -> str:
    names = tuple(known)
    near = nearest_key(name, names)
    return f"did you mean {near!r}?" if near else f"there are: {', '.join(names)}"
