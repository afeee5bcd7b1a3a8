"""An answer as server-sent events, or whole: either way only for as long as its client is there."""

from __future__ import annotations

import logging
from contextlib import aclosing
from typing import TYPE_CHECKING, Final

import anyio
from starlette.responses import JSONResponse, Response, StreamingResponse

from nacre.gateway.errors import ApiError, error_response
from nacre.json_types import encode_json

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    from fastapi import Request
    from starlette.types import Receive, Scope, Send

    from nacre.gateway.openai.run_answers import RunAnswer
    from nacre.json_types import JsonObject

logger = logging.getLogger(__name__)

HEARTBEAT_SECONDS: Final = 10.0

_HEARTBEAT: Final = b": still working\n\n"
# Whoever takes nothing for so long is gone.
_SEND_SECONDS: Final = 60.0
# Nobody reads it; as nginx has it in its log.
_CLIENT_GONE_STATUS: Final = 499


def data_event(data: JsonObject) -> bytes:
    return b"data: %b\n\n" % encode_json(data)


class AnswerStream(StreamingResponse):
    """Begins with the first event, so that what fails at once has a status of its own; or with the
    first heartbeat, where that takes long."""

    def __init__(
        self,
        answer: RunAnswer,
        events: AsyncGenerator[bytes],
        *,
        error_event: Callable[[ApiError], bytes],
        heartbeat_seconds: float = HEARTBEAT_SECONDS,
    ) -> None:
        headers = {**answer.headers, "cache-control": "no-store", "x-accel-buffering": "no"}
        super().__init__(events, media_type="text/event-stream", headers=headers)
        self._answer = answer
        self._events = events
        self._error_event = error_event
        self._heartbeat_seconds = heartbeat_seconds
        self._lock = anyio.Lock()
        self._is_begun = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        failure: ApiError | None = None
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_cancel_when_gone, receive, tasks.cancel_scope)
                tasks.start_soon(self._beat, send)
                failure = await self._send_all(send)
                tasks.cancel_scope.cancel()
        except* TimeoutError:
            logger.info("a client of %s takes nothing; it was let go", scope["path"])
        finally:
            self._answer.close()
        if failure is not None:
            await error_response(scope, failure)(scope, receive, send)

    async def _send_all(self, send: Send) -> ApiError | None:
        """All events; or what went wrong before the first."""
        try:
            async with aclosing(self._events) as events:
                async for event in events:
                    await self._write(send, event)
        except ApiError as error:
            async with self._lock:
                if not self._is_begun:
                    self._is_begun = True
                    return error
            await self._write(send, self._error_event(error))
        await self._write(send, b"", is_last=True)
        return None

    async def _beat(self, send: Send) -> None:
        while True:
            await anyio.sleep(self._heartbeat_seconds)
            await self._write(send, _HEARTBEAT)

    async def _write(self, send: Send, event: bytes, *, is_last: bool = False) -> None:
        async with self._lock:
            with anyio.fail_after(_SEND_SECONDS):
                if not self._is_begun:
                    self._is_begun = True
                    start = {"type": "http.response.start", "status": 200}
                    await send({**start, "headers": self.raw_headers})
                body = {"type": "http.response.body", "body": event}
                await send({**body, "more_body": not is_last})


async def whole_answer(
    request: Request, answer: RunAnswer, make: Callable[[], Awaitable[JsonObject]]
) -> Response:
    """The answer when it is complete; raises ApiError where there is none."""
    body: JsonObject | None = None
    failure: ApiError | None = None
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_cancel_when_gone, request.receive, tasks.cancel_scope)
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


async def _cancel_when_gone(receive: Receive, scope: anyio.CancelScope) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    scope.cancel()
