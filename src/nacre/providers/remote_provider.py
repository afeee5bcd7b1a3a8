"""A model that is reached over the network: asked again when it is worth it."""

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

    from nacre.providers.base import ModelEvent, ModelRequest
    from nacre.providers.retries import Retries

# Closing a connection takes no time, unless something is broken.
_CLOSE_SECONDS: Final = 2.0


class RemoteModel(Protocol):
    """Asks a model once: raises ProviderError, or PayloadRefusedError for what was not sent."""

    def attempt(self, request: ModelRequest, *, number: int) -> AsyncGenerator[ModelEvent]: ...


class RemoteProvider:
    """One model; `open_model` is awaited with the first request, as opening one is slow."""

    def __init__(
        self,
        *,
        model_id: str,
        context_tokens: int,
        retries: Retries,
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
        """Open the model, which the first request would wait for."""
        await self._open_model()

    @asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncGenerator[AsyncIterator[ModelEvent]]:
        events = self._events(request)
        try:
            yield events
        finally:
            # Also for one who is cancelled: the connection must not outlive the request.
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
                # Here, so that it comes out as it was raised, with nothing attached.
                raise outcome
            yield outcome
            await anyio.sleep(outcome.delay_seconds)

    def _after(
        self, error: ProviderError, number: int, *, has_begun: bool
    ) -> Retrying | ProviderError:
        """What follows from a failed attempt: another one, or the end."""
        delay_seconds = None
        # Who has got a part of an answer must not get the beginning of another.
        if error.is_retryable and not has_begun:
            delay_seconds = self._retries.delay_seconds(
                number, asked_seconds=error.retry_after_seconds
            )
        if delay_seconds is None:
            return _final(error, number)
        return Retrying(attempt=number, delay_seconds=delay_seconds, problem=error.message)


def _final(error: ProviderError, number: int) -> ProviderError:
    if number == 1:
        return error
    return ProviderError(
        f"{error.message} (asked {number} times)",
        status=error.status,
        is_retryable=error.is_retryable,
        retry_after_seconds=error.retry_after_seconds,
        is_context_overflow=error.is_context_overflow,
    )
