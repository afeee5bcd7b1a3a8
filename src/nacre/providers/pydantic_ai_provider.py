"""Sends requests to models through pydantic-ai. Import it late, because importing it is slow.

The SDKs of OpenAI and Anthropic check every message of a request against all message types, to
rename members that need no renaming. In a session of twenty turns this takes half of the time of a
turn and blocks the event loop. `send_plainly` avoids it.

Retries of the SDKs are off. Everything that they would read from the environment is passed in.
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from importlib import import_module
from threading import Thread
from typing import TYPE_CHECKING, Any, Final, TypeAlias, assert_never, cast

import httpx2
from pydantic_ai import exceptions as theirs
from pydantic_ai.direct import model_request_stream
from pydantic_ai.messages import InstructionPart
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.settings import ModelSettings as TheirSettings
from pydantic_ai.tools import ToolDefinition

from nacre.errors import ConfigError
from nacre.providers.base import Answered, PayloadRefusedError
from nacre.providers.http_client import (
    CONNECT_SECONDS,
    Exchange,
    model_http_client,
)
from nacre.providers.message_conversion import ConversionRules, MessageConversion, StreamEvents
from nacre.providers.provider_errors import ProviderErrors, find_message, find_refusal
from nacre.providers.provider_secrets import ProviderSecrets, get_api_key

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping
    from contextlib import AbstractAsyncContextManager

    from pydantic_ai.messages import ModelResponse
    from pydantic_ai.models import Model, StreamedResponse

    from nacre.config import ProviderApi, ProviderConfig
    from nacre.errors import ProviderError
    from nacre.providers.base import ModelEvent, ModelRequest, ModelSettings

    ModelMaker: TypeAlias = Callable[[str], Model[Any]]
_TEMPORARY: Final = (
    theirs.ModelRateLimitError,
    theirs.ModelUnavailableError,
    theirs.ModelServerError,
)
_TOOLS: Final = "tools"
_PLAIN: Final = (str, int, float, bool, type(None))
_OPENAI_URL: Final = "https://api.openai.com/v1"
_ANTHROPIC_URL: Final = "https://api.anthropic.com"
_GOOGLE_URL: Final = "https://generativelanguage.googleapis.com"


class PydanticAiBackend:
    """The models of one provider, with a shared HTTP client."""

    def __init__(self, config: ProviderConfig) -> None:
        self._config = config
        self._secrets = ProviderSecrets(config)
        self._client = model_http_client(
            timeout_seconds=config.timeout_seconds, secrets=self._secrets
        )
        self._make_model = model_maker(config, self._client)
        # pydantic-ai reads usage with it and would import it on the event loop, for 0.3 s, after
        # the first response. The model takes longer to answer.
        Thread(target=import_module, args=("genai_prices.data",), daemon=True).start()

    def model(self, name: str, *, model_id: str) -> PydanticAiModel:
        errors = ProviderErrors(model_id, self._config, self._secrets)
        known = self._config.models.get(name)
        return PydanticAiModel(
            self._make_model(name),
            api=self._config.api,
            model_id=model_id,
            max_output_tokens=known.max_output_tokens if known else None,
            takes_images=known.takes_images if known else True,
            errors=errors,
        )

    async def aclose(self) -> None:
        await self._client.aclose()


class PydanticAiModel:
    """One model; `attempt` sends a request once."""

    def __init__(
        self,
        model: Model[Any],
        *,
        api: ProviderApi,
        model_id: str,
        max_output_tokens: int | None,
        takes_images: bool,
        errors: ProviderErrors,
    ) -> None:
        self._model = model
        self._api: ProviderApi = api
        self._max_output_tokens = max_output_tokens
        self._errors = errors
        profile = cast("Mapping[str, object]", model.profile)
        self._conversion = MessageConversion(
            ConversionRules(
                model_id=model_id,
                system=model.system,
                url=model.base_url or "",
                marks_errors=api in ("anthropic-messages", "google-generative-ai"),
                accepts_thinking=api != "openai-responses"
                or profile.get("openai_supports_encrypted_reasoning_content") is True,
                takes_images=takes_images,
            )
        )

    async def attempt(self, request: ModelRequest, *, number: int) -> AsyncGenerator[ModelEvent]:
        """Send the request once.

        Raises ProviderError, and PayloadRefusedError with the exception of `request.check`.
        """
        exchange = Exchange(request.check, attempt=number)
        try:
            async with AsyncExitStack() as stack:
                with exchange.activate():
                    response = await stack.enter_async_context(self._open_stream(request))
                reader = StreamEvents()
                events = aiter(response)
                while True:
                    # A long response may take several HTTP requests.
                    with exchange.activate():
                        event = await anext(events, None)
                    if event is None:
                        break
                    for each in reader.convert(event):
                        yield each
                answer = self._check_complete(response.get())
                yield Answered(
                    message=self._conversion.from_theirs(answer),
                    response_model=answer.model_name or "",
                )
        except Exception as error:
            if exchange.refusal is not None:
                raise PayloadRefusedError(exchange.refusal) from None
            # Not `from error`, whose traceback would contain the whole response of the provider.
            raise _convert(error, self._errors) from None

    def _open_stream(self, request: ModelRequest) -> AbstractAsyncContextManager[StreamedResponse]:
        parameters = ModelRequestParameters(
            function_tools=[
                ToolDefinition(
                    name=tool.name,
                    description=tool.description,
                    parameters_json_schema=tool.parameters,
                    strict=False,
                )
                for tool in request.tools
            ],
            instruction_parts=[InstructionPart(content=request.instructions)]
            if request.instructions
            else [],
        )
        return model_request_stream(
            self._model,
            self._conversion.to_theirs(request.messages),
            model_settings=self._settings(request.settings),
            model_request_parameters=parameters,
        )

    def _settings(self, requested: ModelSettings) -> TheirSettings:
        settings = self._default_settings()
        max_tokens = requested.max_tokens or self._max_output_tokens
        if max_tokens is not None:
            settings["max_tokens"] = max_tokens
        if requested.temperature is not None:
            settings["temperature"] = requested.temperature
        if requested.top_p is not None:
            settings["top_p"] = requested.top_p
        if requested.stop:
            settings["stop_sequences"] = list(requested.stop)
        if requested.is_parallel is not None:
            settings["parallel_tool_calls"] = requested.is_parallel
        return settings

    def _default_settings(self) -> TheirSettings:
        match self._api:
            case "openai-responses":
                from pydantic_ai.models.openai import OpenAIResponsesModelSettings

                # Nacre stores the session, so the provider need not.
                return OpenAIResponsesModelSettings(openai_store=False)
            case "anthropic-messages":
                from pydantic_ai.models.anthropic import AnthropicModelSettings

                # Without caching, each step pays the full price for the whole conversation.
                return AnthropicModelSettings(
                    anthropic_cache_instructions=True, anthropic_cache_messages=True
                )
            case _:
                return TheirSettings()

    def _check_complete(self, response: ModelResponse) -> ModelResponse:
        """Return the response; raises ProviderError if it is incomplete."""
        details = response.provider_details or {}
        has_end = response.finish_reason is not None or "finish_reason" in details
        if response.state == "incomplete" or not has_end:
            raise self._errors.incomplete()
        return response


def _convert(error: Exception, errors: ProviderErrors) -> ProviderError:
    if find_refusal(error):
        return errors.convert(error)
    is_context_overflow = isinstance(error, theirs.ModelContextWindowExceededError)
    match error:
        case theirs.ModelHTTPError():
            return errors.refuse(
                error.status_code,
                error.body,
                retry_after_seconds=error.retry_after,
                is_final=isinstance(error, theirs.ModelQuotaExceededError),
                is_context_overflow=is_context_overflow,
            )
        case theirs.ModelTimeoutError():
            return errors.timeout(error)
        case theirs.ModelConnectionError():
            return errors.lost(error)
        case theirs.ModelAPIError():
            return errors.fail(
                find_message(error.body) or error.message,
                is_retryable=isinstance(error, _TEMPORARY),
                is_context_overflow=is_context_overflow,
            )
        case theirs.UserError():
            return errors.fail(f"the request cannot be sent: {error}")
        case _:
            return errors.convert(error)


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
        case "openai-responses":
            return _openai(config, client)
        case "anthropic-messages":
            return _anthropic(config, client)
        case "google-generative-ai":
            return _google(config, client)
        case "openai-completions" | "demo":
            raise ConfigError(f"models.providers.{config.name}.api", "is built in and has no SDK")
        case _:
            assert_never(config.api)


def _openai(config: ProviderConfig, client: httpx2.AsyncClient) -> ModelMaker:
    from openai import AsyncOpenAI
    from pydantic_ai.models.openai import OpenAIResponsesModel
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
    # The first use of a resource imports its types, which takes 0.1 s.
    send_plainly(sdk.responses, "input")
    provider = OpenAIProvider(openai_client=sdk)
    profile = OpenAIModelProfile(json_schema_transformer=None)
    return lambda name: OpenAIResponsesModel(name, provider=provider, profile=profile)


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
