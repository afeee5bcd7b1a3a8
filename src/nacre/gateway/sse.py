"""Server-sent events: the streaming response of both APIs."""

from __future__ import annotations

import logging
from contextlib import aclosing
from typing import TYPE_CHECKING, Final

import anyio
from starlette.responses import StreamingResponse

from nacre.gateway.errors import ApiError, error_response
from nacre.json_types import encode_json

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping

    from starlette.types import Receive, Scope, Send

    from nacre.json_types import JsonObject

logger = logging.getLogger(__name__)

_HEARTBEAT_SECONDS: Final = 10.0
_HEARTBEAT: Final = b": still working\n\n"
# A client that reads nothing for so long is considered gone.
_SEND_SECONDS: Final = 60.0


def encode_event(data: JsonObject, *, kind: str = "", event_id: str = "") -> bytes:
    """Encode one event. JSON has no line ends, so the data is one line."""
    head = f"id: {event_id}\n" if event_id else ""
    head += f"event: {kind}\n" if kind else ""
    return b"%bdata: %b\n\n" % (head.encode(), encode_json(data))


class _ClientStalledError(Exception):
    """The client reads nothing."""


class EventStreamResponse(StreamingResponse):
    """Sends events, and heartbeats between them, until the last event or until the client leaves.

    With `error_event`, the response starts with the first event or heartbeat. An ApiError before
    that becomes an error response with its own status, and a later one becomes an event.
    """

    def __init__(
        self,
        events: AsyncGenerator[bytes],
        *,
        headers: Mapping[str, str] | None = None,
        error_event: Callable[[ApiError], bytes] | None = None,
        on_close: Callable[[], None] | None = None,
        heartbeat_seconds: float = _HEARTBEAT_SECONDS,
    ) -> None:
        fixed = {"cache-control": "no-store", "x-accel-buffering": "no"}
        super().__init__(
            events, media_type="text/event-stream", headers={**(headers or {}), **fixed}
        )
        self._events = events
        self._error_event = error_event
        self._on_close = on_close
        self._heartbeat_seconds = heartbeat_seconds
        self._lock = anyio.Lock()
        self._has_started = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        failure: ApiError | None = None
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(cancel_on_disconnect, receive, tasks.cancel_scope)
                tasks.start_soon(self._send_heartbeats, send)
                failure = await self._send_events(send)
                tasks.cancel_scope.cancel()
        except* _ClientStalledError:
            logger.info("a client of %s reads nothing; the stream was closed", scope["path"])
        finally:
            if self._on_close is not None:
                self._on_close()
        if failure is not None:
            await error_response(scope, failure)(scope, receive, send)

    async def _send_events(self, send: Send) -> ApiError | None:
        """Send all events, or return the error that came before the first."""
        if self._error_event is None:
            await self._write(send, b"")
        try:
            async with aclosing(self._events) as events:
                async for event in events:
                    await self._write(send, event)
        except ApiError as error:
            if self._error_event is None:
                raise
            async with self._lock:
                if not self._has_started:
                    self._has_started = True
                    return error
            await self._write(send, self._error_event(error))
        await self._write(send, b"", is_last=True)
        return None

    async def _send_heartbeats(self, send: Send) -> None:
        while True:
            await anyio.sleep(self._heartbeat_seconds)
            await self._write(send, _HEARTBEAT)

    async def _write(self, send: Send, data: bytes, *, is_last: bool = False) -> None:
        async with self._lock:
            with anyio.move_on_after(_SEND_SECONDS):
                if not self._has_started:
                    self._has_started = True
                    start = {"type": "http.response.start", "status": 200}
                    await send({**start, "headers": self.raw_headers})
                body = {"type": "http.response.body", "body": data}
                await send({**body, "more_body": not is_last})
                return
            raise _ClientStalledError


async def cancel_on_disconnect(receive: Receive, scope: anyio.CancelScope) -> None:
    """Cancel the scope when the client closes the connection."""
    while (await receive())["type"] != "http.disconnect":
        pass
    scope.cancel()
