"""The answer of a run to one request: text as it comes, until it ends or calls client tools."""

from __future__ import annotations

import math
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias, cast

import anyio
from starlette.responses import JSONResponse, Response

from nacre.agent import RunResult
from nacre.errors import ProviderError, RuntimeUnavailableError, StorageError
from nacre.gateway.errors import ApiError
from nacre.gateway.events import cancel_on_disconnect
from nacre.messages import Usage

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    from fastapi import Request

    from nacre.agent import AgentRun, InputRequest, RunEvent
    from nacre.gateway.openai.run_starter import ClientCall, WaitingRuns
    from nacre.json_types import JsonObject

_GONE: Final = "the client closed the connection"
# Nobody reads it; nginx logs this status.
_CLIENT_GONE_STATUS: Final = 499
_BUSY_STATUSES: Final = frozenset((408, 503, 504, 529))


@dataclass(frozen=True, kw_only=True, slots=True)
class TextDelta:
    """A piece of the answer's text."""

    text: str
    begins_message: bool
    """Whether it starts a new message, after calls."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MessageEnd:
    """A message of the model is complete. More may follow."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ClientCalls:
    """The calls that the client must make. The run waits for their results."""

    calls: tuple[ClientCall, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class RunEnd:
    """The run has completed."""

    result: RunResult


AnswerPart: TypeAlias = TextDelta | MessageEnd | ClientCalls | RunEnd


class AnswerStream:
    """The answer to one request. `close` aborts the run, unless it has ended or waits.

    A question of the agent ends the answer, if the session of the run can be continued: the next
    message of the client is the answer to it.
    """

    def __init__(
        self,
        run: AgentRun,
        waiting: WaitingRuns,
        *,
        after: int = -1,
        number: int = 1,
        calls_one_at_a_time: bool = False,
    ) -> None:
        self.run = run
        self.number = number
        """The number of this answer: a run gives one more each time the client delivers results or
        answers a question."""
        self.usage = Usage()
        self._waiting = waiting
        self._after = after
        self._calls_one_at_a_time = calls_one_at_a_time
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
        """Yield the parts; the last is ClientCalls or RunEnd. Raises ApiError if the run fails."""
        followed = cast("AsyncGenerator[RunEvent]", self.run.events.follow(self._after))
        async with aclosing(followed) as events:
            async for event in events:
                self._check_gap(event)
                for part in self._handle_event(event):
                    yield part
                if self._is_waiting_for_client(event):
                    yield await self._wait_for_client()
                    return
                question = self._find_question(event)
                if question is not None:
                    yield TextDelta(text=question.text, begins_message=True)
                    yield MessageEnd()
                    self._is_over = True
                    yield RunEnd(result=RunResult(text=question.text, usage=self.usage))
                    return
        self._is_over = True
        result = self.run.result
        assert result is not None
        if self.run.state != "completed":
            raise run_error(self.run, result)
        yield RunEnd(result=result)

    def _handle_event(self, event: RunEvent) -> list[AnswerPart]:
        text = event.data.get("text")
        match event.kind:
            case "text.delta" if isinstance(text, str) and text:
                begins, self._has_text = not self._has_text, True
                return [TextDelta(text=text, begins_message=begins)]
            case "message.completed":
                self.usage = self.usage + _parse_usage(event.data)
                has_text, self._has_text = self._has_text, False
                if not has_text and isinstance(text, str) and text:
                    # The provider does not stream.
                    return [TextDelta(text=text, begins_message=True), MessageEnd()]
                return [MessageEnd()]
            case "message.sent" if isinstance(text, str) and text:
                # A message of the tool `message` is part of the answer for this client.
                return [TextDelta(text=text, begins_message=True), MessageEnd()]
            case "media.added":
                return [TextDelta(text=_link_to(event.data), begins_message=True), MessageEnd()]
            case _:
                return []

    def _find_question(self, event: RunEvent) -> InputRequest | None:
        """The open question that the event asks, if the client can answer it."""
        question = self.run.pending_input
        if question is None or question.id != event.data.get("inputId"):
            return None
        if self.run.is_stored:
            return question
        # The next request of this client is another session.
        self.run.input_requests.withdraw(question.id)
        return None

    def _is_waiting_for_client(self, event: RunEvent) -> bool:
        """Whether the run waits for the client, and all earlier events were handled."""
        run = self.run
        is_last = event.sequence == run.events.last_sequence
        return is_last and run.state == "waiting" and bool(run.pending_client_calls)

    async def _wait_for_client(self) -> ClientCalls:
        calls = self.run.pending_client_calls
        waiting = self._waiting.add(
            self.run,
            calls[:1] if self._calls_one_at_a_time else calls,
            after=self._after,
            answer_number=self.number,
        )
        self._is_over = True
        await self._waiting.share(waiting)
        return ClientCalls(calls=waiting.calls)

    def _check_gap(self, event: RunEvent) -> None:
        lost = self.run.events.count_missing(self._after, event.sequence)
        self._after = event.sequence
        if lost:
            raise _forbid_retry(
                ApiError(
                    500,
                    f"the client read too slowly: {lost} events of the run {self.run.id} are lost",
                    code="client_too_slow",
                )
            )


def run_error(run: AgentRun, result: RunResult) -> ApiError:
    """The error response of a failed run. Clients must not retry, because turns have effects."""
    cause = result.cause
    message = result.error or "the run ended without a result"
    if isinstance(cause, ProviderError):
        return _forbid_retry(_provider_failure(cause))
    if isinstance(cause, StorageError):
        return _forbid_retry(ApiError(503, message, code="storage_failed"))
    if isinstance(cause, RuntimeUnavailableError):
        return _forbid_retry(ApiError(503, message, code="runtime_unavailable"))
    if run.state == "aborted":
        return _forbid_retry(ApiError(503, f"the run was aborted: {message}", code="aborted"))
    return _forbid_retry(ApiError(500, message, code="run_failed"))


def _provider_failure(error: ProviderError) -> ApiError:
    if error.is_context_overflow:
        return ApiError(400, error.message, code="context_length_exceeded", path="messages")
    seconds = error.retry_after_seconds
    return ApiError(
        _provider_status(error),
        error.message,
        code="provider_failed",
        retry_after_seconds=seconds if seconds is not None and math.isfinite(seconds) else None,
    )


def _provider_status(error: ProviderError) -> int:
    if error.status == 429:
        # The provider's rate limit or quota: only waiting or a larger quota helps.
        return 429
    return 503 if error.is_retryable or error.status in _BUSY_STATUSES else 502


def _forbid_retry(error: ApiError) -> ApiError:
    error.headers = {**(error.headers or {}), "x-should-retry": "false"}
    return error


def _link_to(media: JsonObject) -> str:
    """A file of the reply as Markdown; the client gets it with its token."""
    name = str(media["name"]).replace("[", "(").replace("]", ")")
    is_image = str(media["type"]).startswith("image/")
    return f"{'!' if is_image else ''}[{name}]({media['url']})"


def _parse_usage(data: JsonObject) -> Usage:
    usage = cast("dict[str, int]", data.get("usage") or {})
    return Usage(
        input_tokens=usage.get("inputTokens", 0),
        output_tokens=usage.get("outputTokens", 0),
        cached_tokens=usage.get("cachedTokens", 0),
    )


async def complete_response(
    request: Request, answer: AnswerStream, make: Callable[[], Awaitable[JsonObject]]
) -> Response:
    """Wait for the complete answer. Raises ApiError if the run fails."""
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
