"""How Codex reaches the model of a turn: its provider, its effort, and what may run natively."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from nacre.config import DEFAULT_CONTEXT_TOKENS
from nacre.errors import CodexError

if TYPE_CHECKING:
    from nacre.codex_harness.client import Version
    from nacre.config import AgentConfig, CodexSandbox, ModelsConfig, ProviderConfig
    from nacre.json_types import JsonObject

_NOT_IN_KEYS = re.compile(r"[^A-Za-z0-9_-]")
# Versions before this one call the tier `fast`.
_MIN_PRIORITY_VERSION: Final = (0, 130, 0)
_EFFORTS: Final = ("low", "medium", "high", "xhigh")


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelRoute:
    """The model of a turn, as Codex names it."""

    model: str
    provider: ProviderConfig
    provider_key: str
    """Its key in Codex's configuration; empty for Codex's own provider of OpenAI."""
    context_tokens: int | None = None
    """The context window of the model, if the configuration gives it."""

    def thread_config(self) -> JsonObject:
        """The settings of the provider. They have secrets, so they go neither on the command line
        nor into the environment, which native commands see."""
        provider = self.provider
        if not self.provider_key:
            return {}
        settings: JsonObject = {
            "name": provider.name,
            "base_url": provider.base_url,
            "wire_api": "responses",
            "requires_openai_auth": False,
            "supports_websockets": False,
            "request_max_retries": provider.max_retries,
            "stream_max_retries": provider.max_retries,
            "stream_idle_timeout_ms": round(provider.timeout_seconds * 1000),
        }
        if provider.api_key:
            settings["experimental_bearer_token"] = provider.api_key
        if provider.headers:
            settings["http_headers"] = {**provider.headers}
        return {f"model_providers.{self.provider_key}": settings}


def find_route(model: str, models: ModelsConfig) -> ModelRoute:
    """The route of `<provider>/<model>`. Raises CodexError if Codex cannot use the provider."""
    name, _, model_id = model.partition("/")
    provider = models.providers.get(name)
    if provider is None or not model_id:
        raise CodexError(f"`models.providers` has no provider for the model {model!r}")
    if provider.missing:
        raise CodexError(provider.missing)
    if provider.models and model_id not in provider.models:
        known = ", ".join(f"{name}/{each}" for each in provider.models)
        raise CodexError(f"`models.providers.{name}` has no model {model_id!r}; known: {known}")
    if provider.is_official_openai:
        return _make_route(model_id, provider, "")
    if provider.api != "openai-responses" or not provider.base_url:
        raise CodexError(
            f"the model {model} cannot run in Codex, which speaks only OpenAI's Responses API: "
            f'set `models.providers.{name}.api` to "openai-responses" and give its `baseUrl`, or '
            'set `agentRuntime.id` to "openclaw"'
        )
    return _make_route(model_id, provider, _make_key(name))


def find_thread_route(
    model: str, models: ModelsConfig, *, key: str | None, thread_model: str
) -> ModelRoute:
    """The route of a thread whose provider has this key; None if the key is not known.

    Raises CodexError if the provider of the thread is not configured any more.
    """
    route = find_route(model, models)
    if key in (None, route.provider_key):
        return route
    for name in models.providers:
        if key == ("" if models.providers[name].is_official_openai else _make_key(name)):
            return find_route(f"{name}/{thread_model}", models)
    raise CodexError(
        "the thread of this session belongs to a provider that is not configured any more; the "
        "next message starts a new one"
    )


def _make_route(model_id: str, provider: ProviderConfig, key: str) -> ModelRoute:
    known = provider.models.get(model_id)
    # The default of the setting says nothing about the model.
    tokens = known.context_tokens if known else DEFAULT_CONTEXT_TOKENS
    return ModelRoute(
        model=model_id,
        provider=provider,
        provider_key=key,
        context_tokens=None if tokens == DEFAULT_CONTEXT_TOKENS else tokens,
    )


def _make_key(name: str) -> str:
    """A key that is none of Codex's own, and different for each provider."""
    plain = _NOT_IN_KEYS.sub("-", name)
    mark = "" if plain == name else f"-{hashlib.sha256(name.encode()).hexdigest()[:8]}"
    return f"nacre-{plain}{mark}"


def find_effort(agent: AgentConfig) -> str | None:
    """The reasoning effort of the agent, as Codex names it; None for the model's default."""
    level = "low" if agent.thinking == "minimal" else agent.thinking
    return level if level in _EFFORTS else None


def find_tier(tier: str | None, version: Version) -> str | None:
    """The service tier as this version of Codex names it."""
    return "fast" if tier == "priority" and version < _MIN_PRIORITY_VERSION else tier


def make_sandbox_policy(sandbox: CodexSandbox, *, root: str) -> JsonObject:
    """The sandbox in the form that a turn takes; `root` is its working directory."""
    match sandbox:
        case "danger-full-access":
            return {"type": "dangerFullAccess"}
        case "read-only":
            return {"type": "readOnly", "networkAccess": False}
        case "workspace-write":
            return {
                "type": "workspaceWrite",
                "writableRoots": [root],
                "networkAccess": False,
                "excludeTmpdirEnvVar": False,
                "excludeSlashTmp": False,
            }
