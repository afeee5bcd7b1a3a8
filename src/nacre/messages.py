"""What a person, a model and tools said in a session; the same for every provider."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, get_args

if TYPE_CHECKING:
    from nacre.json_types import JsonObject, JsonValue

FinishReason = Literal["stop", "tool_calls", "length", "content_filter", "error"]
FINISH_REASONS: Final[tuple[FinishReason, ...]] = get_args(FinishReason)


@dataclass(frozen=True, kw_only=True, slots=True)
class TextPart:
    """Words."""

    text: str
    details: JsonObject = field(default_factory=dict[str, "JsonValue"])
    """What a provider wants back with it, unread by us; so in every part."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ImagePart:
    """A picture that a person sent: a `data:` or `https:` address."""

    url: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ThinkingPart:
    """What a model thought before it spoke; sent back to the provider that it came from."""

    text: str
    details: JsonObject = field(default_factory=dict[str, "JsonValue"])


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolCallPart:
    """A call that a model made."""

    call_id: str
    name: str
    arguments: str
    """JSON text as the model wrote it, perhaps none at all."""
    details: JsonObject = field(default_factory=dict[str, "JsonValue"])


@dataclass(frozen=True, kw_only=True, slots=True)
class Usage:
    """Tokens, as the provider counts them."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    """How many of the input tokens the provider took from its cache."""

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
    """What the model is told besides the agent's own instructions, such as a summary."""

    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class UserMessage:
    """What a person said."""

    parts: tuple[UserPart, ...]

    @property
    def text(self) -> str:
        return "\n".join(part.text for part in self.parts if isinstance(part, TextPart))


@dataclass(frozen=True, kw_only=True, slots=True)
class AssistantMessage:
    """One answer of a model: words, calls, or both."""

    parts: tuple[AssistantPart, ...]
    model: str = ""
    usage: Usage = field(default_factory=Usage)
    finish_reason: FinishReason = "stop"

    @property
    def text(self) -> str:
        return "".join(part.text for part in self.parts if isinstance(part, TextPart))

    @property
    def tool_calls(self) -> tuple[ToolCallPart, ...]:
        return tuple(part for part in self.parts if isinstance(part, ToolCallPart))


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolMessage:
    """What came of one call."""

    call_id: str
    name: str
    content: str
    """As the model reads it: text, or JSON as text."""
    is_error: bool = False


Message: TypeAlias = SystemMessage | UserMessage | AssistantMessage | ToolMessage


def user_message(text: str) -> UserMessage:
    return UserMessage(parts=(TextPart(text=text),))
