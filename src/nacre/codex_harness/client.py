"""JSON-RPC with one app-server process: requests, notifications and requests of the server.

The wire has one JSON object per line, without a `jsonrpc` member. One task reads it and never waits
for a handler: notifications are passed on at once, and each request of the server is answered in a
task of its own.
"""

from __future__ import annotations

import itertools
import logging
import math
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

import anyio
import anyio.lowlevel

from nacre.backoff import RetryPolicy
from nacre.errors import (
    AbortedError,
    AppServerClosedError,
    AppServerError,
    AppServerTimeoutError,
    CodexError,
    RequestRefusedError,
)
from nacre.json_lines import EndlessLineError, LineReader, LongLine, encode_line, read_edges
from nacre.json_types import NotJsonError, decode_json
from nacre.large_json import decode_off_loop

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from anyio.abc import ByteReceiveStream, ByteSendStream, TaskGroup

    from nacre.json_types import JsonObject, JsonValue
    from nacre.mcp_client import OutputTail
    from nacre.run_context import AbortSignal

logger = logging.getLogger(__name__)

_MAX_LINE_BYTES: Final = 64 * 1024 * 1024
_MAX_SKIPPED_BYTES: Final = 4 * _MAX_LINE_BYTES
# Other sessions have a turn after so many lines; a chunk may have hundreds.
_MAX_LINES_AT_ONCE: Final = 32
# A longer line is decoded in a thread.
_MAX_QUICK_BYTES: Final = 1 << 18
# A server that wrote a line break inside of a text: its lines are joined again.
_MAX_JOINED_BYTES: Final = 1 << 20
_MAX_JOINED_LINES: Final = 1_000
_MIN_TIMEOUT_SECONDS: Final = 0.1
# A server that works answers this unknown method at once, with an error.
PROBE: Final = "nacre/probe"
_MAX_PROBE_SECONDS: Final = 15.0
_MAX_SILENT_SECONDS: Final = 60.0
# What has arrived while this process itself was slow is read within this time.
_READ_SECONDS: Final = 0.2
_OVERLOADED: Final = -32001
_RETRIES: Final = RetryPolicy(max_retries=6, first_seconds=0.1, max_seconds=3.0)
_INVALID_REQUEST: Final = -32600
_METHOD_NOT_FOUND: Final = -32601
_INTERNAL_ERROR: Final = -32603
_CLOSED_ERRORS: Final = (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError)


class Version(NamedTuple):
    """The version of an app-server."""

    major: int
    minor: int
    patch: int

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}.{self.patch}"


class ThreadListener(Protocol):
    """Gets the notifications and requests of one thread."""

    def on_notification(self, method: str, params: JsonObject, /) -> None:
        """Called in the order of arrival; it must not block."""
        ...

    async def on_request(self, method: str, params: JsonObject, /) -> JsonValue:
        """Answer a request of the server; runs in a task of its own.

        Raise RequestRefusedError for an error. `refuse_request` gives the safe answer. Cancelled if
        the server does not need the answer any more.
        """
        ...


@dataclass(kw_only=True, slots=True)
class _Waiter:
    method: str
    answered: anyio.Event = field(default_factory=anyio.Event)
    result: JsonValue = None
    error: CodexError | None = None
    on_late: Callable[[JsonValue], object] | None = None
    """Set when nobody waits any more: called with a result that comes after all."""
    on_overload: Callable[[], object] | None = None
    """Called if the server has not even begun with the request."""


