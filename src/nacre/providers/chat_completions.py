"""Models with OpenAI's Chat Completions API, such as those of vLLM, Ollama and OpenRouter.

Requests are built and streams are read here, without an SDK, which would take most of the CPU time
of a turn. `MessageRules`, `check_image_url` and `make_answer` serve the other APIs too.
"""

from __future__ import annotations

import binascii
import logging
from dataclasses import dataclass, field, replace
from itertools import count
from typing import TYPE_CHECKING, Final, Literal
from uuid import uuid4

from nacre.errors import ProviderError
from nacre.json_types import (
    NotJsonError,
    decode_json,
    encode_json,
    get_objects,
    get_text,
    replace_surrogates,
)
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
from nacre.providers.http_client import Exchange, model_http_client, read_event_data
from nacre.providers.provider_errors import ProviderErrors
from nacre.providers.provider_secrets import ProviderSecrets, get_api_key

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence

    import httpx2

    from nacre.config import ProviderConfig
    from nacre.json_types import JsonObject, JsonValue
    from nacre.messages import AssistantPart, FinishReason, ImagePart, Message, ToolSpec
    from nacre.providers.base import ModelEvent, ModelRequest, ModelSettings

logger = logging.getLogger(__name__)

OPENAI_URL: Final = "https://api.openai.com/v1"
_FIRST_ERROR_STATUS: Final = 400
# The name of this API in the details of parts, which sessions store.
_SYSTEM: Final = "openai"
# Members with the thinking of a model; a server gets it back in the one that it used.
_THINKING_FIELDS: Final = ("reasoning", "reasoning_content")
# Some models write their thinking into the text, between these two tokens.
_TAG_FIELD: Final = "content"
_THINK_TAG: Final = "<think>"
_THINK_END_TAG: Final = "</think>"
_END: Final = b"[DONE]"
_FINISH_REASONS: Final[dict[str, FinishReason]] = {
    "stop": "stop",
    "length": "length",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "content_filter": "content_filter",
    "error": "error",
}
# Models that reason by default refuse `temperature` and `top_p`. The first match decides.
_SAMPLING_BY_PREFIX: Final = {
    "gpt-5-chat": True,
    "gpt-5.1-c": False,
    "gpt-5.1": True,
    "gpt-5.2-chat": False,
    "gpt-5.2-pro": False,
    "gpt-5.2": True,
    "gpt-5.3-chat": False,
    "gpt-5.3": True,
    "gpt-5.4-pro": False,
    "gpt-5.4": True,
    "gpt-5": False,
    "gpt-6": False,
    "o1": False,
    "o3": False,
    "o4": False,
}

_MAX_SHOWN_CHARACTERS: Final = 60
_HTTPS: Final = "https:"
# A provider may report any number; larger ones do not fit into the database.
_MAX_TOKENS: Final = 10**12


class ChatCompletionsBackend:
    """The models of one provider, with a shared HTTP client."""

    def __init__(self, config: ProviderConfig) -> None:
        self._config = config
        self._secrets = ProviderSecrets(config)
        self._client = model_http_client(
            timeout_seconds=config.timeout_seconds, secrets=self._secrets
        )
        self._client.headers.update(
            {"Authorization": f"Bearer {get_api_key(config)}", "Content-Type": "application/json"}
        )
        self._client.headers.update(config.headers)

    def model(self, name: str, *, model_id: str) -> ChatCompletionsModel:
        known = self._config.models.get(name)
        return ChatCompletionsModel(
            self._client,
            url=f"{(self._config.base_url or OPENAI_URL).rstrip('/')}/chat/completions",
            name=name,
            rules=MessageRules(
                model_id=model_id,
                takes_images=known.takes_images if known else True,
                # A tool message of this API is text.
                takes_images_in_results=False,
            ),
            max_output_tokens=known.max_output_tokens if known else None,
            errors=ProviderErrors(model_id, self._config, self._secrets),
        )

    async def aclose(self) -> None:
        await self._client.aclose()


