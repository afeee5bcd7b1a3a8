"""The models of pydantic-ai, each over its provider's SDK and our HTTP client.

The SDKs do not try again by themselves, and what they would take from the environment is given.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeAlias, assert_never

import httpx2

from nacre.errors import ConfigError
from nacre.providers.http_client import CONNECT_SECONDS
from nacre.providers.plain_bodies import send_plainly
from nacre.providers.provider_secrets import key_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from pydantic_ai.models import Model

    from nacre.config.models import ProviderConfig

    ModelMaker: TypeAlias = Callable[[str], Model[Any]]

_OPENAI_URL: Final = "https://api.openai.com/v1"
_ANTHROPIC_URL: Final = "https://api.anthropic.com"
_GOOGLE_URL: Final = "https://generativelanguage.googleapis.com"


def model_maker(config: ProviderConfig, client: httpx2.AsyncClient) -> ModelMaker:
    """Makes models of one provider by name; they share the client."""
    match config.api:
        case "openai-responses" | "openai-completions":
            return _openai(config, client)
        case "anthropic-messages":
            return _anthropic(config, client)
        case "google-generative-ai":
            return _google(config, client)
        case "demo":
            raise ConfigError(f"models.providers.{config.name}.api", "is embedded, without an SDK")
        case _:
            assert_never(config.api)


def _openai(config: ProviderConfig, client: httpx2.AsyncClient) -> ModelMaker:
    from openai import AsyncOpenAI
    from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
    from pydantic_ai.profiles.openai import OpenAIModelProfile
    from pydantic_ai.providers.openai import OpenAIProvider

    sdk = AsyncOpenAI(
        api_key=key_of(config),
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
        # An answer that ends without one was cut off.
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
        api_key=key_of(config),
        base_url=config.base_url or _ANTHROPIC_URL,
        default_headers=config.headers,
        timeout=_timeout(config),
        max_retries=0,
        http_client=client,
        # The turn has a span of the call already: another would count its tokens twice.
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
            api_key=key_of(config),
            http_options=HttpOptions(
                base_url=config.base_url or _GOOGLE_URL,
                headers=dict(config.headers),
                timeout=int(config.timeout_seconds * 1000),
                httpx_async_client=client,
            ),
        )
    )
    # Its schemas are rewritten, because Gemini refuses some keywords; what is optional stays so.
    return lambda name: GoogleModel(name, provider=provider)


def _timeout(config: ProviderConfig) -> httpx2.Timeout:
    seconds = config.timeout_seconds
    return httpx2.Timeout(seconds, connect=min(CONNECT_SECONDS, seconds))
