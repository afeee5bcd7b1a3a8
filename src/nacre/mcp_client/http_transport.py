"""The HTTP transports: Streamable HTTP, and SSE for older servers. Both use the SDK."""

from __future__ import annotations

import re
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

import anyio.to_thread
import httpx2
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client

from nacre.json_types import MAX_PARTS, PartCounter
from nacre.mcp_client.transport import MAX_MESSAGE_BYTES, Inflow, Transport

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator

    from mcp.client._transport import TransportStreams

    from nacre.config import McpServerConfig
    from nacre.mcp_client.process import OutputTail

_CONNECT_SECONDS: Final = 30.0
# Calls have their own timeouts, and a stream of notifications may be silent for long.
_SILENCE_SECONDS: Final = 3600.0
_TOO_MANY_PARTS: Final = f"the response has more than {MAX_PARTS:,} parts, too many to read"
_EVENT_END: Final = re.compile(rb"(?:\r\n|\n|\r(?!\n))(?:\r\n|\n|\r)")
# Only the start of a longer event is read before it is passed on.
_MAX_HELD_BYTES: Final = 1024


@asynccontextmanager
async def open_http(
    config: McpServerConfig, tail: OutputTail, *, auth: httpx2.Auth | None
) -> AsyncGenerator[Transport]:
    """Open Streamable HTTP. It sends nothing: connection errors occur with the first message."""
    responses = _Responses(Inflow(tail))
    # In a thread, because it reads certificates and metadata from disk.
    client = await anyio.to_thread.run_sync(_client, dict(config.headers), auth, responses)
    async with (
        client,
        streamable_http_client(
            config.url, http_client=client, max_sse_event_size=MAX_MESSAGE_BYTES
        ) as streams,
    ):
        yield responses.transport(streams)


@asynccontextmanager
async def open_sse(
    config: McpServerConfig, tail: OutputTail, *, auth: httpx2.Auth | None
) -> AsyncGenerator[Transport]:
    """Open SSE. It connects at once. The SDK limits a message to 1 MiB."""
    responses = _Responses(Inflow(tail))
    client = await anyio.to_thread.run_sync(_client, dict(config.headers), auth, responses)

    def same_client(
        headers: dict[str, str] | None = None,
        timeout: httpx2.Timeout | None = None,
        auth: httpx2.Auth | None = None,
    ) -> httpx2.AsyncClient:
        return client

    async with sse_client(config.url, httpx_client_factory=same_client) as streams:
        yield responses.transport(streams)


def _client(
    headers: dict[str, str], auth: httpx2.Auth | None, responses: _Responses
) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(
        headers={"Accept-Encoding": "identity", **headers},
        auth=auth,
        timeout=httpx2.Timeout(_CONNECT_SECONDS, read=_SILENCE_SECONDS),
        event_hooks={"response": [responses.check_response]},
    )


class _Responses:
    """Limits the body of each response, and stores the last HTTP error, which the SDK drops."""

    def __init__(self, inflow: Inflow) -> None:
        self._inflow = inflow
        self._refusal = ""

    async def check_response(self, response: httpx2.Response) -> None:
        if response.request.method == "POST":
            is_error = response.status_code >= HTTPStatus.BAD_REQUEST
            status = f"HTTP {response.status_code} {response.reason_phrase}".strip()
            self._refusal = status if is_error else ""
        if response.headers.get("content-encoding", "identity").lower() != "identity":
            # It was not requested, and a few compressed bytes can expand to any size.
            raise httpx2.DecodingError("the response is compressed", request=response.request)
        if not isinstance(response.stream, httpx2.AsyncByteStream):
            return
        kind = response.headers.get("content-type", "").lower()
        if kind.startswith("text/event-stream"):
            # The SDK limits the size of each event.
            response.stream = _BoundedEvents(response.stream, self._inflow)
        else:
            response.stream = _BoundedBody(response.stream)

    def transport(self, streams: TransportStreams) -> Transport:
        return Transport(
            streams=streams,
            inflow=self._inflow,
            describe_end=self._describe_end,
            last_refusal=lambda: self._refusal,
        )

    async def _describe_end(self) -> str:
        return f"answered {self._refusal}" if self._refusal else "closed the connection"


class _BoundedBody(httpx2.AsyncByteStream):
    """A body that raises an error when it is too large or has too many parts."""

    def __init__(self, stream: httpx2.AsyncByteStream) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        left_bytes, parts = MAX_MESSAGE_BYTES, PartCounter()
        async for chunk in self._stream:
            left_bytes -= len(chunk)
            if left_bytes < 0:
                raise httpx2.StreamError(f"the response has more than {MAX_MESSAGE_BYTES:,} bytes")
            parts.feed(chunk)
            if parts.count > MAX_PARTS:
                raise httpx2.StreamError(_TOO_MANY_PARTS)
            yield chunk

    async def aclose(self) -> None:
        await self._stream.aclose()


class _BoundedEvents(_BoundedBody):
    """A stream of events without notifications that are too many.

    Raises an error when an event has too many parts.
    """

    def __init__(self, stream: httpx2.AsyncByteStream, inflow: Inflow) -> None:
        super().__init__(stream)
        self._inflow = inflow
        # What follows the last complete event, or the end of what was passed on of an event.
        self._rest = b""
        self._is_dropping: bool | None = None
        """Whether the rest of the event is dropped; None at its start."""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        parts = PartCounter()
        before = b""
        async for chunk in self._stream:
            # A chunk is small, so all events in it count as one.
            if _EVENT_END.search(before + chunk):
                parts = PartCounter()
            parts.feed(_EVENT_END.split(chunk)[-1])
            if parts.count > MAX_PARTS:
                # The SDK passes on the message of this error only.
                raise httpx2.SSEError(_TOO_MANY_PARTS)
            before = chunk[-3:]
            if admitted := self._filter_events(chunk):
                yield admitted
        if self._rest and not self._is_dropping:
            yield self._rest

    def _filter_events(self, chunk: bytes) -> bytes:
        """Return the chunk without events to drop. The start of an event may have to wait."""
        data, start, admitted = self._rest + chunk, 0, list[bytes]()
        for end in _EVENT_END.finditer(data):
            event = data[start : end.end()]
            if not self._drops(event):
                admitted.append(event)
            start, self._is_dropping = end.end(), None
        self._rest = data[start:]
        if self._is_dropping is not None or len(self._rest) > _MAX_HELD_BYTES:
            self._is_dropping = self._drops(self._rest)
            # The end of an event may begin in its last three bytes.
            passed, self._rest = self._rest[:-3], self._rest[-3:]
            admitted += [] if self._is_dropping else [passed]
        return b"".join(admitted)

    def _drops(self, event: bytes) -> bool:
        return self._inflow.drops(event) if self._is_dropping is None else self._is_dropping