class AppServerClient:
    """The connection to one app-server. `run` has to be running while it is used."""

    def __init__(
        self,
        *,
        input: ByteSendStream,
        output: ByteReceiveStream,
        tail: OutputTail,
        describe_end: Callable[[], Awaitable[str]],
        kill: Callable[[], object],
        request_timeout_seconds: float,
    ) -> None:
        """`kill` ends the process, which is called if it does not answer at all."""
        self.version = Version(0, 0, 0)
        """From the handshake."""
        self._input = input
        self._output = output
        self._tail = tail
        self._describe_end = describe_end
        self._kill = kill
        self._request_timeout_seconds = request_timeout_seconds
        self._outgoing, self._to_write = anyio.create_memory_object_stream[bytes](math.inf)
        self._waiters: dict[int, _Waiter] = {}
        self._last_id = 0
        self._listeners: dict[str, ThreadListener] = {}
        self._open_requests: dict[str, anyio.CancelScope] = {}
        self._tasks: TaskGroup | None = None
        self._closed = anyio.Event()
        self._closed_error: AppServerClosedError | None = None
        self._broken_lines: list[bytes] = []
        self._received_at = 0.0
        self._is_probing = False
        self._is_silent = False

    # What callers do.

    async def request(
        self,
        method: str,
        params: JsonObject,
        *,
        timeout_seconds: float | None = None,
        abort: AbortSignal | None = None,
        on_late: Callable[[JsonValue], object] | None = None,
    ) -> JsonValue:
        """Send a request and wait for its result; a server that is overloaded is asked again.

        Raises AppServerError, AppServerTimeoutError, AppServerClosedError, and AbortedError. A
        result that comes after a timeout or an abort is passed to `on_late`.
        """
        for attempt in itertools.count(1):
            try:
                return await self._request_once(
                    method, params, timeout_seconds=timeout_seconds, abort=abort, on_late=on_late
                )
            except AppServerError as error:
                delay = _RETRIES.delay_seconds(attempt, requested_seconds=None)
                # It has not begun with the request: nothing is done twice.
                if error.code != _OVERLOADED or delay is None:
                    raise
            with nullcontext() if abort is None else abort.cancelling():
                await anyio.sleep(delay)
            if abort is not None:
                abort.raise_if_aborted()
        raise AssertionError

    async def _request_once(
        self,
        method: str,
        params: JsonObject,
        *,
        timeout_seconds: float | None,
        abort: AbortSignal | None,
        on_late: Callable[[JsonValue], object] | None,
    ) -> JsonValue:
        waiter = _Waiter(method=method)
        request_id = self._send_request(method, params, waiter)
        limit = max(timeout_seconds or self._request_timeout_seconds, _MIN_TIMEOUT_SECONDS)
        try:
            with (
                nullcontext() if abort is None else abort.cancelling(),
                anyio.move_on_after(limit) as timer,
            ):
                await waiter.answered.wait()
        finally:
            if not waiter.answered.is_set():
                waiter.on_late = on_late
                if on_late is None:
                    self._waiters.pop(request_id, None)
        if not waiter.answered.is_set():
            if timer.cancelled_caught:
                self.check_alive()
                raise AppServerTimeoutError(
                    f"Codex did not answer {method} within {limit:g} seconds"
                )
            raise AbortedError(abort.reason if abort else "")
        if waiter.error is not None:
            raise waiter.error
        return waiter.result

    def post(self, method: str, params: JsonObject) -> None:
        """Send a request whose result nobody needs; a server that is overloaded is asked again."""
        if self._closed_error is None:
            waiter = _Waiter(method=method, on_overload=partial(self._post_again, method, params))
            self._send_request(method, params, waiter)

    def _post_again(self, method: str, params: JsonObject) -> None:
        async def repeat() -> None:
            with suppress(CodexError):
                await self.request(method, params)

        if self._tasks is not None:
            self._tasks.start_soon(repeat)

    def check_alive(self) -> None:
        """Kill the process if it answers nothing at all, such as one that was stopped.

        The connection ends, and the next use starts another process. Does not wait.
        """
        if self._tasks is not None and self._closed_error is None and not self._is_probing:
            self._is_probing = True
            self._tasks.start_soon(self._probe)

    async def watch(self) -> None:
        """Check the process whenever it has been silent for a while."""
        while True:
            await anyio.sleep(_MAX_SILENT_SECONDS)
            if anyio.current_time() - self._received_at >= _MAX_SILENT_SECONDS:
                self.check_alive()

    def notify(self, method: str, params: JsonObject) -> None:
        """Send a notification."""
        self._send({"method": method, "params": params})

    def subscribe(self, thread_id: str, listener: ThreadListener) -> Callable[[], None]:
        """Pass on what concerns this thread; with an empty id, what concerns no thread.

        A thread has one listener. Returns a function that unsubscribes.
        """
        self._listeners[thread_id] = listener

        def unsubscribe() -> None:
            if self._listeners.get(thread_id) is listener:
                del self._listeners[thread_id]

        return unsubscribe

    def find_listener(self, thread_id: str) -> ThreadListener | None:
        return self._listeners.get(thread_id)

    async def wait_closed(self) -> AppServerClosedError:
        """Return when the process has ended or its output is closed, with the reason."""
        await self._closed.wait()
        assert self._closed_error is not None
        return self._closed_error

    @property
    def is_closed(self) -> bool:
        return self._closed_error is not None

    # The connection.

    async def run(self) -> None:
        """Read and write until the output of the server ends."""
        try:
            async with anyio.create_task_group() as tasks:
                self._tasks = tasks
                tasks.start_soon(self._write)
                await self._read()
                tasks.cancel_scope.cancel()
        finally:
            with anyio.CancelScope(shield=True):
                self._close(await self._describe_end())

    async def _probe(self) -> None:
        sent_at = anyio.current_time()
        self.post(PROBE, {})
        await anyio.sleep(_MAX_PROBE_SECONDS)
        await anyio.sleep(_READ_SECONDS)
        self._is_probing = False
        if self._received_at < sent_at:
            self._is_silent = True
            # Its output ends, and with it the connection.
            self._kill()

    async def _read(self) -> None:
        lines = LineReader(max_bytes=_MAX_LINE_BYTES, max_skipped_bytes=_MAX_SKIPPED_BYTES)
        try:
            async for chunk in self._output:
                self._received_at = anyio.current_time()
                for count, line in enumerate(lines.feed(chunk), start=1):
                    if not count % _MAX_LINES_AT_ONCE:
                        await anyio.lowlevel.checkpoint()
                    if isinstance(line, LongLine):
                        self._receive_long(line)
                    elif (message := await self._parse(line)) is not None:
                        self._receive(message)
        except EndlessLineError:
            self._tail.add(b"it sent a line without an end\n")
        except _CLOSED_ERRORS:
            pass

    async def _parse(self, line: bytes) -> JsonObject | None:
        try:
            is_quick = len(line) <= _MAX_QUICK_BYTES
            message = decode_json(line) if is_quick else await decode_off_loop(line)
        except NotJsonError:
            return self._join(line)
        self._broken_lines.clear()
        if isinstance(message, dict):
            return message
        self._tail.add_line(line, label="unexpected output")
        return None

    def _join(self, line: bytes) -> JsonObject | None:
        """Try to complete a message that was broken into several lines."""
        if not self._broken_lines and not line.lstrip().startswith(b"{"):
            self._tail.add_line(line, label="unexpected output")
            return None
        self._broken_lines.append(line)
        if (
            len(self._broken_lines) > _MAX_JOINED_LINES
            or sum(map(len, self._broken_lines)) > _MAX_JOINED_BYTES
        ):
            self._tail.add_line(self._broken_lines[0], label="unexpected output")
            self._broken_lines.clear()
            return None
        if not line.rstrip().endswith(b"}"):
            return None
        try:
            message = decode_json(b"\\n".join(self._broken_lines))
        except NotJsonError:
            return None
        self._broken_lines.clear()
        return message if isinstance(message, dict) else None

    def _receive_long(self, line: LongLine) -> None:
        """Answer a request that is too long with an error; a long response fails its request."""
        self._tail.add(b"it sent a message of %d bytes\n" % line.size_bytes)
        ends = read_edges(line.start, line.end)
        if isinstance(ends, dict) and "id" in ends:
            error: JsonObject = {
                "code": _INTERNAL_ERROR,
                "message": f"the message has {line.size_bytes} bytes",
            }
            if "method" in ends:
                self._send({"id": ends["id"], "error": error})
            else:
                self._receive({"id": ends["id"], "error": error})

    def _receive(self, message: JsonObject) -> None:
        method, found = message.get("method"), message.get("params")
        params = found if isinstance(found, dict) else {}
        if not isinstance(method, str):
            self._receive_response(message)
        elif "id" in message:
            assert self._tasks is not None
            self._tasks.start_soon(self._answer, message["id"], method, params)
        else:
            if method == "serverRequest/resolved":
                self._withdraw_request(params.get("requestId"))
            self._pass_on(method, params)

    def _withdraw_request(self, request_id: JsonValue) -> None:
        """The server has decided itself, for example because its turn was interrupted."""
        scope = self._open_requests.get(str(request_id))
        if scope is not None:
            scope.cancel()

    def _receive_response(self, message: JsonObject) -> None:
        request_id = message.get("id")
        waiter = self._waiters.pop(request_id, None) if isinstance(request_id, int) else None
        if waiter is None:
            return
        error = message.get("error")
        if error is not None:
            waiter.error = _to_error(waiter.method, error)
            if waiter.on_overload is not None and waiter.error.code == _OVERLOADED:
                waiter.on_overload()
        else:
            waiter.result = message.get("result")
            if waiter.on_late is not None:
                waiter.on_late(waiter.result)
        waiter.answered.set()

    def _pass_on(self, method: str, params: JsonObject) -> None:
        listener = self._listeners.get(_thread_of(params))
        if listener is None:
            return
        try:
            listener.on_notification(method, params)
        except Exception:
            # One turn must not end those of other threads.
            logger.exception("the notification %s of Codex cannot be processed", method)

    async def _answer(self, request_id: JsonValue, method: str, params: JsonObject) -> None:
        answer: JsonObject | None = None
        with anyio.CancelScope() as scope:
            self._open_requests[str(request_id)] = scope
            try:
                answer = await self._find_answer(method, params)
            finally:
                # A server may use an id twice; then the later request has replaced this one.
                if self._open_requests.get(str(request_id)) is scope:
                    del self._open_requests[str(request_id)]
        if answer is not None:
            self._send({"id": request_id, **answer})

    async def _find_answer(self, method: str, params: JsonObject) -> JsonObject:
        listener = self._listeners.get(_thread_of(params))
        try:
            if listener is None:
                result = refuse_request(method)
            else:
                result = await listener.on_request(method, params)
        except RequestRefusedError as error:
            return {"error": {"code": error.code, "message": error.message}}
        except Exception as error:
            logger.exception("the request %s of Codex cannot be answered", method)
            message = f"the request failed: {type(error).__name__}"
            return {"error": {"code": _INTERNAL_ERROR, "message": message}}
        return {"result": result}

    def _send_request(self, method: str, params: JsonObject, waiter: _Waiter | None) -> int:
        if self._closed_error is not None:
            raise self._closed_error
        self._last_id += 1
        if waiter is not None:
            self._waiters[self._last_id] = waiter
        self._send({"id": self._last_id, "method": method, "params": params})
        return self._last_id

    def _send(self, message: JsonObject) -> None:
        if self._closed_error is None:
            # Half a surrogate pair becomes U+FFFD: Codex would refuse the line.
            self._outgoing.send_nowait(encode_line(message))

    async def _write(self) -> None:
        try:
            async for line in self._to_write:
                await self._input.send(line)
        except _CLOSED_ERRORS:
            # The reader finds out why.
            pass

    def _close(self, end: str) -> None:
        output = "\n".join(self._tail.lines)
        said = f"; its last output:\n{output}" if output else ""
        if self._is_silent:
            end = "did not answer any more, and Nacre has ended it"
        self._closed_error = AppServerClosedError(f"the Codex app-server {end}{said}")
        for waiter in self._waiters.values():
            waiter.error = self._closed_error
            waiter.answered.set()
        self._waiters.clear()
        self._listeners.clear()
        self._outgoing.close()
        self._to_write.close()
        self._closed.set()


