"""The `models` contract: providers, how each is reached, and what is known of its models."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Literal, get_args

from nacre.config.documents import shown
from nacre.config.fields import Fields
from nacre.config.mcp_entry import EntryValues, is_web_address
from nacre.config.section import Found, Section
from nacre.config.section_values import expanded_text, secret
from nacre.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

ProviderApi = Literal[
    "openai-responses", "openai-completions", "anthropic-messages", "google-generative-ai", "demo"
]
PROVIDER_APIS: Final[tuple[ProviderApi, ...]] = get_args(ProviderApi)

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
_PROVIDER_NAME = re.compile(r"[^\s/]{1,64}")
_MAX_TOKENS: Final = 100_000_000


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelConfig:
    """What is known of one model."""

    id: str
    name: str
    context_tokens: int = DEFAULT_CONTEXT_TOKENS
    max_output_tokens: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class ProviderConfig:
    """How one provider is reached. It holds secrets, and never shows them."""

    name: str
    api: ProviderApi
    base_url: str = ""
    """Empty for the provider's own."""
    api_key: str = field(default="", repr=False)
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    timeout_seconds: float = 600.0
    max_retries: int = 4
    models: Mapping[str, ModelConfig] = field(default_factory=dict[str, ModelConfig])
    """By id; empty where any model of the provider may be asked for."""
    missing: str = ""
    """A variable or file that is named and not there; without it the provider cannot be asked."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelsConfig:
    """All providers by name: those of the configuration, and those that need no entry."""

    providers: Mapping[str, ProviderConfig]


def read_models(models: Section) -> ModelsConfig:
    """Read `models`; faults are noted."""
    entries = models.named("providers")
    for name in _APIS_BY_NAME:
        if name not in entries:
            place = Found(value=None, path=f"models.providers.{name}")
            entries[name] = Section(models.reading, [place], pattern="models.providers.<name>")
    return ModelsConfig(providers={name: _provider(name, entry) for name, entry in entries.items()})


def _provider(name: str, entry: Section) -> ProviderConfig:
    if not _PROVIDER_NAME.fullmatch(name):
        problem = "is no name of a provider; allowed: 1 to 64 characters, no spaces and slashes"
        entry.reading.note(ConfigError(entry.path, problem))
    base_url = _base_url(entry)
    api = _api(name, entry, has_url=bool(base_url))
    # The key of one's account there is not for whoever else speaks the same language.
    is_own = not base_url or name in _APIS_BY_NAME
    variable = API_KEY_VARIABLES[api] if is_own else ""
    provider = ProviderConfig(
        name=name,
        api=api,
        base_url=base_url,
        api_key=secret(entry, "apiKey", file_key="apiKeyFile", variable=variable),
        headers=_headers(entry),
        timeout_seconds=entry.number("timeoutSeconds", 600.0, least=1, most=86_400),
        max_retries=entry.whole("maxRetries", 4, least=0, most=20),
        models=_models(entry),
    )
    # Last: by now all that the entry names has been looked for.
    return replace(provider, missing=entry.reading.missing_below(entry.path))


def _api(name: str, entry: Section, *, has_url: bool) -> ProviderApi:
    default: ProviderApi = _APIS_BY_NAME.get(name, "openai-completions")
    api = entry.choice("api", default, PROVIDER_APIS)
    if name not in _APIS_BY_NAME and not entry.has("api") and not entry.has("baseUrl"):
        known = ", ".join(_APIS_BY_NAME)
        entry.reading.note(
            ConfigError(
                entry.path,
                f"needs `baseUrl`, or `api`: only {known} are known by their names",
            )
        )
    return api


def _base_url(entry: Section) -> str:
    allowed = "an http:// or https:// URL"
    url = expanded_text(entry, "baseUrl", allowed=allowed)
    if url and not is_web_address(url):
        entry.refuse("baseUrl", f"is no address of a provider; allowed: {allowed}")
        return ""
    return url.rstrip("/")


def _headers(entry: Section) -> Mapping[str, str]:
    found = entry.find("headers", default={}, allowed="an object of texts")
    if found is None:
        return {}
    fields = Fields({"headers": found.value}, entry.path)
    values = EntryValues(fields, entry.reading.expander)
    return entry.reading.attempt(values.headers, {})


def _models(entry: Section) -> Mapping[str, ModelConfig]:
    found: dict[str, ModelConfig] = {}
    for item in entry.listed("models", allowed="a list of models; without it, any may be used"):
        model = _model(item)
        if model.id in found:
            item.refuse("id", f"is {shown(model.id)}, as another model has it")
        if model.id:
            found[model.id] = model
    return found


def _model(item: Section) -> ModelConfig:
    model_id = item.text("id", allowed="the id by which the provider knows the model")
    if not item.has("id"):
        item.refuse("id", "is missing; write the id by which the provider knows the model")
    return ModelConfig(
        id=model_id,
        name=item.text("name", model_id),
        context_tokens=item.whole(
            "contextWindow", DEFAULT_CONTEXT_TOKENS, least=1_000, most=_MAX_TOKENS
        ),
        max_output_tokens=item.whole("maxTokens", None, least=1, most=_MAX_TOKENS),
    )
