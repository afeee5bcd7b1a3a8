"""The seam to model providers: a request in, a stream of events out."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from nacre.json_types import JsonObject
    from nacre.messages import AssistantMessage, Message


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolSpec:
    """A tool as the model is shown it."""

    name: str
    description: str
    parameters: JsonObject


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelSettings:
    """What a caller may ask of a model; None leaves it to the provider."""

    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    stop: tuple[str, ...] = ()
    is_parallel: bool | None = None
    """Whether the model may make several calls at once."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SentPayload:
    """A request as it leaves, seen on the wire: before it is sent, and what it weighs."""

    tool_names: tuple[str, ...]
    tool_bytes: int
    """Of the tools' definitions, as the provider gets them."""
    payload_bytes: int
    """Of the whole body."""


PayloadCheck: TypeAlias = Callable[[SentPayload], None]
"""Called with every payload just before it is sent, retries included; what it raises keeps the
request from being sent, and is raised to whoever asked the model."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelRequest:
    """What the model is asked."""

    instructions: str
    messages: Sequence[Message]
    tools: Sequence[ToolSpec] = ()
    settings: ModelSettings = field(default_factory=ModelSettings)
    check: PayloadCheck | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class TextDelta:
    """Some more words of the answer."""

    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ThinkingDelta:
    """Some more of what the model thinks."""

    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolCallDelta:
    """A call that the model is writing, and some more of its arguments."""

    call_id: str
    name: str
    arguments: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Retrying:
    """The provider refused or failed, and is asked again after a while."""

    attempt: int
    delay_seconds: float
    problem: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Answered:
    """The whole answer; the last event of a stream."""

    message: AssistantMessage
    response_model: str = ""
    """What the provider says that the model is, which may be a version of what was asked for."""


ModelEvent: TypeAlias = TextDelta | ThinkingDelta | ToolCallDelta | Retrying | Answered


class Provider(Protocol):
    """Answers requests with one model. Safe for many requests at once."""

    @property
    def model_id(self) -> str:
        """`<provider>/<model>`, as the configuration names it."""
        ...

    @property
    def context_tokens(self) -> int:
        """How much the model can read; the configuration may say, else a careful guess."""
        ...

    def stream(
        self, request: ModelRequest
    ) -> AbstractAsyncContextManager[AsyncIterator[ModelEvent]]:
        """Ask the model. Leaving the context ends the request, also in the middle.

        Iterating raises ProviderError when there is no answer, and what `request.check` raises.
        """
        ...
