"""What a model is told of what was said before: repaired where it was cut off; its size."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, assert_never

from nacre.messages import (
    AssistantMessage,
    ImagePart,
    Message,
    SystemMessage,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolMessage,
    UserMessage,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

NO_RESULT: Final = "[no result: the call was cut off]"

_BYTES_PER_TOKEN: Final = 4
# Providers count pictures by their size, which an address does not tell.
_TOKENS_PER_IMAGE: Final = 1_500
_TOKENS_PER_MESSAGE: Final = 4


def repair_history(messages: Iterable[Message], *, missing: str = NO_RESULT) -> list[Message]:
    """The same messages as a provider takes them: every call has just one result, right after it,
    and every answer says something."""
    sound: list[Message] = []
    open_calls: dict[str, ToolCallPart] = {}
    for message in messages:
        if isinstance(message, ToolMessage):
            # A result of no call, or a second one, is one that nobody can place.
            if open_calls.pop(message.call_id, None) is not None:
                sound.append(message)
            continue
        sound.extend(_make_missing_results(open_calls, missing))
        open_calls = {}
        if isinstance(message, AssistantMessage):
            if not _has_content(message):
                continue
            open_calls = {call.call_id: call for call in message.tool_calls}
        sound.append(message)
    sound.extend(_make_missing_results(open_calls, missing))
    return sound


def estimate_tokens(messages: Sequence[Message], *, trusts_usage: bool = True) -> int:
    """About how much a model reads of these. What a provider counted for an answer holds for all
    before it, unless they have changed since."""
    tokens = 0
    for message in reversed(messages):
        if trusts_usage and isinstance(message, AssistantMessage) and message.usage.total_tokens:
            return tokens + message.usage.total_tokens
        tokens += _estimate_message_tokens(message)
    return tokens


def _make_missing_results(calls: dict[str, ToolCallPart], text: str) -> list[ToolMessage]:
    return [
        ToolMessage(call_id=call.call_id, name=call.name, content=text, is_error=True)
        for call in calls.values()
    ]


def _has_content(message: AssistantMessage) -> bool:
    return bool(message.tool_calls) or bool(message.text.strip())


def message_size(message: Message) -> int:
    """How many bytes of text it holds, addresses of pictures included."""
    match message:
        case SystemMessage():
            return _count_bytes(message.text)
        case UserMessage() | AssistantMessage():
            return sum(map(_part_size, message.parts))
        case ToolMessage():
            return _count_bytes(message.content)
        case _:
            assert_never(message)


def _estimate_message_tokens(message: Message) -> int:
    size, image_tokens = message_size(message), 0
    if isinstance(message, UserMessage):
        images = [part for part in message.parts if isinstance(part, ImagePart)]
        size -= sum(map(_part_size, images))
        image_tokens = len(images) * _TOKENS_PER_IMAGE
    return size // _BYTES_PER_TOKEN + image_tokens + _TOKENS_PER_MESSAGE


def _part_size(part: TextPart | ImagePart | ThinkingPart | ToolCallPart) -> int:
    match part:
        case ToolCallPart():
            return _count_bytes(part.name) + _count_bytes(part.arguments)
        case ImagePart():
            return _count_bytes(part.url)
        case TextPart() | ThinkingPart():
            return _count_bytes(part.text)


def _count_bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode(errors="replace"))