class ChatCompletionsModel:
    """One model; `attempt` sends a request once."""

    def __init__(
        self,
        client: httpx2.AsyncClient,
        *,
        url: str,
        name: str,
        rules: MessageRules,
        max_output_tokens: int | None,
        errors: ProviderErrors,
    ) -> None:
        self._client = client
        self._url = url
        self._name = name
        self._rules = rules
        self._max_output_tokens = max_output_tokens
        self._errors = errors

    async def attempt(self, request: ModelRequest, *, number: int) -> AsyncGenerator[ModelEvent]:
        """Send the request once.

        Raises ProviderError, and PayloadRefusedError with the exception of `request.check`.
        """
        exchange = Exchange(request.check, attempt=number)
        response: httpx2.Response | None = None
        try:
            body = encode_json(self._make_body(request))
            outgoing = self._client.build_request("POST", self._url, content=body)
            with exchange.activate():
                response = await self._client.send(outgoing, stream=True)
            if response.status_code >= _FIRST_ERROR_STATUS:
                raise self._errors.from_response(response, await response.aread())
            answer = _StreamedAnswer()
            async for data in read_event_data(response):
                if data.startswith(_END):
                    break
                for event in self._read_chunk(answer, data):
                    yield event
            if not answer.is_complete:
                raise self._errors.incomplete()
            yield Answered(message=answer.finish(self._rules), response_model=answer.model)
        except Exception as error:
            if exchange.refusal is not None:
                raise PayloadRefusedError(exchange.refusal) from None
            # Not `from error`, whose traceback would contain the whole response of the provider.
            raise self._errors.convert(error) from None
        finally:
            if response is not None:
                await response.aclose()

    def _read_chunk(self, answer: _StreamedAnswer, data: bytes) -> Iterator[ModelEvent]:
        chunk = decode_json(data)
        if not isinstance(chunk, dict):
            raise NotJsonError("$", "is not an object")
        if chunk.get("error"):
            raise self._errors.from_stream(chunk["error"])
        return answer.read(chunk)

    def _make_body(self, request: ModelRequest) -> JsonObject:
        messages = self._make_messages(request.messages)
        if request.instructions:
            place = next(
                (at for at, each in enumerate(messages) if each["role"] != "system"), len(messages)
            )
            messages.insert(place, {"role": "system", "content": request.instructions})
        body: dict[str, JsonValue] = {
            "model": self._name,
            "messages": [*messages],
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if request.tools:
            body["tools"] = [_make_tool(tool) for tool in request.tools]
            body["tool_choice"] = "auto"
        self._add_settings(body, request.settings)
        return body

    def _add_settings(self, body: JsonObject, settings: ModelSettings) -> None:
        max_tokens = settings.max_tokens or self._max_output_tokens
        if max_tokens is not None:
            body["max_completion_tokens"] = max_tokens
        sampling = {"temperature": settings.temperature, "top_p": settings.top_p}
        given = {key: value for key, value in sampling.items() if value is not None}
        if given and not _takes_sampling(self._name):
            logger.warning("%s takes no %s; left out", self._rules.model_id, " and ".join(given))
        else:
            body.update(given)
        if settings.stop:
            body["stop"] = [*settings.stop]
        if settings.is_parallel is not None and "tools" in body:
            body["parallel_tool_calls"] = settings.is_parallel

    def _make_messages(self, messages: Sequence[Message]) -> list[JsonObject]:
        made: list[JsonObject] = []
        # After all results of one answer, which have to follow each other.
        images: list[JsonObject] = []
        for message in messages:
            match message:
                case AssistantMessage():
                    made.extend(images)
                    images = []
                    made.extend(self._make_assistant_message(message))
                case SystemMessage():
                    made.append({"role": "system", "content": message.text})
                case UserMessage():
                    made.append(_make_user_message(message))
                case ToolMessage():
                    made.append(
                        {
                            "role": "tool",
                            "tool_call_id": message.call_id,
                            "content": self._rules.result_text(message),
                        }
                    )
                    images.extend(self._make_image_message(message))
        made.extend(images)
        _add_missing_thinking(made)
        return made

    def _make_image_message(self, message: ToolMessage) -> Iterator[JsonObject]:
        heading, images = self._rules.images_after(message)
        if images:
            content = [_make_text(heading), *map(_make_image, images)]
            yield {"role": "user", "content": [*content]}

    def _make_assistant_message(self, message: AssistantMessage) -> Iterator[JsonObject]:
        """The message; nothing if it contained only the thinking of another provider."""
        is_own = self._rules.is_own(message)
        texts: list[str] = []
        thinking: dict[str, list[str]] = {}
        calls: list[JsonValue] = []
        for part in message.parts:
            match part:
                case TextPart():
                    texts.append(part.text)
                case ThinkingPart() if is_own:
                    name = get_text(part.details, "id")
                    if name in _THINKING_FIELDS and part.details.get("provider") == _SYSTEM:
                        thinking.setdefault(name, []).append(part.text)
                    else:
                        texts.append(f"{_THINK_TAG}\n{part.text}\n{_THINK_END_TAG}")
                case ThinkingPart():
                    pass
                case ToolCallPart():
                    calls.append(_make_call(part, is_own=is_own))
        if not texts and not calls:
            return
        made: JsonObject = {"role": "assistant"}
        made.update({name: "\n\n".join(parts) for name, parts in thinking.items()})
        made["content"] = "\n\n".join(texts) if texts else None
        if calls:
            made["tool_calls"] = calls
        yield made


def _takes_sampling(model: str) -> bool:
    prefixes = _SAMPLING_BY_PREFIX.items()
    return next((takes for prefix, takes in prefixes if model.startswith(prefix)), True)


def _make_tool(tool: ToolSpec) -> JsonObject:
    function: JsonObject = {
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.parameters,
    }
    return {"type": "function", "function": function}


def _make_text(text: str) -> JsonObject:
    return {"type": "text", "text": text}


def _make_image(image: ImagePart) -> JsonObject:
    return {"type": "image_url", "image_url": {"url": check_image_url(image)}}


def _make_user_message(message: UserMessage) -> JsonObject:
    parts = message.parts
    if len(parts) == 1 and isinstance(parts[0], TextPart):
        return {"role": "user", "content": parts[0].text}
    content = [
        _make_text(part.text) if isinstance(part, TextPart) else _make_image(part) for part in parts
    ]
    return {"role": "user", "content": [*content]}


def _make_call(part: ToolCallPart, *, is_own: bool) -> JsonObject:
    call: JsonObject = {
        "id": part.call_id,
        "type": "function",
        "function": {"name": part.name, "arguments": _make_arguments(part.arguments)},
    }
    data = part.details.get("data")
    # Gemini signs its calls, and refuses them later without the signature.
    if is_own and isinstance(data, dict) and part.details.get("provider") == _SYSTEM:
        call.update({key: data[key] for key in ("extra_content",) if key in data})
    return call


def _make_arguments(text: str) -> str:
    """The arguments as a JSON object, which servers require. The model may write any text."""
    text = replace_surrogates(text)
    if not text:
        return "{}"
    try:
        arguments = decode_json(text.encode())
    except NotJsonError:
        arguments = None
    if not isinstance(arguments, dict):
        arguments = {"INVALID_JSON": text}
    # Compact, so that the same call always has the same bytes, as a prompt cache requires.
    return encode_json(arguments).decode()


def _add_missing_thinking(messages: list[JsonObject]) -> None:
    """Add an empty thinking member to the calls since the last prompt, if other answers have one.

    DeepSeek refuses a call without it, such as the call of another model in the same turn.
    """
    answers = [each for each in messages if each["role"] == "assistant"]
    used = {name for each in answers for name in _THINKING_FIELDS if name in each}
    if len(used) != 1:
        return
    (name,) = used
    for message in reversed(messages):
        if message["role"] == "user":
            return
        if message["role"] == "assistant" and "tool_calls" in message:
            message.setdefault(name, "")


@dataclass(kw_only=True, slots=True)
class _OpenPart:
    """A part of the answer that is still being streamed."""

    kind: Literal["text", "thinking", "call"]
    member: str = ""
    """The member that the thinking was in."""
    pieces: list[str] = field(default_factory=list[str])
    call_id: str = ""
    name: str = ""
    index: JsonValue = None
    extra: JsonValue = None

    @property
    def text(self) -> str:
        return "".join(self.pieces)


class _StreamedAnswer:
    """An answer that is read chunk by chunk."""

    def __init__(self) -> None:
        self.model = ""
        self.is_complete = False
        self._parts: list[_OpenPart] = []
        self._reason: FinishReason = "stop"
        self._is_refusal = False
        self._is_in_tag = False
        self._usage = Usage()

    def read(self, chunk: JsonObject) -> Iterator[ModelEvent]:
        """The events of one chunk."""
        self.model = get_text(chunk, "model") or self.model
        usage = chunk.get("usage")
        if isinstance(usage, dict):
            self._usage = _read_usage(usage)
        # Empty in the last chunk, which has the usage; null in the chunks of some servers.
        choice = next(iter(get_objects(chunk, "choices")), None)
        if choice is None:
            return
        reason = get_text(choice, "finish_reason")
        if reason:
            self.is_complete = True
            self._reason = _FINISH_REASONS.get(reason, "stop")
        delta = choice.get("delta")
        if not isinstance(delta, dict):
            return
        if get_text(delta, "refusal"):
            self._is_refusal = True
            return
        yield from self._read_thinking(delta)
        if text := _join_text(delta.get("content")):
            yield from self._read_text(text)
        for call in get_objects(delta, "tool_calls"):
            yield from self._read_call(call)

    def finish(self, rules: MessageRules) -> AssistantMessage:
        return make_answer(
            parts=self._finish_parts(),
            model_id=rules.model_id,
            usage=self._usage,
            reason="content_filter" if self._is_refusal else self._reason,
        )

    def _finish_parts(self) -> Iterator[AssistantPart]:
        for part in self._parts:
            match part.kind:
                case "text":
                    yield TextPart(text=part.text)
                case "thinking":
                    details: JsonObject = {"id": part.member, "provider": _SYSTEM}
                    yield ThinkingPart(text=part.text, details=details)
                case "call" if part.name:
                    details = {}
                    if part.extra:
                        details = {"provider": _SYSTEM, "data": {"extra_content": part.extra}}
                    yield ToolCallPart(
                        call_id=part.call_id,
                        name=part.name,
                        arguments=part.text,
                        details=details,
                    )
                case "call":
                    logger.warning("a call without a name in a model's response is ignored")

    def _read_thinking(self, delta: JsonObject) -> Iterator[ModelEvent]:
        for name in _THINKING_FIELDS:
            if text := get_text(delta, name):
                self._append("thinking", text, member=name)
                yield ThinkingDelta(text=text)
                return

    def _read_text(self, text: str) -> Iterator[ModelEvent]:
        if self._is_in_tag:
            if text == _THINK_END_TAG:
                self._is_in_tag = False
            else:
                self._append("thinking", text, member=_TAG_FIELD)
                yield ThinkingDelta(text=text)
        elif text == _THINK_TAG:
            self._is_in_tag = True
        else:
            self._append("text", text)
            yield TextDelta(text=text)

    def _append(self, kind: Literal["text", "thinking"], text: str, *, member: str = "") -> None:
        last = self._parts[-1] if self._parts else None
        if last is None or last.kind != kind or last.member != member:
            last = _OpenPart(kind=kind, member=member)
            self._parts.append(last)
        last.pieces.append(text)

    def _read_call(self, delta: JsonObject) -> Iterator[ModelEvent]:
        function = delta.get("function")
        function = function if isinstance(function, dict) else {}
        name, call_id = get_text(function, "name"), get_text(delta, "id")
        call = self._find_call(delta.get("index"), name, call_id)
        had_name = bool(call.name)
        call.call_id = call.call_id or call_id
        # Some servers repeat the whole name.
        if name != call.name:
            call.name += name
        call.extra = delta.get("extra_content") or call.extra
        arguments = function.get("arguments")
        # Some servers send an object.
        text = arguments if isinstance(arguments, str) else encode_json(arguments).decode()
        if arguments is not None and text:
            call.pieces.append(text)
        if call.name and not call.call_id:
            call.call_id = f"call_{uuid4().hex}"
        if call.name and not had_name:
            yield ToolCallDelta(call_id=call.call_id, name=call.name, arguments=call.text)
        elif call.name and arguments is not None and text:
            yield ToolCallDelta(call_id=call.call_id, name=call.name, arguments=text)

    def _find_call(self, index: JsonValue, name: str, call_id: str) -> _OpenPart:
        """The call that a delta continues, or a new one.

        Some servers send no index, or the same index for each call.
        """
        for part in reversed(self._parts):
            if part.kind != "call" or part.index != index:
                continue
            is_next = bool(
                name and (index is None or (call_id and part.call_id not in ("", call_id)))
            )
            if not is_next:
                return part
            break
        part = _OpenPart(kind="call", index=index)
        self._parts.append(part)
        return part


def _join_text(content: JsonValue) -> str:
    """The text of a delta; some servers send a list of parts."""
    if isinstance(content, list):
        return "".join(
            part if isinstance(part, str) else get_text(part, "text")
            for part in content
            if isinstance(part, str) or (isinstance(part, dict) and part.get("type") == "text")
        )
    return content if isinstance(content, str) else ""


def _read_usage(usage: JsonObject) -> Usage:
    details = usage.get("prompt_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, dict) else None
    return Usage(
        input_tokens=_read_count(usage.get("prompt_tokens")),
        output_tokens=_read_count(usage.get("completion_tokens")),
        # The second is DeepSeek's.
        cached_tokens=_read_count(cached or usage.get("prompt_cache_hit_tokens")),
    )


def _read_count(value: JsonValue) -> int:
    return value if isinstance(value, int) else 0


@dataclass(frozen=True, kw_only=True, slots=True)
class MessageRules:
    """The differences between models."""

    model_id: str
    takes_images: bool = True
    """Whether the model takes images; if not, those of tool results are left out."""
    takes_images_in_results: bool = True
    """Whether a tool result can have images; if not, they follow as a message of the user."""

    def is_own(self, message: AssistantMessage) -> bool:
        """Whether the provider of this model wrote the message. Details and thinking are valid
        only for the provider that created them."""
        return message.model.partition("/")[0] == self.model_id.partition("/")[0]

    def result_text(self, message: ToolMessage) -> str:
        if not message.images or self.takes_images:
            return message.content
        count = len(message.images)
        return f"{message.content}\n[{count} images left out: this model takes only text]"

    def images_after(self, message: ToolMessage) -> tuple[str, Sequence[ImagePart]]:
        """The images of a result with a heading, if they cannot be a part of it."""
        if not self.takes_images or self.takes_images_in_results:
            return "", ()
        return f"Images in the result of {message.name} ({message.call_id}):", message.images


def check_image_url(image: ImagePart) -> str:
    """The URL of the image; raises ProviderError unless it is `https:`, or `data:` with base64."""
    url = image.url
    if url[: len(_HTTPS)].lower() == _HTTPS:
        return url
    media_type, mark, data = url.partition(";base64,")
    try:
        if mark and media_type.startswith("data:"):
            binascii.a2b_base64(data)
            return url
    except ValueError:
        pass
    raise ProviderError(
        f"an image has the URL {url[:_MAX_SHOWN_CHARACTERS]!r}; "
        "allowed: `https:` URLs, and `data:` URLs with a media type and base64"
    )


def make_answer(
    *, parts: Iterable[AssistantPart], model_id: str, usage: Usage, reason: FinishReason
) -> AssistantMessage:
    """The message of a complete answer."""
    unique = tuple(_make_call_ids_unique(parts))
    has_calls = any(isinstance(part, ToolCallPart) for part in unique)
    return AssistantMessage(
        parts=unique,
        model=model_id,
        usage=Usage(
            input_tokens=_clamp_tokens(usage.input_tokens),
            output_tokens=_clamp_tokens(usage.output_tokens),
            cached_tokens=_clamp_tokens(usage.cached_tokens),
        ),
        # Some providers report `stop` although there are tool calls.
        finish_reason="tool_calls" if has_calls and reason == "stop" else reason,
    )


def _make_call_ids_unique(parts: Iterable[AssistantPart]) -> Iterable[AssistantPart]:
    """Give each call its own id: results are matched to calls by id."""
    used: set[str] = set()
    for part in parts:
        if not isinstance(part, ToolCallPart):
            yield part
            continue
        call_id = part.call_id or "call"
        for number in count(2):
            if call_id not in used:
                break
            call_id = f"{part.call_id or 'call'}-{number}"
        used.add(call_id)
        yield part if call_id == part.call_id else replace(part, call_id=call_id)


def _clamp_tokens(reported: int) -> int:
    return min(max(reported, 0), _MAX_TOKENS)
