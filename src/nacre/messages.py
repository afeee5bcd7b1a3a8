"""Messages of a session and tools for models, in one form for all providers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, get_args

if TYPE_CHECKING:
    from nacre.json_types import JsonObject, JsonValue

FinishReason = Literal["stop", "tool_calls", "length", "content_filter", "error"]
FINISH_REASONS: Final[tuple[FinishReason, ...]] = get_args(FinishReason)


@dataclass(frozen=True, kw_only=True, slots=True)
class TextPart:
    """Text."""

    text: str
    details: JsonObject = field(default_factory=dict[str, "JsonValue"])
    """Opaque provider data that is sent back with the part."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ImagePart:
    """An image from the user: a `data:` or `https:` URL."""

    url: str


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
