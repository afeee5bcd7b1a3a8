"""A model of a remote provider; failed requests are retried."""

from __future__ import annotations

from contextlib import aclosing, asynccontextmanager
from itertools import count
from typing import TYPE_CHECKING, Final, Protocol

import anyio

from nacre.errors import ProviderError
from nacre.providers.base import Retrying
from nacre.providers.payload import PayloadRefusedError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable

    from nacre.backoff import RetryPolicy
    from nacre.providers.base import ModelEvent, ModelRequest

# Closing a connection is fast unless the connection is broken.
_CLOSE_SECONDS: Final = 2.0


class RemoteModel(Protocol):
    """Sends a request once; raises ProviderError, or PayloadRefusedError if it was not sent."""

    def attempt(self, request: ModelRequest, *, number: int) -> AsyncGenerator[ModelEvent]: ...


class RemoteProvider:
    """One model; the first request awaits `open_model`, because opening a model is slow."""

    def __init__(
        self,
        *,
        model_id: str,
        context_tokens: int,
        retries: RetryPolicy,
        open_model: Callable[[], Awaitable[RemoteModel]],
    ) -> None:
        self._model_id = model_id
        self._context_tokens = context_tokens
        self._retries = retries
        self._open_model = open_model

    @property
    def model_id(self) -> str:
        return self._model_id

    @property
    def context_tokens(self) -> int:
        return self._context_tokens

    async def prepare(self) -> None:
        """Open the model, so that the first request does not wait for it."""
        await self._open_model()

    @asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncGenerator[AsyncIterator[ModelEvent]]:
        events = self._events(request)
        try:
            yield events
        finally:
            # Shielded, because the connection must not outlive a cancelled request.
            with anyio.move_on_after(_CLOSE_SECONDS, shield=True):
                await events.aclose()

    async def _events(self, request: ModelRequest) -> AsyncGenerator[ModelEvent]:
        model = await self._open_model()
        for number in count(1):
            has_begun = False
            try:
                async with aclosing(model.attempt(request, number=number)) as events:
                    async for event in events:
                        has_begun = True
                        yield event
                return
            except PayloadRefusedError as error:
                outcome: Retrying | Exception = error.reason
            except ProviderError as error:
                outcome = self._after(error, number, has_begun=has_begun)
            if isinstance(outcome, Exception):
                # Raised outside of `except`, so that it has no context.
                raise outcome
            yield outcome
            await anyio.sleep(outcome.delay_seconds)

    def _after(
        self, error: ProviderError, number: int, *, has_begun: bool
    ) -> Retrying | ProviderError:
        """The retry after a failed attempt, or the final error."""
        delay_seconds = None
        # The caller already has the beginning of an answer, so a second answer cannot follow.
        if error.is_retryable and not has_begun:
            delay_seconds = self._retries.delay_seconds(
                number, requested_seconds=error.retry_after_seconds
            )
        if delay_seconds is None:
            return _add_attempts(error, number)
        return Retrying(attempt=number, delay_seconds=delay_seconds, problem=error.message)


def _add_attempts(error: ProviderError, number: int) -> ProviderError:
    if number == 1:
        return error
    return ProviderError(
        f"{error.message} ({number} attempts)",
        status=error.status,
        is_retryable=error.is_retryable,
        retry_after_seconds=error.retry_after_seconds,
        is_context_overflow=error.is_context_overflow,
    )
