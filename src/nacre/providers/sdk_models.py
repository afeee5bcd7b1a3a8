"""Creates pydantic-ai models over each provider's SDK and the shared HTTP client.

The SDKs of OpenAI and Anthropic check every message of a request against all message types, to
rename members that need no renaming. In a session of twenty turns this takes half of the time of a
turn and blocks the event loop. `send_plainly` avoids it.

Retries of the SDKs are off. Everything that they would read from the environment is passed in.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeAlias, assert_never, cast

import httpx2

from nacre.errors import ConfigError
from nacre.providers.http_client import CONNECT_SECONDS
from nacre.providers.provider_secrets import get_api_key

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pydantic_ai.models import Model

    from nacre.config import ProviderConfig

    ModelMaker: TypeAlias = Callable[[str], Model[Any]]


_TOOLS: Final = "tools"
_PLAIN: Final = (str, int, float, bool, type(None))
_OPENAI_URL: Final = "https://api.openai.com/v1"
_ANTHROPIC_URL: Final = "https://api.anthropic.com"
_GOOGLE_URL: Final = "https://generativelanguage.googleapis.com"


def send_plainly(resource: Any, conversation: str) -> None:
    """Make `resource.create` send the conversation and the tools without transforming them.

    `resource` is for example `client.chat.completions`; `conversation` is `messages` or `input`.
    """
    create = resource.create

    async def create_plainly(**options: Any) -> Any:
        return await create(**_move_plain_members(options, conversation))

    resource.create = create_plainly


def _move_plain_members(options: Mapping[str, Any], conversation: str) -> dict[str, Any]:
    """Move plain members to `extra_body`, which the SDK merges into the body unchanged."""
    moved = {
        key: options[key]
        for key in (conversation, _TOOLS)
        if isinstance(options.get(key), list) and _is_plain(options[key])
    }
    if conversation not in moved:
        return dict(options)
    left = {key: value for key, value in options.items() if key not in moved}
    # The SDK requires the member; `extra_body` overrides it.
    return {**left, conversation: [], "extra_body": {**moved, **(options.get("extra_body") or {})}}


def _is_plain(value: object) -> bool:
    """Whether the value is plain JSON: no models, files or "omit" markers of the SDK."""
    if isinstance(value, dict):
        return all(map(_is_plain, cast("dict[str, object]", value).values()))
    if isinstance(value, list):
        return all(map(_is_plain, cast("list[object]", value)))
    return isinstance(value, _PLAIN)


def model_maker(config: ProviderConfig, client: httpx2.AsyncClient) -> ModelMaker:
    """Return a function that creates models of the provider by name, with a shared client."""
    match config.api:
        case "openai-responses" | "openai-completions":
            return _openai(config, client)
        case "anthropic-messages":
            return _anthropic(config, client)
        case "google-generative-ai":
            return _google(config, client)
        case "demo":
            raise ConfigError(f"models.providers.{config.name}.api", "is built in and has no SDK")
        case _:
            assert_never(config.api)


def _openai(config: ProviderConfig, client: httpx2.AsyncClient) -> ModelMaker:
    from openai import AsyncOpenAI
    from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
    from pydantic_ai.profiles.openai import OpenAIModelProfile
    from pydantic_ai.providers.openai import OpenAIProvider

    sdk = AsyncOpenAI(
        api_key=get_api_key(config),
        base_url=config.base_url or _OPENAI_URL,
        default_headers=config.headers,
        timeout=_timeout(config),
        max_retries=0,
        http_client=client,
    )
    send_plainly(sdk.chat.completions, "messages")
    send_plainly(sdk.responses, "input")
    provider = OpenAIProvider(openai_client=sdk)
    profile = OpenAIModelProfile(
        json_schema_transformer=None,
        # A response without a finish reason is incomplete.
        openai_chat_streaming_requires_finish_reason=True,
    )
    kind = OpenAIResponsesModel if config.api == "openai-responses" else OpenAIChatModel
    return lambda name: kind(name, provider=provider, profile=profile)


def _anthropic(config: ProviderConfig, client: httpx2.AsyncClient) -> ModelMaker:
    from anthropic import AsyncAnthropic
    from pydantic_ai.models.anthropic import AnthropicModel
    from pydantic_ai.profiles import ModelProfile
    from pydantic_ai.providers.anthropic import AnthropicProvider

    sdk = AsyncAnthropic(
        api_key=get_api_key(config),
        base_url=config.base_url or _ANTHROPIC_URL,
        default_headers=config.headers,
        timeout=_timeout(config),
        max_retries=0,
        http_client=client,
        # The turn already has a span for the request; a second one would count tokens twice.
        open_telemetry=False,
    )
    send_plainly(sdk.beta.messages, "messages")
    provider = AnthropicProvider(anthropic_client=sdk)
    profile = ModelProfile(json_schema_transformer=None)
    return lambda name: AnthropicModel(name, provider=provider, profile=profile)


def _google(config: ProviderConfig, client: httpx2.AsyncClient) -> ModelMaker:
    from google.genai.client import Client
    from google.genai.types import HttpOptions
    from pydantic_ai.models.google import GoogleModel
    from pydantic_ai.providers.google import GoogleProvider

    provider = GoogleProvider(
        client=Client(
            vertexai=False,
            api_key=get_api_key(config),
            http_options=HttpOptions(
                base_url=config.base_url or _GOOGLE_URL,
                headers=dict(config.headers),
                timeout=int(config.timeout_seconds * 1000),
                httpx_async_client=client,
            ),
        )
    )
    # The profile rewrites schemas, because Gemini refuses some keywords; optional stays optional.
    return lambda name: GoogleModel(name, provider=provider)


def _timeout(config: ProviderConfig) -> httpx2.Timeout:
    seconds = config.timeout_seconds
    return httpx2.Timeout(seconds, connect=min(CONNECT_SECONDS, seconds))
