"""Sends requests to models through pydantic-ai. Import it late, because importing it is slow.

The SDKs of OpenAI and Anthropic check every message of a request against all message types, to
rename members that need no renaming. In a session of twenty turns this takes half of the time of a
turn and blocks the event loop. `send_plainly` avoids it.

Retries of the SDKs are off. Everything that they would read from the environment is passed in.
"""

from __future__ import annotations

import logging
from contextlib import AsyncExitStack
from dataclasses import dataclass
from importlib import import_module
from threading import Thread
from typing import TYPE_CHECKING, Any, Final, TypeAlias, assert_never, cast

import httpx2
from pydantic_ai import exceptions as their_errors
from pydantic_ai import messages as theirs
from pydantic_ai.direct import model_request_stream
from pydantic_ai.messages import InstructionPart
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.settings import ModelSettings as TheirSettings
from pydantic_ai.tools import ToolDefinition
from pydantic_core import to_jsonable_python

from nacre.errors import ConfigError
from nacre.json_types import encode_json, replace_surrogates
from nacre.messages import (
    AssistantMessage,
    SystemMessage,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolMessage,
    Usage,
    UserMessage,
)
from nacre.providers.base import (
    Answered,
    PayloadRefusedError,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
)
from nacre.providers.chat_completions import MessageRules, check_image_url, make_answer
from nacre.providers.http_client import (
    CONNECT_SECONDS,
    Exchange,
    model_http_client,
)
from nacre.providers.provider_errors import ProviderErrors, find_message, find_refusal
from nacre.providers.provider_secrets import ProviderSecrets, get_api_key

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager

    from pydantic_ai.messages import ModelResponse
    from pydantic_ai.models import Model, StreamedResponse

    from nacre.config import ProviderApi, ProviderConfig
    from nacre.errors import ProviderError
    from nacre.json_types import JsonObject, JsonValue
    from nacre.messages import AssistantPart, FinishReason, ImagePart, Message, UserPart
    from nacre.providers.base import ModelEvent, ModelRequest, ModelSettings

    ModelMaker: TypeAlias = Callable[[str], Model[Any]]

logger = logging.getLogger(__name__)

_TEMPORARY: Final = (
    their_errors.ModelRateLimitError,
    their_errors.ModelUnavailableError,
    their_errors.ModelServerError,
)
_TOOLS: Final = "tools"
_PLAIN: Final = (str, int, float, bool, type(None))
_OPENAI_URL: Final = "https://api.openai.com/v1"
_ANTHROPIC_URL: Final = "https://api.anthropic.com"
_GOOGLE_URL: Final = "https://generativelanguage.googleapis.com"

_FINISH_REASONS: Final[dict[str, FinishReason]] = {
    "stop": "stop",
    "length": "length",
    "content_filter": "content_filter",
    "tool_call": "tool_calls",
    "error": "error",
}


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
    is_context_overflow = isinstance(error, their_errors.ModelContextWindowExceededError)
    match error:
        case their_errors.ModelHTTPError():
            return errors.refuse(
                error.status_code,
                error.body,
                retry_after_seconds=error.retry_after,
                is_final=isinstance(error, their_errors.ModelQuotaExceededError),
                is_context_overflow=is_context_overflow,
            )
        case their_errors.ModelTimeoutError():
            return errors.timeout(error)
        case their_errors.ModelConnectionError():
            return errors.lost(error)
        case their_errors.ModelAPIError():
            return errors.fail(
                find_message(error.body) or error.message,
                is_retryable=isinstance(error, _TEMPORARY),
                is_context_overflow=is_context_overflow,
            )
        case their_errors.UserError():
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


@dataclass(frozen=True, kw_only=True, slots=True)
class ConversionRules(MessageRules):
    """The differences between models of pydantic-ai."""

    system: str
    """The name of the provider in pydantic-ai."""
    url: str
    marks_errors: bool
    """Whether the wire format can mark a tool result as an error."""
    accepts_thinking: bool
    """Whether thinking parts can be sent back; if not, they are left out."""


class MessageConversion:
    """Converts the messages of one model, in both directions."""

    def __init__(self, rules: ConversionRules) -> None:
        self._rules = rules

    def to_theirs(self, messages: Sequence[Message]) -> list[theirs.ModelMessage]:
        """Convert messages; consecutive messages that are not the model's become one request."""
        converted: list[theirs.ModelMessage] = []
        request_parts: list[theirs.ModelRequestPart] = []
        for message in messages:
            if isinstance(message, AssistantMessage):
                if request_parts:
                    converted.append(theirs.ModelRequest(parts=request_parts))
                    request_parts = []
                response = self._to_response(message)
                # Empty if it contained only the thinking parts of another provider.
                if response.parts:
                    converted.append(response)
            else:
                request_parts.append(self._to_request_part(message))
        if request_parts:
            converted.append(theirs.ModelRequest(parts=request_parts))
        return converted

    def from_theirs(self, response: theirs.ModelResponse) -> AssistantMessage:
        usage = response.usage
        return make_answer(
            parts=_assistant_parts(response.parts),
            model_id=self._rules.model_id,
            usage=Usage(
                input_tokens=usage.input_tokens,
                output_tokens=usage.output_tokens,
                cached_tokens=usage.cache_read_tokens,
            ),
            reason=_FINISH_REASONS.get(response.finish_reason or "stop", "stop"),
        )

    def _to_request_part(
        self, message: SystemMessage | UserMessage | ToolMessage
    ) -> theirs.ModelRequestPart:
        match message:
            case SystemMessage():
                return theirs.SystemPromptPart(content=replace_surrogates(message.text))
            case UserMessage():
                return theirs.UserPromptPart(content=_user_content(message.parts))
            case ToolMessage():
                is_marked = message.is_error and self._rules.marks_errors
                return theirs.ToolReturnPart(
                    tool_name=message.name,
                    content=self._tool_content(message),
                    tool_call_id=message.call_id,
                    outcome="failed" if is_marked else "success",
                )

    def _tool_content(self, message: ToolMessage) -> str | list[theirs.UserContent]:
        text = replace_surrogates(self._rules.result_text(message))
        if not message.images or not self._rules.takes_images:
            return text
        return [text, *map(_image, message.images)]

    def _to_response(self, message: AssistantMessage) -> theirs.ModelResponse:
        if not self._rules.is_own(message):
            return theirs.ModelResponse(
                parts=[
                    _response_part(part, details={})
                    for part in message.parts
                    if not isinstance(part, ThinkingPart)
                ]
            )
        return theirs.ModelResponse(
            parts=[
                _response_part(part, details=part.details)
                for part in message.parts
                if self._rules.accepts_thinking or not isinstance(part, ThinkingPart)
            ],
            model_name=message.model.partition("/")[2],
            provider_name=self._rules.system,
            provider_url=self._rules.url,
        )


