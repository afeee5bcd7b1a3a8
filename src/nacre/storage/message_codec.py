"""Converts messages to and from versioned JSON, the format in which they are stored."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, assert_never

from nacre.messages import (
    FINISH_REASONS,
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

if TYPE_CHECKING:
    from nacre.json_types import JsonObject, JsonValue
    from nacre.messages import AssistantPart, Message, UserPart

MESSAGE_VERSION: Final = 1

_MAX_SHOWN_CHARACTERS: Final = 80


class MessageFormatError(ValueError):
    """The JSON is not a message, or has an unknown version."""


def message_to_json(message: Message) -> JsonObject:
    return {"version": MESSAGE_VERSION, **_content_of(message)}


def message_from_json(value: JsonValue) -> Message:
    """Raises MessageFormatError."""
    match value:
        case {"version": version} if version != MESSAGE_VERSION:
            raise MessageFormatError(
                f"has the message version {_quote(version)}; this Nacre reads {MESSAGE_VERSION}"
            )
        case {"version": _, "role": "system", "text": str(text)}:
            return SystemMessage(text=text)
        case {"version": _, "role": "user", "parts": list(parts)}:
            return UserMessage(parts=tuple(map(_user_part_from, parts)))
        case {"version": _, "role": "assistant"}:
            return _assistant_from(value)
        case {
            "version": _,
            "role": "tool",
            "callId": str(call_id),
            "name": str(name),
            "content": str(content),
            "isError": bool(is_error),
        }:
            return ToolMessage(call_id=call_id, name=name, content=content, is_error=is_error)
        case _:
            raise MessageFormatError("is not a message")


def _usage_from(value: JsonValue) -> Usage:
    """Raises MessageFormatError."""
    match value:
        case {
            "inputTokens": int(input_tokens),
            "outputTokens": int(output_tokens),
            "cachedTokens": int(cached_tokens),
        }:
            return Usage(
                input_tokens=input_tokens, output_tokens=output_tokens, cached_tokens=cached_tokens
            )
        case _:
            raise MessageFormatError("has an invalid `usage`")


def _content_of(message: Message) -> JsonObject:
    match message:
        case SystemMessage():
            return {"role": "system", "text": message.text}
        case UserMessage():
            return {"role": "user", "parts": [_part_to_json(part) for part in message.parts]}
        case AssistantMessage():
            return {
                "role": "assistant",
                "parts": [_part_to_json(part) for part in message.parts],
                "model": message.model,
                "usage": message.usage.to_json(),
                "finishReason": message.finish_reason,
            }
        case ToolMessage():
            return {
                "role": "tool",
                "callId": message.call_id,
                "name": message.name,
                "content": message.content,
                "isError": message.is_error,
            }
        case _:
            assert_never(message)


def _part_to_json(part: UserPart | AssistantPart) -> JsonValue:
    match part:
        case ImagePart():
            return {"type": "image", "url": part.url}
        case TextPart():
            return {"type": "text", "text": part.text, **_details(part.details)}
        case ThinkingPart():
            return {"type": "thinking", "text": part.text, **_details(part.details)}
        case ToolCallPart():
            return {
                "type": "toolCall",
                "callId": part.call_id,
                "name": part.name,
                "arguments": part.arguments,
                **_details(part.details),
            }
        case _:
            assert_never(part)


def _details(details: JsonObject) -> JsonObject:
    return {"details": details} if details else {}


def _assistant_from(value: JsonObject) -> AssistantMessage:
    match value:
        case {
            "parts": list(parts),
            "model": str(model),
            "usage": usage,
            "finishReason": str(finish_reason),
        } if finish_reason in FINISH_REASONS:
            return AssistantMessage(
                parts=tuple(map(_assistant_part_from, parts)),
                model=model,
                usage=_usage_from(usage),
                finish_reason=finish_reason,
            )
        case _:
            raise MessageFormatError("is not a valid assistant message")


def _user_part_from(value: JsonValue) -> UserPart:
    match value:
        case {"type": "text", "text": str(text)}:
            return TextPart(text=text, details=_details_of(value))
        case {"type": "image", "url": str(url)}:
            return ImagePart(url=url)
        case _:
            raise _unknown_part(value)


def _assistant_part_from(value: JsonValue) -> AssistantPart:
    match value:
        case {"type": "text", "text": str(text)}:
            return TextPart(text=text, details=_details_of(value))
        case {"type": "thinking", "text": str(text)}:
            return ThinkingPart(text=text, details=_details_of(value))
        case {
            "type": "toolCall",
            "callId": str(call_id),
            "name": str(name),
            "arguments": str(arguments),
        }:
            return ToolCallPart(
                call_id=call_id, name=name, arguments=arguments, details=_details_of(value)
            )
        case _:
            raise _unknown_part(value)


def _details_of(part: JsonObject) -> JsonObject:
    details = part.get("details", {})
    if not isinstance(details, dict):
        raise MessageFormatError("has a part whose `details` are not an object")
    return details


def _unknown_part(value: JsonValue) -> MessageFormatError:
    kind = value.get("type") if isinstance(value, dict) else value
    return MessageFormatError(f"has a part of an unknown type: {_quote(kind)}")


def _quote(value: JsonValue) -> str:
    text = repr(value)
    return text if len(text) <= _MAX_SHOWN_CHARACTERS else f"{text[:_MAX_SHOWN_CHARACTERS]}…"
