"""The provider protocol: a request to a model, and the events of its response."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, TypeAlias

from nacre.messages import SentPayload

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from nacre.messages import AssistantMessage, Message, ToolSpec


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelSettings:
    """Settings of a request; None means the default of the provider."""

    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    stop: tuple[str, ...] = ()
    is_parallel: bool | None = None
    """Whether the model may make several calls at once."""


PayloadCheck: TypeAlias = Callable[[SentPayload], None]
"""Called with every payload just before it is sent, including retries. If it raises, the request is
not sent, and the caller of the provider gets the exception."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelRequest:
    """A request to a model."""

    instructions: str
    messages: Sequence[Message]
    tools: Sequence[ToolSpec] = ()
    settings: ModelSettings = field(default_factory=ModelSettings)
    check: PayloadCheck | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class TextDelta:
    """More text of the answer."""

    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ThinkingDelta:
    """More text of the model's thinking."""

    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolCallDelta:
    """More of the arguments of a tool call."""

    call_id: str
    name: str
    arguments: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Retrying:
    """The request failed and will be retried after a delay."""

    attempt: int
    delay_seconds: float
    problem: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Answered:
    """The complete answer; the last event of a stream."""

    message: AssistantMessage
    response_model: str = ""
    """The model that the provider reports, such as a version of the requested one."""


ModelEvent: TypeAlias = TextDelta | ThinkingDelta | ToolCallDelta | Retrying | Answered


class Provider(Protocol):
    """One model. Supports concurrent requests."""

    @property
    def model_id(self) -> str:
        """`<provider>/<model>`, as in the configuration."""
        ...

    @property
    def context_tokens(self) -> int:
        """The size of the context window, from the configuration or a default."""
        ...

    def stream(
        self, request: ModelRequest
    ) -> AbstractAsyncContextManager[AsyncIterator[ModelEvent]]:
        """Send the request. Exiting the `async with` block cancels it.

        Iterating raises ProviderError if the request fails, and the exceptions of
        `request.check`.
        """
        ...


class PayloadRefusedError(Exception):
    """The request was not sent because the check raised `reason`; do not retry."""

    def __init__(self, reason: Exception) -> None:
        super().__init__(reason)
        self.reason = reason
