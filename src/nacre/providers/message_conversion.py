"""Converts messages to pydantic-ai's types, and its responses and stream events to ours."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, cast

from pydantic_ai import messages as theirs
from pydantic_core import to_jsonable_python

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
from nacre.providers.base import TextDelta, ThinkingDelta, ToolCallDelta
from nacre.providers.message_rules import MessageRules, check_image_url, make_answer

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from nacre.json_types import JsonObject, JsonValue
    from nacre.messages import AssistantPart, FinishReason, ImagePart, Message, UserPart
    from nacre.providers.base import ModelEvent

logger = logging.getLogger(__name__)

_FINISH_REASONS: Final[dict[str, FinishReason]] = {
    "stop": "stop",
    "length": "length",
    "content_filter": "content_filter",
    "tool_call": "tool_calls",
    "error": "error",
}


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
