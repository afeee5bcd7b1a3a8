"""Rules for messages that do not depend on the wire format: images, thinking, ids of calls."""

from __future__ import annotations

import binascii
from dataclasses import dataclass, replace
from itertools import count
from typing import TYPE_CHECKING, Final

from nacre.errors import ProviderError
from nacre.messages import AssistantMessage, ToolCallPart, Usage

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from nacre.messages import AssistantPart, FinishReason, ImagePart, ToolMessage

_MAX_SHOWN_CHARACTERS: Final = 60
_HTTPS: Final = "https:"
# A provider may report any number; larger ones do not fit into the database.
_MAX_TOKENS: Final = 10**12


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
