"""Converts messages to pydantic-ai's types, and its responses and stream events to ours."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from itertools import count
from typing import TYPE_CHECKING, Final, cast
from urllib.parse import urlsplit

from pydantic_ai import messages as theirs
from pydantic_core import to_jsonable_python

from nacre.errors import ProviderError
from nacre.json_types import encode_json
from nacre.messages import (
    AssistantMessage,
    ImagePart,
    SystemMessage,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolMessage,
    Usage,
    UserMessage,
)
from nacre.providers.base import TextDelta, ThinkingDelta, ToolCallDelta

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from nacre.json_types import JsonObject, JsonValue
    from nacre.messages import AssistantPart, FinishReason, Message, UserPart
    from nacre.providers.base import ModelEvent

logger = logging.getLogger(__name__)

_FINISH_REASONS: Final[dict[str, FinishReason]] = {
    "stop": "stop",
    "length": "length",
    "content_filter": "content_filter",
    "tool_call": "tool_calls",
    "error": "error",
}
_MAX_SHOWN_CHARACTERS: Final = 60
# A provider may report any number; larger ones do not fit into the database.
_MAX_TOKENS: Final = 10**12


@dataclass(frozen=True, kw_only=True, slots=True)
class ConversionRules:
    """The differences between models."""

    model_id: str
    system: str
    """The name of the provider in pydantic-ai."""
    url: str
    marks_errors: bool
    """Whether the wire format can mark a tool result as an error."""
    accepts_thinking: bool
    """Whether thinking parts can be sent back; if not, they are left out."""
    takes_images: bool = True
    """Whether the model takes images; if not, those of tool results are left out."""
    takes_images_in_results: bool = True
    """Whether a tool result can have images; if not, they follow as a message of the user."""

    @property
    def provider(self) -> str:
        return self.model_id.partition("/")[0]


class MessageConversion:
    """Converts the messages of one model, in both directions."""

    def __init__(self, rules: ConversionRules) -> None:
        self._rules = rules

    def to_theirs(self, messages: Sequence[Message]) -> list[theirs.ModelMessage]:
        """Convert messages; consecutive messages that are not the model's become one request."""
        converted: list[theirs.ModelMessage] = []
        request_parts: list[theirs.ModelRequestPart] = []
        # After all results of one answer, which have to follow each other.
        image_parts: list[theirs.ModelRequestPart] = []
        for message in messages:
            if isinstance(message, AssistantMessage):
                if request_parts:
                    converted.append(theirs.ModelRequest(parts=[*request_parts, *image_parts]))
                    request_parts, image_parts = [], []
                response = self._to_response(message)
                # Empty if it contained only the thinking parts of another provider.
                if response.parts:
                    converted.append(response)
            else:
                request_parts.append(self._to_request_part(message))
                if isinstance(message, ToolMessage):
                    image_parts.extend(self._images_after(message))
        if request_parts:
            converted.append(theirs.ModelRequest(parts=[*request_parts, *image_parts]))
        return converted

    def from_theirs(self, response: theirs.ModelResponse) -> AssistantMessage:
        parts = tuple(_make_call_ids_unique(_assistant_parts(response.parts)))
        reason = _FINISH_REASONS.get(response.finish_reason or "stop", "stop")
        has_calls = any(isinstance(part, ToolCallPart) for part in parts)
        return AssistantMessage(
            parts=parts,
            model=self._rules.model_id,
            usage=Usage(
                input_tokens=_clamp_tokens(response.usage.input_tokens),
                output_tokens=_clamp_tokens(response.usage.output_tokens),
                cached_tokens=_clamp_tokens(response.usage.cache_read_tokens),
            ),
            # Some providers report `stop` although there are tool calls.
            finish_reason="tool_calls" if has_calls and reason == "stop" else reason,
        )

    def _to_request_part(
        self, message: SystemMessage | UserMessage | ToolMessage
    ) -> theirs.ModelRequestPart:
        match message:
            case SystemMessage():
                return theirs.SystemPromptPart(content=_replace_surrogates(message.text))
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
        text = _replace_surrogates(message.content)
        if not message.images:
            return text
        if not self._rules.takes_images:
            return f"{text}\n[{len(message.images)} images left out: this model takes only text]"
        if not self._rules.takes_images_in_results:
            return text
        return [text, *map(_image, message.images)]

    def _images_after(self, message: ToolMessage) -> list[theirs.ModelRequestPart]:
        """The images of a result, if they cannot be a part of it."""
        rules = self._rules
        if not message.images or not rules.takes_images or rules.takes_images_in_results:
            return []
        heading = f"Images in the result of {message.name} ({message.call_id}):"
        return [theirs.UserPromptPart(content=[heading, *map(_image, message.images)])]

    def _to_response(self, message: AssistantMessage) -> theirs.ModelResponse:
        # Details and thinking parts are valid only for the provider that created them.
        provider, _, model = message.model.partition("/")
        if provider != self._rules.provider:
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
            model_name=model,
            provider_name=self._rules.system,
            provider_url=self._rules.url,
        )


def _user_content(parts: Sequence[UserPart]) -> str | list[theirs.UserContent]:
    if len(parts) == 1 and isinstance(parts[0], TextPart):
        return _replace_surrogates(parts[0].text)
    return [
        _replace_surrogates(part.text) if isinstance(part, TextPart) else _image(part)
        for part in parts
    ]


def _replace_surrogates(text: str) -> str:
    """Replace unpaired surrogates: they cannot be encoded, so every later request would fail."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def _image(part: ImagePart) -> theirs.BinaryContent | theirs.ImageUrl:
    scheme = urlsplit(part.url[:_MAX_SHOWN_CHARACTERS]).scheme
    if scheme == "https":
        return theirs.ImageUrl(url=part.url)
    try:
        if scheme == "data":
            return theirs.BinaryContent.from_data_uri(part.url)
    except ValueError:
        pass
    raise ProviderError(
        f"an image has the URL {part.url[:_MAX_SHOWN_CHARACTERS]!r}; "
        "allowed: `https:` URLs, and `data:` URLs with a media type and base64"
    )


def _response_part(part: AssistantPart, *, details: JsonObject) -> theirs.ModelResponsePart:
    part_id, provider = _text(details, "id"), _text(details, "provider")
    data = cast("dict[str, object] | None", details.get("data"))
    match part:
        case TextPart():
            return theirs.TextPart(
                content=_replace_surrogates(part.text),
                id=part_id,
                provider_name=provider,
                provider_details=data,
            )
        case ThinkingPart():
            return theirs.ThinkingPart(
                content=_replace_surrogates(part.text),
                id=part_id,
                signature=_text(details, "signature"),
                provider_name=provider,
                provider_details=data,
            )
        case ToolCallPart():
            return theirs.ToolCallPart(
                tool_name=part.name,
                args=_replace_surrogates(part.arguments),
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
        yield replace(part, call_id=call_id)


def _clamp_tokens(reported: int) -> int:
    return min(max(reported, 0), _MAX_TOKENS)


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
