"""The HTTP client under every provider's SDK: it checks and logs each request before it leaves, and
bounds what comes back.

By hooks rather than a transport of our own, which would turn off the proxies of the environment.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

import httpx2
from pydantic_ai.models import create_async_httpx2_client

from nacre.providers.wire import current_exchange

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from nacre.providers.wire_log import RequestLog, WireLog

CONNECT_SECONDS: Final = 10.0
MAX_ANSWER_BYTES: Final = 128 * 1024 * 1024
"""Several times what the longest answers take, with what a stream has around each word."""
_LOG_KEY: Final = "nacre_request_log"


class AnswerRefusedError(Exception):
    """An answer that is not read to its end, whatever the SDK makes of that."""


def model_http_client(*, timeout_seconds: float, log: WireLog) -> httpx2.AsyncClient:
    """`timeout_seconds`: how long may pass without a byte of the answer."""

    async def before_request(request: httpx2.Request) -> None:
        exchange = current_exchange()
        body = _body_of(request)
        exchange.inspect(body)
        if log.flags.is_any_on:
            request.extensions = {
                **request.extensions,
                _LOG_KEY: log.request(
                    method=request.method,
                    url=str(request.url),
                    body=body,
                    attempt=exchange.attempt,
                ),
            }

    async def after_response(response: httpx2.Response) -> None:
        request_log = cast("RequestLog | None", response.request.extensions.get(_LOG_KEY))
        if request_log is not None:
            request_log.answered(response.status_code)
        _refuse_if_compressed(response)
        stream = cast("httpx2.AsyncByteStream", response.stream)
        response.stream = _WatchedStream(stream, request_log)

    client = create_async_httpx2_client(
        timeout=httpx2.Timeout(timeout_seconds, connect=min(CONNECT_SECONDS, timeout_seconds))
    )
    # A few bytes that become gigabytes would be in memory before anybody could count them.
    client.headers["Accept-Encoding"] = "identity"
    hooks = client.event_hooks
    client.event_hooks = {
        "request": [*hooks["request"], before_request],
        "response": [*hooks["response"], after_response],
    }
    return client


def _body_of(request: httpx2.Request) -> bytes:
    try:
        return request.content
    except httpx2.RequestNotRead:
        # Sent as it is produced; nothing of ours is, and no check could read it.
        return b""


def _refuse_if_compressed(response: httpx2.Response) -> None:
    encoding = response.headers.get("Content-Encoding", "identity")
    if encoding.strip().lower() not in ("", "identity"):
        raise AnswerRefusedError(
            f"the answer is compressed ({encoding[:40]!r}), which was not asked for"
        )


class _WatchedStream(httpx2.AsyncByteStream):
    """The bytes of an answer, counted and told to the log on their way."""

    def __init__(self, stream: httpx2.AsyncByteStream, log: RequestLog | None) -> None:
        self._stream = stream
        self._log = log if log is not None and log.wants_content else None

    async def __aiter__(self) -> AsyncIterator[bytes]:
        received_bytes = 0
        async for chunk in self._stream:
            received_bytes += len(chunk)
            if received_bytes > MAX_ANSWER_BYTES:
                raise AnswerRefusedError(f"the answer has more than {MAX_ANSWER_BYTES} bytes")
            if self._log is not None:
                self._log.received(chunk)
            yield chunk

    async def aclose(self) -> None:
        await self._stream.aclose()
        if self._log is not None:
            self._log.ended()
