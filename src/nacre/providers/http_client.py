"""The HTTP client of all provider SDKs: checks and logs requests, limits responses.

It uses event hooks, because a custom transport would disable the proxies of the environment.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, cast

import httpx2

from nacre.errors import ProviderError
from nacre.json_types import JsonValue, NotJsonError, decode_json, encode_json
from nacre.messages import SentPayload
from nacre.telemetry import DebugFlags, PayloadLog, debug_log, get_debug_flags

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Generator, Iterator

    from nacre.json_types import JsonObject
    from nacre.providers.base import PayloadCheck
    from nacre.providers.provider_secrets import ProviderSecrets

# The members with tools; `functions` is the older form of Chat Completions.
_TOOL_KEYS: Final = ("tools", "functions")
_GOOGLE_KEYS: Final = ("functionDeclarations", "function_declarations")
# Members that give the model tools without naming them: MCP servers of Anthropic's connector, web
# search of OpenAI, xAI and OpenRouter, and stored prompts or contents with their own tools.
_HIDDEN_TOOL_KEYS: Final = (
    "mcp_servers",
    "web_search_options",
    "search_parameters",
    "plugins",
    "prompt",
    "cachedContent",
    "cached_content",
)
# Any other type is a built-in tool of the provider, whatever its name.
_FUNCTION_TYPES: Final = (None, "function", "custom")
# The rest of a larger event is not parsed.
_MAX_EVENT_BYTES: Final = 65_536
_MAX_LOGGED_EVENTS: Final = 5
_MAX_LOGGED_CHARACTERS: Final = 2_000
CONNECT_SECONDS: Final = 10.0
_LIMITS: Final = httpx2.Limits(max_connections=1_000, max_keepalive_connections=100)
MAX_RESPONSE_BYTES: Final = 128 * 1024 * 1024
_LOG_KEY: Final = "nacre_request_log"


class UnreadableToolsError(ValueError):
    """The tools in a body cannot be determined."""


class Exchange:
    """One attempt of a model request; checks each body before it is sent."""

    def __init__(self, check: PayloadCheck | None, *, attempt: int = 1) -> None:
        self._check = check
        self.attempt = attempt
        self.refusal: Exception | None = None
        """The exception of the check. HTTP clients may wrap it when they raise it, or retry."""

    def inspect(self, body: bytes) -> None:
        """Check a body; after the first failure, every further body fails too."""
        if self.refusal is not None:
            raise self.refusal
        if self._check is None:
            return
        try:
            self._check(sent_payload(body))
        except UnreadableToolsError as error:
            self.refusal = ProviderError(f"the request was not sent: {error}")
            raise self.refusal from None
        except Exception as error:
            self.refusal = error
            raise

    @contextmanager
    def activate(self) -> Generator[None]:
        """Make this the current exchange. Do not `yield` inside of the block."""
        token = _current.set(self)
        try:
            yield
        finally:
            _current.reset(token)


_current: ContextVar[Exchange | None] = ContextVar("nacre_model_exchange", default=None)


def current_exchange() -> Exchange:
    """The current exchange; raises ProviderError if there is none to check the request."""
    exchange = _current.get()
    if exchange is None:
        raise ProviderError("a request to a model was not sent: it belongs to no exchange")
    return exchange


def sent_payload(body: bytes) -> SentPayload:
    """The tools and the size of a body; raises UnreadableToolsError."""
    try:
        content = decode_json(body)
    except NotJsonError as error:
        raise UnreadableToolsError(f"its body {error.problem}") from None
    if not isinstance(content, dict):
        raise UnreadableToolsError("its body is not a JSON object")
    lists = list(_tool_lists(content))
    names = [name for tools in lists for tool in tools for name in _names_of(tool)]
    # An empty object counts, because it enables `web_search_options`.
    hidden = [key for key in _HIDDEN_TOOL_KEYS if content.get(key) not in (None, "", [])]
    return SentPayload(
        tool_names=(*names, *hidden),
        tool_bytes=sum(len(encode_json(tools)) for tools in lists if tools),
        payload_bytes=len(body),
    )


def _tool_lists(content: JsonObject) -> Iterator[list[JsonValue]]:
    for key in _TOOL_KEYS:
        tools = content.get(key)
        if tools is None:
            continue
        if not isinstance(tools, list):
            raise UnreadableToolsError(f"`{key}` in its body is not a list")
        yield tools
    # OpenAI Responses can also declare tools within the conversation.
    items = content.get("input")
    for item in items if isinstance(items, list) else []:
        if isinstance(item, dict) and "tools" in item and not _is_message(item):
            yield from _tool_lists({"tools": item["tools"]})


def _is_message(item: JsonObject) -> bool:
    # A role is not enough, because items that declare tools have one too.
    return "role" in item and item.get("type", "message") == "message"


def _names_of(tool: JsonValue) -> Iterator[str]:
    """The names in one item of `tools`.

    Chat: `function.name`; Responses and Anthropic: `name`; Google: `functionDeclarations[].name`.
    A built-in tool of a provider has a type instead of a name, or is just a key.
    """
    if not isinstance(tool, dict) or not tool:
        raise UnreadableToolsError("a tool in its body is not an object with members")
    declared = [tool.get(key) for key in _GOOGLE_KEYS if key in tool]
    if declared:
        for functions in declared:
            if not isinstance(functions, list):
                raise UnreadableToolsError("`functionDeclarations` in its body is not a list")
            for function in functions:
                yield _name_in(function)
        yield from (key for key in tool if key not in _GOOGLE_KEYS)
    elif tool.get("type") not in _FUNCTION_TYPES:
        yield str(tool["type"])
    elif "function" in tool:
        yield _name_in(tool["function"])
    elif "name" in tool:
        yield _name_in(tool)
    else:
        yield from tool


def _name_in(function: JsonValue) -> str:
    name = function.get("name") if isinstance(function, dict) else None
    if not isinstance(name, str):
        raise UnreadableToolsError("a tool in its body has no name")
    return name


"""Several times the size of the longest responses, including the overhead of a stream."""


async def read_event_data(response: httpx2.Response) -> AsyncIterator[bytes]:
    """The data of each event of a stream of server-sent events."""
    buffer = bytearray()
    data: list[bytes] = []
    scanned = 0
    async for chunk in response.aiter_raw():
        buffer += chunk
        start = 0
        while (end := buffer.find(b"\n", max(start, scanned))) >= 0:
            line = bytes(buffer[start:end]).removesuffix(b"\r")
            start = end + 1
            if line.startswith(b"data:"):
                data.append(line[5:].removeprefix(b" "))
            elif not line and data:
                yield b"\n".join(data)
                data = []
        del buffer[:start]
        # A long line is searched once.
        scanned = len(buffer)
    # Some servers leave out the last empty line.
    if buffer.startswith(b"data:"):
        data.append(bytes(buffer[5:]).strip())
    if data:
        yield b"\n".join(data)


@dataclass(frozen=True, kw_only=True, slots=True)
class SseEvent:
    """One event of a stream; the data of a large event is truncated."""

    kind: str
    size_bytes: int
    data: JsonValue


class SseParser:
    """An incremental parser of server-sent events."""

    def __init__(self) -> None:
        self._line = bytearray()
        self._is_blank_line = True
        self._size_bytes = 0
        self._name = ""
        self._data: list[bytes] = []
        self._parsed_bytes = 0

    def feed(self, chunk: bytes) -> Iterator[SseEvent]:
        """The events that end in this chunk."""
        for part in chunk.splitlines(keepends=True):
            self._size_bytes += len(part)
            head = part[: _MAX_EVENT_BYTES - self._parsed_bytes]
            self._line += head
            self._parsed_bytes += len(head)
            self._is_blank_line = self._is_blank_line and not part.strip(b"\r\n")
            if part.endswith(b"\n"):
                if self._is_blank_line:
                    yield from self._finish_event()
                else:
                    self._parse_line(bytes(self._line).strip(b"\r\n"))
                self._line.clear()
                self._is_blank_line = True

    def _parse_line(self, line: bytes) -> None:
        field, _, value = line.partition(b":")
        if field == b"event":
            self._name = value.strip().decode(errors="replace")
        elif field == b"data":
            self._data.append(value.strip())

    def _finish_event(self) -> Iterator[SseEvent]:
        if self._data or self._name:
            data = _parse_data(b"\n".join(self._data))
            yield SseEvent(
                kind=self._name or _find_kind(data), size_bytes=self._size_bytes, data=data
            )
        self._size_bytes = self._parsed_bytes = 0
        self._name = ""
        self._data = []


def _parse_data(data: bytes) -> JsonValue:
    try:
        return decode_json(data)
    except NotJsonError:
        return data.decode(errors="replace")


def _find_kind(data: JsonValue) -> str:
    if isinstance(data, dict):
        for key in ("type", "object"):
            kind = data.get(key)
            if isinstance(kind, str):
                return kind
    return "message" if isinstance(data, dict) else str(data)[:20]


class WireLog:
    """Writes the debug logs of one provider that are enabled."""

    def __init__(self, flags: DebugFlags, secrets: ProviderSecrets) -> None:
        self.flags = flags
        self.secrets = secrets

    def log_request(self, *, method: str, url: str, body: bytes, attempt: int) -> RequestLog:
        """Log a request just before it is sent."""
        address = self.secrets.url(url)
        if self.flags.model_transport:
            debug_log("model_transport").info(
                "%s %s: attempt %d, %d bytes", method, address, attempt, len(body)
            )
        if self.flags.model_payload is not None:
            debug_log("model_payload").info(
                "%s: %s", address, self._format_payload(body, self.flags.model_payload)
            )
        return RequestLog(self, f"{method} {address}")

    def _format_payload(self, body: bytes, detail: PayloadLog) -> str:
        try:
            if detail == "tools":
                payload = sent_payload(body)
                names = ", ".join(payload.tool_names) or "none"
                return self.secrets.text(f"tools: {names} ({payload.tool_bytes} bytes)")
            return encode_json(self.secrets.value(decode_json(body))).decode()
        except (NotJsonError, UnreadableToolsError) as error:
            return self.secrets.text(f"cannot be logged: {error}")


class RequestLog:
    """Logs the response to one request."""

    def __init__(self, log: WireLog, title: str) -> None:
        self._log = log
        self._title = title
        self._started = time.monotonic()
        self._received_bytes = 0
        self._event_count = 0
        self._parser = SseParser()

    @property
    def wants_content(self) -> bool:
        """Whether to call `log_chunk`."""
        return self._log.flags.model_transport or self._log.flags.sse is not None

    def log_status(self, status: int) -> None:
        if self._log.flags.model_transport:
            debug_log("model_transport").info(
                "%s: status %d after %.0f ms", self._title, status, self._milliseconds()
            )

    def log_chunk(self, chunk: bytes) -> None:
        self._received_bytes += len(chunk)
        if self._log.flags.sse is None:
            return
        for event in self._parser.feed(chunk):
            self._event_count += 1
            kind = self._log.secrets.text(event.kind, max_characters=80)
            if self._log.flags.sse == "events":
                debug_log("sse").info("%d: %s, %d bytes", self._event_count, kind, event.size_bytes)
            elif self._event_count <= _MAX_LOGGED_EVENTS:
                text = encode_json(self._log.secrets.value(event.data)).decode()
                truncated = text[:_MAX_LOGGED_CHARACTERS]
                debug_log("sse").info("%d: %s: %s", self._event_count, kind, truncated)

    def log_end(self) -> None:
        if self._log.flags.model_transport:
            debug_log("model_transport").info(
                "%s: ended after %.0f ms, %d bytes received",
                self._title,
                self._milliseconds(),
                self._received_bytes,
            )

    def _milliseconds(self) -> float:
        return (time.monotonic() - self._started) * 1000


class ResponseRefusedError(Exception):
    """The response is too large or compressed, and is not read further."""


def model_http_client(*, timeout_seconds: float, secrets: ProviderSecrets) -> httpx2.AsyncClient:
    """Create the client; `timeout_seconds` is the limit without any byte of the response."""
    log = WireLog(get_debug_flags(), secrets)
    is_logged = log.flags.is_any_on
    connect_seconds = min(CONNECT_SECONDS, timeout_seconds)

    async def before_request(request: httpx2.Request) -> None:
        # The SDK of Google sets one limit for everything.
        timeout = cast("dict[str, float | None]", request.extensions.get("timeout", {}))
        if (timeout.get("connect") or connect_seconds) > connect_seconds:
            timeout["connect"] = connect_seconds
        exchange = current_exchange()
        body = _body_of(request)
        exchange.inspect(body)
        if is_logged:
            request.extensions = {
                **request.extensions,
                _LOG_KEY: log.log_request(
                    method=request.method,
                    url=str(request.url),
                    body=body,
                    attempt=exchange.attempt,
                ),
            }

    async def after_response(response: httpx2.Response) -> None:
        request_log = cast("RequestLog | None", response.request.extensions.get(_LOG_KEY))
        if request_log is not None:
            request_log.log_status(response.status_code)
        _refuse_if_compressed(response)
        stream = cast("httpx2.AsyncByteStream", response.stream)
        response.stream = _LimitedStream(stream, request_log)

    return httpx2.AsyncClient(
        timeout=httpx2.Timeout(timeout_seconds, connect=connect_seconds),
        limits=_LIMITS,
        headers={
            "User-Agent": "nacre",
            # A small compressed response could expand to gigabytes in memory before it is counted.
            "Accept-Encoding": "identity",
        },
        event_hooks={"request": [before_request], "response": [after_response]},
    )


def _body_of(request: httpx2.Request) -> bytes:
    try:
        return request.content
    except httpx2.RequestNotRead:
        # A streamed body; Nacre sends none, and a check could not read it.
        return b""


def _refuse_if_compressed(response: httpx2.Response) -> None:
    encoding = response.headers.get("Content-Encoding", "identity")
    if encoding.strip().lower() not in ("", "identity"):
        raise ResponseRefusedError(
            f"the response is compressed ({encoding[:40]!r}), which the request did not accept"
        )


class _LimitedStream(httpx2.AsyncByteStream):
    """Limits and logs the bytes of a response."""

    def __init__(self, stream: httpx2.AsyncByteStream, log: RequestLog | None) -> None:
        self._stream = stream
        self._log = log if log is not None and log.wants_content else None

    async def __aiter__(self) -> AsyncIterator[bytes]:
        received_bytes = 0
        async for chunk in self._stream:
            received_bytes += len(chunk)
            if received_bytes > MAX_RESPONSE_BYTES:
                raise ResponseRefusedError(f"the response has more than {MAX_RESPONSE_BYTES} bytes")
            if self._log is not None:
                self._log.log_chunk(chunk)
            yield chunk

    async def aclose(self) -> None:
        await self._stream.aclose()
        if self._log is not None:
            self._log.log_end()
