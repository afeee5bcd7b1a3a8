"""Servers at a URL: Streamable HTTP, and SSE as older servers have it, by the SDK's transports."""

from __future__ import annotations

import re
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

import anyio.to_thread
import httpx2
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client

from nacre.mcp_client.transport import MAX_MESSAGE_BYTES, MAX_MESSAGE_PARTS, PartCounter, Transport

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator

    from mcp.client._transport import TransportStreams

    from nacre.config import McpServerConfig

_CONNECT_SECONDS: Final = 30.0
# Calls have their own timeouts, and a stream of notices may be silent for long.
_SILENCE_SECONDS: Final = 3600.0
_TOO_MANY_PARTS: Final = f"the answer has more than {MAX_MESSAGE_PARTS:,} parts, too many to read"
_EVENT_END: Final = re.compile(rb"\r\n\r\n|\n\n")


@asynccontextmanager
async def open_http(
    config: McpServerConfig, *, auth: httpx2.Auth | None
) -> AsyncGenerator[Transport]:
    """Nothing is sent yet: that the server cannot be reached shows with the first message."""
    responses = _Responses()
    # Reads certificates and its own metadata from disk.
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
    config: McpServerConfig, *, auth: httpx2.Auth | None
) -> AsyncGenerator[Transport]:
    """Connects at once; the SDK allows 1 MiB for one message here."""
    responses = _Responses()
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
    """Looks at every response: bounds its body, and remembers a refusal, which the SDK forgets."""

    def __init__(self) -> None:
        self._refusal = ""

    async def check_response(self, response: httpx2.Response) -> None:
        if response.request.method == "POST":
            is_refused = response.status_code >= HTTPStatus.BAD_REQUEST
            told = f"HTTP {response.status_code} {response.reason_phrase}".strip()
            self._refusal = told if is_refused else ""
        if response.headers.get("content-encoding", "identity").lower() != "identity":
            # Not asked for, and a few bytes of it can be any number.
            raise httpx2.DecodingError("the answer is compressed", request=response.request)
        if not isinstance(response.stream, httpx2.AsyncByteStream):
            return
        kind = response.headers.get("content-type", "").lower()
        # The SDK bounds the bytes of events one by one.
        is_events = kind.startswith("text/event-stream")
        response.stream = (_BoundedEvents if is_events else _BoundedBody)(response.stream)

    def transport(self, streams: TransportStreams) -> Transport:
        return Transport(
            streams=streams, how_it_ended=self._how_it_ended, last_refusal=lambda: self._refusal
        )

    async def _how_it_ended(self) -> str:
        return f"answered {self._refusal}" if self._refusal else "closed the connection"


class _BoundedBody(httpx2.AsyncByteStream):
    """A body that is refused once it is too large, or has too many parts."""

    def __init__(self, stream: httpx2.AsyncByteStream) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        left_bytes, parts = MAX_MESSAGE_BYTES, PartCounter()
        async for chunk in self._stream:
            left_bytes -= len(chunk)
            if left_bytes < 0:
                raise httpx2.StreamError(f"the answer has more than {MAX_MESSAGE_BYTES:,} bytes")
            parts.feed(chunk)
            if parts.count > MAX_MESSAGE_PARTS:
                raise httpx2.StreamError(_TOO_MANY_PARTS)
            yield chunk

    async def aclose(self) -> None:
        await self._stream.aclose()


class _BoundedEvents(_BoundedBody):
    """A stream of events, of which none may have too many parts."""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        parts = PartCounter()
        before = b""
        async for chunk in self._stream:
            # What a chunk holds of further events is little: it counts as one with the last.
            if _EVENT_END.search(before + chunk):
                parts = PartCounter()
            parts.feed(_EVENT_END.split(chunk)[-1])
            if parts.count > MAX_MESSAGE_PARTS:
                # Of all errors, the SDK passes on the words of this one.
                raise httpx2.SSEError(_TOO_MANY_PARTS)
            before = chunk[-3:]
            yield chunk
