"""Opens the transport to a server and exchanges JSON-RPC messages. Imports the SDK.

It uses the dispatcher of the SDK, not its session. The session rejects a whole list for one invalid
tool, validates results with schemas of an untrusted server, and drops unknown members.
"""

from __future__ import annotations

import itertools
import logging
import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, assert_never, cast

import anyio
from mcp.shared.exceptions import MCPError
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp.shared.message import SessionMessage
from mcp_types import CONNECTION_CLOSED, INVALID_REQUEST, JSONRPCError

from nacre.large_json import decode_off_loop, encode_off_loop
from nacre.mcp_client.handshake import BEFORE_HANDSHAKE, Era, negotiate_era
from nacre.mcp_client.http_transport import open_http, open_sse
from nacre.mcp_client.oauth import build_login
from nacre.mcp_client.stdio_transport import open_stdio
from nacre.mcp_client.upstream import PeerLostError, RpcError, UpstreamRefusal

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping
    from contextlib import AbstractAsyncContextManager, AbstractContextManager
    from types import TracebackType
    from typing import Self

    from anyio.abc import TaskGroup, TaskStatus
    from mcp.shared.dispatcher import CallOptions, DispatchContext
    from mcp.shared.transport_context import TransportContext

    from nacre.config import McpServerConfig
    from nacre.json_types import JsonObject, JsonValue
    from nacre.mcp_client.handshake import ServerFacts
    from nacre.mcp_client.process import OutputTail
    from nacre.mcp_client.transport import Transport
    from nacre.mcp_client.upstream import UpstreamGate


SERVERS_OWN_CODE: Final = CONNECTION_CLOSED - 1_000_000
"""Replaces the SDK's code for a lost connection if it comes from the server."""

# The HTTP transport of the SDK reports a broken stream with such a message.
_SDK_ERROR_PREFIX: Final = "SSE stream "


class IncomingMessages:
    """The messages of a transport without requests that are too many.

    Errors of the server have SERVERS_OWN_CODE: many servers use the code of a lost connection for
    their own errors. A transport of the SDK can report such errors as well; these keep their code.
    """

    def __init__(self, transport: Transport) -> None:
        self._stream = transport.streams[0]
        self._inflow = transport.inflow
        self._has_sdk_errors = transport.pid is None

    @property
    def last_context(self) -> object:
        return getattr(self._stream, "last_context", None)

    async def receive(self) -> SessionMessage | Exception:
        while True:
            item = await self._stream.receive()
            if self._admits(item):
                return self._mark_server_error(item)

    async def aclose(self) -> None:
        await self._stream.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        while True:
            item = await self._stream.__anext__()
            if self._admits(item):
                return self._mark_server_error(item)

    async def __aenter__(self) -> Self:
        await self._stream.__aenter__()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> bool | None:
        return await self._stream.__aexit__(exc_type, exc_val, exc_tb)

    def _admits(self, item: SessionMessage | Exception) -> bool:
        return not isinstance(item, SessionMessage) or self._inflow.admits(item.message)

    def _mark_server_error(self, item: SessionMessage | Exception) -> SessionMessage | Exception:
        if not isinstance(item, SessionMessage) or not isinstance(item.message, JSONRPCError):
            return item
        error = item.message.error
        is_of_sdk = self._has_sdk_errors and error.message.startswith(_SDK_ERROR_PREFIX)
        if error.code == CONNECTION_CLOSED and not is_of_sdk:
            error.code = SERVERS_OWN_CODE
        return item


class OutgoingMessages:
    """The messages to a server, of which the inflow of the transport gets to know the responses."""

    def __init__(self, transport: Transport) -> None:
        self._stream = transport.streams[1]
        self._inflow = transport.inflow

    async def send(self, item: SessionMessage, /) -> None:
        await self._stream.send(item)
        self._inflow.note_sent(item.message)

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def __aenter__(self) -> Self:
        await self._stream.__aenter__()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> bool | None:
        return await self._stream.__aexit__(exc_type, exc_val, exc_tb)


_MAX_INPUT_ROUNDS: Final = 10
_POLL_SECONDS: Final = 0.25
_REPLACEMENT: Final = "\N{REPLACEMENT CHARACTER}".encode()
_MAX_ERROR_CHARACTERS: Final = 4_000


