"""The HTTP client of all provider SDKs: checks and logs requests, limits responses.

bounds what comes back.

By hooks rather than a transport of our own, which would turn off the proxies of the environment.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, cast

import httpx2
from pydantic_ai.models import create_async_httpx2_client

from nacre.json_types import NotJsonError, decode_json, encode_json
from nacre.providers.payload import UnreadableToolsError, current_exchange, sent_payload
from nacre.telemetry import DebugFlags, PayloadLog, debug_log

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from nacre.json_types import JsonValue
    from nacre.providers.provider_secrets import ProviderSecrets


# What is kept of one event: enough to show it.
_MAX_KEPT_BYTES: Final = 65_536


@dataclass(frozen=True, kw_only=True, slots=True)
class SeenEvent:
    """One event: its kind as the stream names it, its size, and its data as far as it was kept."""

    kind: str
    size_bytes: int
    data: JsonValue


class SseWatch:
    """Fed with the bytes of a stream, in pieces of any size."""

    def __init__(self) -> None:
        self._line = bytearray()
        self._is_blank_line = True
        self._size_bytes = 0
        self._name = ""
        self._data: list[bytes] = []
        self._kept_bytes = 0

    def feed(self, chunk: bytes) -> Iterator[SeenEvent]:
        """The events that end in this piece."""
        for part in chunk.splitlines(keepends=True):
            self._size_bytes += len(part)
            kept = part[: _MAX_KEPT_BYTES - self._kept_bytes]
            self._line += kept
            self._kept_bytes += len(kept)
            self._is_blank_line = self._is_blank_line and not part.strip(b"\r\n")
            if part.endswith(b"\n"):
                if self._is_blank_line:
                    yield from self._finish_event()
                else:
                    self._take(bytes(self._line).strip(b"\r\n"))
                self._line.clear()
                self._is_blank_line = True

    def _take(self, line: bytes) -> None:
        field, _, value = line.partition(b":")
        if field == b"event":
            self._name = value.strip().decode(errors="replace")
        elif field == b"data":
            self._data.append(value.strip())

    def _finish_event(self) -> Iterator[SeenEvent]:
        if self._data or self._name:
            data = _data_from(b"\n".join(self._data))
            yield SeenEvent(
                kind=self._name or _kind_in(data), size_bytes=self._size_bytes, data=data
            )
        self._size_bytes = self._kept_bytes = 0
        self._name = ""
        self._data = []


def _data_from(data: bytes) -> JsonValue:
    try:
        return decode_json(data)
    except NotJsonError:
        return data.decode(errors="replace")


def _kind_in(data: JsonValue) -> str:
    if isinstance(data, dict):
        for key in ("type", "object"):
            kind = data.get(key)
            if isinstance(kind, str):
                return kind
    return "message" if isinstance(data, dict) else str(data)[:20]


_PEEKED_EVENTS: Final = 5
_MAX_PEEK_CHARACTERS: Final = 2_000


class WireLog:
    """The lines of one provider; writes none whose switch is off."""

    def __init__(self, flags: DebugFlags, secrets: ProviderSecrets) -> None:
        self.flags = flags
        self.secrets = secrets

    def request(self, *, method: str, url: str, body: bytes, attempt: int) -> RequestLog:
        """Called just before the request is sent."""
        address = self.secrets.url(url)
        if self.flags.model_transport:
            debug_log("model_transport").info(
                "%s %s: attempt %d, %d bytes", method, address, attempt, len(body)
            )
        if self.flags.model_payload is not None:
            debug_log("model_payload").info(
                "%s: %s", address, self._payload(body, self.flags.model_payload)
            )
        return RequestLog(self, f"{method} {address}")

    def _payload(self, body: bytes, how: PayloadLog) -> str:
        try:
            if how == "tools":
                payload = sent_payload(body)
                names = ", ".join(payload.tool_names) or "none"
                return self.secrets.text(f"tools: {names} ({payload.tool_bytes} bytes)")
            return encode_json(self.secrets.value(decode_json(body))).decode()
        except (NotJsonError, UnreadableToolsError) as error:
            return self.secrets.text(f"cannot be shown: {error}")


class RequestLog:
    """What became of one request."""

    def __init__(self, log: WireLog, title: str) -> None:
        self._log = log
        self._title = title
        self._began = time.monotonic()
        self._received_bytes = 0
        self._event_count = 0
        self._watch = SseWatch()

    @property
    def wants_content(self) -> bool:
        """Whether what is received has to be told."""
        return self._log.flags.model_transport or self._log.flags.sse is not None

    def answered(self, status: int) -> None:
        if self._log.flags.model_transport:
            debug_log("model_transport").info(
                "%s: status %d after %.0f ms", self._title, status, self._milliseconds()
            )

    def received(self, chunk: bytes) -> None:
        self._received_bytes += len(chunk)
        if self._log.flags.sse is None:
            return
        for event in self._watch.feed(chunk):
            self._event_count += 1
            kind = self._log.secrets.text(event.kind, max_characters=80)
            if self._log.flags.sse == "events":
                debug_log("sse").info("%d: %s, %d bytes", self._event_count, kind, event.size_bytes)
            elif self._event_count <= _PEEKED_EVENTS:
                shown = encode_json(self._log.secrets.value(event.data)).decode()
                capped = shown[:_MAX_PEEK_CHARACTERS]
                debug_log("sse").info("%d: %s: %s", self._event_count, kind, capped)

    def ended(self) -> None:
        if self._log.flags.model_transport:
            debug_log("model_transport").info(
                "%s: ended after %.0f ms, %d bytes received",
                self._title,
                self._milliseconds(),
                self._received_bytes,
            )

    def _milliseconds(self) -> float:
        return (time.monotonic() - self._began) * 1000


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