def refuse_request(method: str) -> JsonValue:
    """The safe answer to a request of the server that nobody handles.

    Raises RequestRefusedError for an unknown one.
    """
    match method:
        case "item/tool/call":
            text = "the tool cannot be called: no turn of Nacre is active on this thread"
            return {"contentItems": [{"type": "inputText", "text": text}], "success": False}
        case "item/commandExecution/requestApproval" | "item/fileChange/requestApproval":
            return {"decision": "decline"}
        case "execCommandApproval" | "applyPatchApproval":
            return {"decision": "denied"}
        case "item/permissions/requestApproval":
            return {"permissions": {}, "scope": "turn"}
        case "item/tool/requestUserInput":
            return {"answers": {}}
        case "mcpServer/elicitation/request":
            return {"action": "decline", "content": None, "_meta": None}
        case _:
            raise RequestRefusedError(_METHOD_NOT_FOUND, f"Nacre does not handle {method}")


def is_unsupported(error: AppServerError) -> bool:
    """Whether the app-server does not know the method. Newer ones call it an unknown variant."""
    unknown = f"unknown variant `{error.method}`"
    return error.code == _METHOD_NOT_FOUND or (
        error.code == _INVALID_REQUEST and unknown in error.message
    )


def _thread_of(params: JsonObject) -> str:
    found = params.get("threadId") or params.get("conversationId")
    return found if isinstance(found, str) else ""


def _to_error(method: str, error: JsonValue) -> AppServerError:
    found = error if isinstance(error, dict) else {}
    code, message = found.get("code"), found.get("message")
    return AppServerError(
        method,
        code=code if isinstance(code, int) else _INTERNAL_ERROR,
        message=message if isinstance(message, str) else "it gave no reason",
    )