def _user_content(parts: Sequence[UserPart]) -> str | list[theirs.UserContent]:
    if len(parts) == 1 and isinstance(parts[0], TextPart):
        return replace_surrogates(parts[0].text)
    return [
        replace_surrogates(part.text) if isinstance(part, TextPart) else _image(part)
        for part in parts
    ]


def _image(part: ImagePart) -> theirs.BinaryContent | theirs.ImageUrl:
    url = check_image_url(part)
    if url.startswith("data:"):
        return theirs.BinaryContent.from_data_uri(url)
    return theirs.ImageUrl(url=url)


def _response_part(part: AssistantPart, *, details: JsonObject) -> theirs.ModelResponsePart:
    part_id, provider = _text(details, "id"), _text(details, "provider")
    data = cast("dict[str, object] | None", details.get("data"))
    match part:
        case TextPart():
            return theirs.TextPart(
                content=replace_surrogates(part.text),
                id=part_id,
                provider_name=provider,
                provider_details=data,
            )
        case ThinkingPart():
            return theirs.ThinkingPart(
                content=replace_surrogates(part.text),
                id=part_id,
                signature=_text(details, "signature"),
                provider_name=provider,
                provider_details=data,
            )
        case ToolCallPart():
            return theirs.ToolCallPart(
                tool_name=part.name,
                args=replace_surrogates(part.arguments),
                tool_call_id=part.call_id,
                id=part_id,
                provider_name=provider,
                provider_details=data,
            )


def _text(details: JsonObject, key: str) -> str | None:
    value = details.get(key)
    return value if isinstance(value, str) else None


def _assistant_parts(parts: Iterable[theirs.ModelResponsePart]) -> Iterable[AssistantPart]:
    for part in parts:
        match part:
            case theirs.TextPart():
                yield TextPart(text=part.content, details=_details(part))
            case theirs.ThinkingPart():
                yield ThinkingPart(
                    text=part.content, details=_details(part, signature=part.signature)
                )
            case theirs.ToolCallPart():
                yield ToolCallPart(
                    call_id=part.tool_call_id,
                    name=part.tool_name,
                    arguments=arguments_text(part.args),
                    details=_details(part),
                )
            case _:
                # Such as a file; our requests do not ask for these.
                logger.warning("a part of a model's response is ignored: %s", part.part_kind)


def _details(
    part: theirs.TextPart | theirs.ThinkingPart | theirs.ToolCallPart,
    *,
    signature: str | None = None,
) -> JsonObject:
    details: dict[str, JsonValue] = {
        "id": part.id,
        "provider": part.provider_name,
        "signature": signature,
        "data": cast("JsonValue", to_jsonable_python(part.provider_details)),
    }
    return {key: value for key, value in details.items() if value}


class StreamEvents:
    """Converts the events of one stream; tracks which tool call each part belongs to."""

    def __init__(self) -> None:
        self._calls: dict[int, tuple[str, str]] = {}

    def convert(self, event: theirs.ModelResponseStreamEvent) -> Iterator[ModelEvent]:
        match event:
            case theirs.PartStartEvent(part=theirs.TextPart(content=text)) if text:
                yield TextDelta(text=text)
            case theirs.PartStartEvent(part=theirs.ThinkingPart(content=text)) if text:
                yield ThinkingDelta(text=text)
            case theirs.PartStartEvent(part=theirs.ToolCallPart() as call):
                self._calls[event.index] = (call.tool_call_id, call.tool_name)
                yield self._call_delta(event.index, arguments_text(call.args))
            case theirs.PartDeltaEvent(delta=theirs.TextPartDelta(content_delta=text)) if text:
                yield TextDelta(text=text)
            case theirs.PartDeltaEvent(delta=theirs.ThinkingPartDelta(content_delta=text)) if text:
                yield ThinkingDelta(text=text)
            case theirs.PartDeltaEvent(delta=theirs.ToolCallPartDelta(args_delta=args)) if args:
                yield self._call_delta(event.index, arguments_text(args))
            case _:
                pass

    def _call_delta(self, index: int, arguments: str) -> ToolCallDelta:
        call_id, name = self._calls.get(index, ("", ""))
        return ToolCallDelta(call_id=call_id, name=name, arguments=arguments)


def arguments_text(arguments: object) -> str:
    """The arguments as JSON text; some providers send an object."""
    if arguments is None:
        return ""
    return arguments if isinstance(arguments, str) else encode_json(arguments).decode()
