"""Questions of a running turn to the person in its chat, answered by the next message."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

import anyio

if TYPE_CHECKING:
    from collections.abc import Callable

    from nacre.json_types import JsonObject
    from nacre.messages import UserMessage

InputEnding: TypeAlias = Literal["answered", "expired", "withdrawn"]
"""How a request ended: withdrawn by an abort, by its harness, or by a newer request."""


def _new_id() -> str:
    return f"input_{os.urandom(8).hex()}"


@dataclass(frozen=True, kw_only=True, slots=True)
class InputRequest:
    """A question that the turn waits for."""

    call_id: str
    """The call of the model that asks."""
    text: str
    """The question with its options, as a person reads it."""
    questions: tuple[JsonObject, ...] = ()
    """The same for programs, in the format of the harness."""
    timeout_seconds: float
    id: str = field(default_factory=_new_id)
    created: float = field(default_factory=time.time)
    """Seconds since the epoch."""

    @property
    def expires(self) -> float:
        return self.created + self.timeout_seconds

    def to_json(self) -> JsonObject:
        return {
            "inputId": self.id,
            "toolCallId": self.call_id,
            "text": self.text,
            "questions": [*self.questions],
            "expiresAt": self.expires,
        }


@dataclass(kw_only=True, slots=True)
class _OpenRequest:
    request: InputRequest
    answer: UserMessage | None = None
    is_over: anyio.Event = field(default_factory=anyio.Event)


class InputRequests:
    """The open question of one run; a new one withdraws the older one.

    While a question is open, the session queue gives it the next message of the session. That
    message then neither steers the turn nor starts another one.
    """

    def __init__(
        self,
        *,
        on_opened: Callable[[InputRequest], None],
        on_closed: Callable[[InputRequest, InputEnding], None],
    ) -> None:
        self._on_opened = on_opened
        self._on_closed = on_closed
        self._open: _OpenRequest | None = None

    @property
    def pending(self) -> InputRequest | None:
        return self._open.request if self._open else None

    async def ask(self, request: InputRequest) -> UserMessage | None:
        """Wait for the message that answers; None if the request expires or is withdrawn."""
        self.withdraw()
        mine = self._open = _OpenRequest(request=request)
        self._on_opened(request)
        ending: InputEnding = "withdrawn"
        try:
            with anyio.move_on_after(request.timeout_seconds) as scope:
                await mine.is_over.wait()
            if scope.cancelled_caught:
                ending = "expired"
        finally:
            if self._open is mine:
                self._close(ending)
        return mine.answer

    def answer(self, message: UserMessage) -> bool:
        """Give the message to the open question; False if there is none."""
        if self._open is None:
            return False
        self._open.answer = message
        self._close("answered")
        return True

    def withdraw(self, request_id: str = "") -> None:
        """Close the open question without an answer; with an id, only if it is that one."""
        if self._open is not None and request_id in ("", self._open.request.id):
            self._close("withdrawn")

    def _close(self, ending: InputEnding) -> None:
        closed, self._open = self._open, None
        if closed is not None:
            self._on_closed(closed.request, ending)
            closed.is_over.set()
