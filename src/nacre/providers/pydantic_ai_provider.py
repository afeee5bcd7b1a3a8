"""Sends requests to models through pydantic-ai. Import it late, because importing it is slow."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, cast

from pydantic_ai.direct import model_request_stream
from pydantic_ai.messages import InstructionPart
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.settings import ModelSettings as TheirSettings
from pydantic_ai.tools import ToolDefinition

from nacre.providers.base import Answered
from nacre.providers.http_client import WireLog, model_http_client
from nacre.providers.message_conversion import ConversionRules, MessageConversion, StreamEvents
from nacre.providers.payload import Exchange, PayloadRefusedError
from nacre.providers.provider_errors import ProviderErrors
from nacre.providers.provider_secrets import ProviderSecrets
from nacre.providers.sdk_models import model_maker
from nacre.telemetry import get_debug_flags

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping
    from contextlib import AbstractAsyncContextManager

    from pydantic_ai.messages import ModelResponse
    from pydantic_ai.models import Model, StreamedResponse

    from nacre.config import ProviderApi, ProviderConfig
    from nacre.providers.base import ModelEvent, ModelRequest, ModelSettings


class PydanticAiBackend:
    """The models of one provider, with a shared HTTP client."""

    def __init__(self, config: ProviderConfig) -> None:
        self._config = config
        self._secrets = ProviderSecrets(config)
        self._client = model_http_client(
            timeout_seconds=config.timeout_seconds, log=WireLog(get_debug_flags(), self._secrets)
        )
        self._make_model = model_maker(config, self._client)

    def model(self, name: str, *, model_id: str) -> PydanticAiModel:
        errors = ProviderErrors(model_id, self._config, self._secrets)
        known = self._config.models.get(name)
        return PydanticAiModel(
            self._make_model(name),
            api=self._config.api,
            model_id=model_id,
            max_output_tokens=known.max_output_tokens if known else None,
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
            raise self._errors.convert(error) from None

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