class Peer:
    """A connection to a server. Call `request` after `run` has started and `negotiate` returned."""

    def __init__(
        self,
        transport: Transport,
        *,
        tasks: TaskGroup,
        gate: UpstreamGate,
        on_list_changed: Callable[[], None],
    ) -> None:
        self._transport = transport
        self._tasks = tasks
        self._dispatcher = JSONRPCDispatcher(
            IncomingMessages(transport),
            OutgoingMessages(transport),
            on_stream_exception=_ignore_exception,
        )
        self._gate = gate
        self._on_list_changed = on_list_changed
        self._era: Era = BEFORE_HANDSHAKE
        self._progress: dict[int, Callable[[JsonObject], None]] = {}
        self._tokens = itertools.count(1)
        self.closed = anyio.Event()

    @property
    def pid(self) -> int | None:
        return self._transport.pid

    async def describe_end(self) -> str:
        """Describe why the connection ended. Call it when `closed` is set."""
        return await self._transport.describe_end()

    async def run(self, *, task_status: TaskStatus[None]) -> None:
        """Read messages until the connection ends."""
        try:
            await self._dispatcher.run(
                self._answer_request,
                _ignore_notification,
                self._handle_notification,
                task_status=task_status,
            )
        finally:
            self.closed.set()

    async def negotiate(self) -> ServerFacts:
        """Negotiate the protocol version. Raises PeerLostError and RpcError."""
        facts, self._era = await negotiate_era(self._send, self._gate.capabilities())
        if facts.is_modern:
            self._tasks.start_soon(self._listen)
        else:
            options: CallOptions = {}
            self._era.stamp("notifications/initialized", {}, options)
            await self._dispatcher.notify("notifications/initialized", None, options)
        return facts

    async def _listen(self) -> None:
        """Subscribe to changes of the tool list, which the newer protocol requires."""
        try:
            await self._send("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
        except (RpcError, PeerLostError):
            # The server does not support it, so its list does not change.
            return

    async def request(
        self,
        method: str,
        params: JsonObject,
        *,
        on_progress: Callable[[JsonObject], None] | None = None,
    ) -> JsonObject:
        """Send a request and return the result. Raises PeerLostError, RpcError, NotJsonError."""
        token = next(self._tokens)
        if on_progress is not None:
            params = {**params, "_meta": {"progressToken": token}}
            self._progress[token] = on_progress
        try:
            return await self._complete_result(method, params)
        finally:
            self._progress.pop(token, None)

    async def _complete_result(self, method: str, params: JsonObject) -> JsonObject:
        """Send a request, again with answers if the result asks for input (newer protocol)."""
        result = await self._send(method, params)
        for _ in range(_MAX_INPUT_ROUNDS):
            if result.get("resultType") != "input_required":
                return result
            again = dict(params)
            if result.get("inputRequests"):
                again["inputResponses"] = await self._answers(result["inputRequests"])
            else:
                await anyio.sleep(_POLL_SECONDS)
            if "requestState" in result:
                again["requestState"] = result["requestState"]
            result = await self._send(method, again)
        problem = f"the server asked for more input {_MAX_INPUT_ROUNDS} times without a result"
        raise RpcError(INVALID_REQUEST, problem)

    async def _answers(self, requests: JsonValue) -> JsonObject:
        try:
            return await self._gate.answer_all(requests)
        except UpstreamRefusal as refusal:
            raise RpcError(refusal.code, refusal.message) from refusal

    async def _send(self, method: str, params: JsonObject, era: Era | None = None) -> JsonObject:
        sent, options = await _replace_surrogates(params), cast("CallOptions", {})
        (era or self._era).stamp(method, sent, options)
        is_unsent = self.closed.is_set()
        try:
            return await self._dispatcher.send_raw_request(method, sent, options)
        except MCPError as error:
            raise self._translate_error(error, is_unsent=is_unsent) from error

    def _translate_error(self, error: MCPError, *, is_unsent: bool) -> PeerLostError | RpcError:
        message = error.message[:_MAX_ERROR_CHARACTERS]
        if error.code == CONNECTION_CLOSED:
            is_over = message == "Connection closed"
            return PeerLostError(message, is_unsent=is_unsent, is_connection_over=is_over)
        refusal = self._transport.last_refusal()
        if refusal.startswith("HTTP 404") and self._era.has_session:
            # The server was restarted and has lost the session.
            return PeerLostError(f"has lost the session: {message}", is_unsent=True)
        if refusal and message == "Server returned an error response":
            message = refusal
        code = CONNECTION_CLOSED if error.code == SERVERS_OWN_CODE else error.code
        return RpcError(code, message, error.data)

    async def _answer_request(
        self,
        context: DispatchContext[TransportContext],
        method: str,
        params: Mapping[str, Any] | None,
    ) -> dict[str, Any]:
        try:
            return await _replace_surrogates(await self._gate.answer(method, dict(params or {})))
        except UpstreamRefusal as refusal:
            raise MCPError(refusal.code, refusal.message) from refusal

    def _handle_notification(self, method: str, params: Mapping[str, Any] | None) -> bool:
        """Handle a notification, in the order of the messages. Returns True if it is handled.

        All are handled here, because the SDK would start a task for each.
        """
        match method, params:
            case "notifications/tools/list_changed", _:
                self._on_list_changed()
            case "notifications/progress", {"progressToken": int(token)}:
                listener = self._progress.get(token)
                if listener is not None:
                    listener(_read_progress(params))
            case _:
                pass
        return True


async def _replace_surrogates(params: JsonObject) -> JsonObject:
    """Replace halves of surrogate pairs, which break a connection. Raises NotJsonError."""
    # Wrapped, because the levels of the message around it count for the depth limit.
    encoded = await encode_off_loop([[[[params]]]])
    if _REPLACEMENT not in encoded:
        return dict(params)
    # Without the four brackets of the wrapping at each end.
    return cast("JsonObject", await decode_off_loop(encoded[4:-4]))


def _read_progress(params: Mapping[str, Any]) -> JsonObject:
    found: JsonObject = {}
    for key in ("progress", "total"):
        value = params.get(key)
        if isinstance(value, (int, float)) and abs(value) <= sys.float_info.max:
            found[key] = value
    if isinstance(message := params.get("message"), str):
        found["message"] = message
    return found


async def _ignore_exception(error: Exception) -> None:
    """Do nothing: the transport reports lines that are no messages."""


async def _ignore_notification(
    context: DispatchContext[TransportContext], method: str, params: Mapping[str, Any] | None
) -> None:
    """Never called: `_handle_notification` handles all notifications."""


# These loggers write whole messages, URLs and tracebacks, which contain secrets. Errors of this
# package have none. A level that the application has set is kept.
_LOG_LEVELS: Final = {
    "mcp.client": logging.CRITICAL,
    "httpx2": logging.WARNING,
    "httpcore2": logging.WARNING,
}
for _name, _level in _LOG_LEVELS.items():
    if logging.getLogger(_name).level == logging.NOTSET:
        logging.getLogger(_name).setLevel(_level)


@asynccontextmanager
async def open_peer(
    config: McpServerConfig,
    *,
    gate: UpstreamGate,
    tail: OutputTail,
    on_list_changed: Callable[[], None],
    logging_in: Callable[[], AbstractContextManager[None]],
) -> AsyncGenerator[Peer]:
    """Open a connection and start to read messages. The caller has to call `negotiate`.

    Raises OSError or ValueError if the server cannot be started, and exception groups of the SDK.
    """
    async with (
        _open_transport(config, tail, logging_in) as transport,
        anyio.create_task_group() as tasks,
    ):
        peer = Peer(transport, tasks=tasks, gate=gate, on_list_changed=on_list_changed)
        await tasks.start(peer.run)
        try:
            yield peer
        finally:
            tasks.cancel_scope.cancel()


def _open_transport(
    config: McpServerConfig,
    tail: OutputTail,
    logging_in: Callable[[], AbstractContextManager[None]],
) -> AbstractAsyncContextManager[Transport]:
    match config.transport:
        case "stdio":
            return open_stdio(config, tail)
        case "http":
            return open_http(config, tail, auth=build_login(config, logging_in))
        case "sse":
            return open_sse(config, tail, auth=build_login(config, logging_in))
        case _:
            assert_never(config.transport)
