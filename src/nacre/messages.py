"""Messages of a session and tools for models, in one form for all providers.

Messages are stored as JSON with a version.
"""

from __future__ import annotations

import binascii
from dataclasses import field
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, assert_never, get_args

from nacre.lazy_dataclasses import dataclass

if TYPE_CHECKING:
    from nacre.json_types import JsonObject, JsonValue

FinishReason = Literal["stop", "tool_calls", "length", "content_filter", "error"]
FINISH_REASONS: Final[tuple[FinishReason, ...]] = get_args(FinishReason)
MESSAGE_VERSION: Final = 1
_MAX_SHOWN_CHARACTERS: Final = 80


@dataclass(frozen=True, kw_only=True, slots=True)
class TextPart:
    """Text."""

    text: str
    details: JsonObject = field(default_factory=dict[str, "JsonValue"])
    """Opaque provider data that is sent back with the part."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ImagePart:
    """An image: a `data:` URL, or from a user also an `https:` URL."""

    url: str = field(repr=False)


# Providers refuse larger images, and a request with one of them fails.
MAX_IMAGE_BYTES: Final = 5_000_000
MAX_IMAGES: Final = 20
"""How many images one result of a tool or program may have."""
MAX_MEDIA_BYTES: Final = 16 * 1024 * 1024
"""The size of one file of a reply."""
_WEBP: Final = (b"RIFF",)
_IMAGE_STARTS: Final = {
    "image/png": (b"\x89PNG\r\n\x1a\n",),
    "image/jpeg": (b"\xff\xd8\xff",),
    "image/gif": (b"GIF87a", b"GIF89a"),
    "image/webp": _WEBP,
}


class InvalidImage(ValueError):
    """An image that no model gets. The message says why."""


def check_image(media_type: str, data: str) -> ImagePart:
    """Return the image of a tool or program with this base64 text. Raises InvalidImage.

    Tools and programs are not trusted, and a provider refuses the whole request for one image that
    it cannot read.
    """
    starts = _IMAGE_STARTS.get(media_type)
    if starts is None:
        # Cut after the escapes: a program can write hundreds of such notes.
        shown = ascii(media_type)[:_MAX_SHOWN_CHARACTERS]
        raise InvalidImage(f"its type is {shown}; known: {', '.join(_IMAGE_STARTS)}")
    try:
        content = binascii.a2b_base64(data.encode(), strict_mode=True)
    except ValueError:
        raise InvalidImage("its data is not base64") from None
    if len(content) > MAX_IMAGE_BYTES:
        raise InvalidImage(f"it has {len(content)} bytes; the limit is {MAX_IMAGE_BYTES}")
    if not content.startswith(starts) or (starts == _WEBP and content[8:12] != b"WEBP"):
        raise InvalidImage(f"its data is not {media_type}")
    return ImagePart(url=f"data:{media_type};base64,{data}")


@dataclass(frozen=True, kw_only=True, slots=True)
class ThinkingPart:
    """Reasoning of a model. Sent back to the provider that it came from."""

    text: str
    details: JsonObject = field(default_factory=dict[str, "JsonValue"])


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolCallPart:
    """A tool call of a model."""

    call_id: str
    name: str
    arguments: str
    """The model's text, which may not be valid JSON."""
    details: JsonObject = field(default_factory=dict[str, "JsonValue"])


@dataclass(frozen=True, kw_only=True, slots=True)
class Usage:
    """Token counts from the provider."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    """Input tokens that the provider read from its cache."""

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cached_tokens=self.cached_tokens + other.cached_tokens,
        )

    @property
    def total_tokens(self) -> int:
        return self.input_tokens + self.output_tokens

    def to_json(self) -> JsonObject:
        return {
            "inputTokens": self.input_tokens,
            "outputTokens": self.output_tokens,
            "cachedTokens": self.cached_tokens,
        }


UserPart: TypeAlias = TextPart | ImagePart
AssistantPart: TypeAlias = TextPart | ThinkingPart | ToolCallPart


@dataclass(frozen=True, kw_only=True, slots=True)
class SystemMessage:
    """Text for the model besides the agent's instructions, such as a summary."""

    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class UserMessage:
    """A message from the user."""

    parts: tuple[UserPart, ...]
    identity: str = field(default="", compare=False)
    """Its name in the thread of another runtime; a session stores each such message once."""

    @property
    def text(self) -> str:
        return "\n".join(part.text for part in self.parts if isinstance(part, TextPart))


@dataclass(frozen=True, kw_only=True, slots=True)
class AssistantMessage:
    """One response of a model: text, tool calls or both."""

    parts: tuple[AssistantPart, ...]
    model: str = ""
    usage: Usage = field(default_factory=Usage)
    finish_reason: FinishReason = "stop"
    identity: str = field(default="", compare=False)
    """As that of a user message."""

    @property
    def text(self) -> str:
        return "".join(part.text for part in self.parts if isinstance(part, TextPart))

    @property
    def tool_calls(self) -> tuple[ToolCallPart, ...]:
        return tuple(part for part in self.parts if isinstance(part, ToolCallPart))


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolMessage:
    """The result of one tool call."""

    call_id: str
    name: str
    content: str
    """The text for the model; JSON values are encoded."""
    is_error: bool = False
    images: tuple[ImagePart, ...] = ()
    """Images that belong to the result; the text has a marker for each."""


Message: TypeAlias = SystemMessage | UserMessage | AssistantMessage | ToolMessage


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolSpec:
    """A tool as the model sees it."""

    name: str
    description: str
    parameters: JsonObject


@dataclass(frozen=True, kw_only=True, slots=True)
class SentPayload:
    """The tool names and the size of a request to a provider, read from its final body."""

    tool_names: tuple[str, ...]
    tool_bytes: int
    """The size of the tool definitions in the provider's format."""
    payload_bytes: int
    """The size of the whole body."""


def user_message(text: str) -> UserMessage:
    return UserMessage(parts=(TextPart(text=text),))


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
            return ToolMessage(
                call_id=call_id,
                name=name,
                content=content,
                is_error=is_error,
                images=_images_from(value),
            )
        case _:
            raise MessageFormatError("is not a message")


def _images_from(message: JsonObject) -> tuple[ImagePart, ...]:
    parts = message.get("images", [])
    images = tuple(map(_user_part_from, parts)) if isinstance(parts, list) else ()
    return tuple(image for image in images if isinstance(image, ImagePart))


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
                **({"images": list(map(_part_to_json, message.images))} if message.images else {}),
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
