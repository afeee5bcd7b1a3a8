"""What a run says to one request: text as it comes, until it ends or asks its client."""

from __future__ import annotations

import math
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias, cast

import anyio
from starlette.responses import JSONResponse, Response

from nacre.errors import ProviderError, StorageError
from nacre.gateway.errors import ApiError
from nacre.gateway.sse import cancel_on_disconnect
from nacre.messages import Usage

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    from fastapi import Request

    from nacre.agent import AgentRun, RunEvent, RunResult
    from nacre.gateway.openai.parked_runs import ParkedRuns, ShownCall
    from nacre.json_types import JsonObject

_GONE: Final = "the client closed the connection"
# Nobody reads it; nginx logs this status.
_CLIENT_GONE_STATUS: Final = 499
_BUSY_STATUSES: Final = frozenset((408, 429, 503, 504, 529))


@dataclass(frozen=True, kw_only=True, slots=True)
class Said:
    """Some more words."""

    text: str
    begins_message: bool
    """Whether the model had said something else before, and made calls in between."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MessageOver:
    """An answer of the model is complete; others may follow."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CallsAsked:
    """The client has to make these calls. The run is parked until it has."""

    calls: tuple[ShownCall, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class RunOver:
    """The run has completed."""

    result: RunResult


AnswerPart: TypeAlias = Said | MessageOver | CallsAsked | RunOver


class RunAnswer:
    """One answer. `close` it: a run whose client has gone is aborted, unless it is parked."""

    def __init__(
        self,
        run: AgentRun,
        parked: ParkedRuns,
        *,
        after: int = -1,
        number: int = 1,
        asks_one_at_a_time: bool = False,
    ) -> None:
        self.run = run
        self.number = number
        """How many answers the run gives, with this one: each result of the client has one."""
        self.usage = Usage()
        self._parked = parked
        self._after = after
        self._asks_one_at_a_time = asks_one_at_a_time
        self._has_text = False
        self._is_over = False

    @property
    def headers(self) -> dict[str, str]:
        headers = {"x-nacre-run-id": self.run.id}
        if self.run.is_stored:
            headers["x-nacre-session-id"] = self.run.session_id
        return headers

    def close(self) -> None:
        if not self._is_over:
            self.run.request_abort(_GONE)

    async def parts(self) -> AsyncGenerator[AnswerPart]:
        """Ends with CallsAsked or RunOver; raises ApiError where the run fails."""
        followed = cast("AsyncGenerator[RunEvent]", self.run.events.follow(self._after))
        async with aclosing(followed) as events:
            async for event in events:
                self._note_gap(event)
                for part in self._handle_event(event):
                    yield part
                if self._is_asking(event):
                    yield self._park()
                    return
        self._is_over = True
        result = self.run.result
        assert result is not None
        if self.run.state != "completed":
            raise failure_of(self.run, result)
        yield RunOver(result=result)

    def _handle_event(self, event: RunEvent) -> list[AnswerPart]:
        text = event.data.get("text")
        match event.kind:
            case "text.delta" if isinstance(text, str) and text:
                begins, self._has_text = not self._has_text, True
                return [Said(text=text, begins_message=begins)]
            case "message.completed":
                self.usage = self.usage + _usage_in(event.data)
                has_text, self._has_text = self._has_text, False
                if not has_text and isinstance(text, str) and text:
                    # From a provider that does not stream.
                    return [Said(text=text, begins_message=True), MessageOver()]
                return [MessageOver()]
            case "message.sent" if isinstance(text, str) and text:
                # Of the tool `message`: this client is where people read it.
                return [Said(text=text, begins_message=True), MessageOver()]
            case _:
                return []

    def _is_asking(self, event: RunEvent) -> bool:
        """Whether it goes on only with results of the client, and all before that was told."""
        run = self.run
        is_last = event.sequence == run.events.last_sequence
        return is_last and run.state == "waiting" and bool(run.pending_client_calls)

    def _park(self) -> CallsAsked:
        calls = self.run.pending_client_calls
        parked = self._parked.park(
            self.run,
            calls[:1] if self._asks_one_at_a_time else calls,
            after=self._after,
            answer_number=self.number,
        )
        self._is_over = True
        return CallsAsked(calls=parked.calls)

    def _note_gap(self, event: RunEvent) -> None:
        lost = event.sequence - self._after - 1
        self._after = event.sequence
        if lost:
            raise _not_again(
                ApiError(
                    500,
                    f"the client read too slowly: {lost} events of the run {self.run.id} are lost",
                    code="client_too_slow",
                )
            )


def failure_of(run: AgentRun, result: RunResult) -> ApiError:
    """Why there is no answer. A turn has effects, so no client may repeat it by itself."""
    cause = result.cause
    message = result.error or "the run was cut off"
    if isinstance(cause, ProviderError):
        return _not_again(_provider_failure(cause))
    if isinstance(cause, StorageError):
        return _not_again(ApiError(503, message, code="storage_failed"))
    if run.state == "aborted":
        return _not_again(ApiError(503, f"the run was aborted: {message}", code="aborted"))
    return _not_again(ApiError(500, message, code="run_failed"))


def _provider_failure(error: ProviderError) -> ApiError:
    if error.is_context_overflow:
        return ApiError(400, error.message, code="context_length_exceeded", path="messages")
    is_busy = error.is_retryable or error.status in _BUSY_STATUSES
    seconds = error.retry_after_seconds
    return ApiError(
        503 if is_busy else 502,
        error.message,
        code="provider_failed",
        retry_after_seconds=seconds if seconds is not None and math.isfinite(seconds) else None,
    )


def _not_again(error: ApiError) -> ApiError:
    error.headers = {**(error.headers or {}), "x-should-retry": "false"}
    return error


def _usage_in(data: JsonObject) -> Usage:
    usage = cast("dict[str, int]", data.get("usage") or {})
    return Usage(
        input_tokens=usage.get("inputTokens", 0),
        output_tokens=usage.get("outputTokens", 0),
        cached_tokens=usage.get("cachedTokens", 0),
    )


async def whole_answer(
    request: Request, answer: RunAnswer, make: Callable[[], Awaitable[JsonObject]]
) -> Response:
    """The answer when it is complete; raises ApiError where there is none."""
    body: JsonObject | None = None
    failure: ApiError | None = None
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(cancel_on_disconnect, request.receive, tasks.cancel_scope)
            try:
                body = await make()
            except ApiError as error:
                failure = error
            tasks.cancel_scope.cancel()
    finally:
        answer.close()
    if failure is not None:
        failure.headers = {**(failure.headers or {}), **answer.headers}
        raise failure
    if body is None:
        return Response(status_code=_CLIENT_GONE_STATUS)
    return JSONResponse(body, headers=answer.headers)
