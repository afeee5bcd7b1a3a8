"""Opens the transport to a server and exchanges JSON-RPC messages. Imports the SDK.

Built on the SDK's dispatcher instead of its session, which refuses a whole list for one bad tool,
checks results against schemas that a hostile server wrote, and drops members that it does not know.
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

from nacre.json_types import decode_json, encode_json
from nacre.mcp_client.handshake import BEFORE_HANDSHAKE, Era, negotiate_era
from nacre.mcp_client.http_transport import open_http, open_sse
from nacre.mcp_client.oauth import build_login
from nacre.mcp_client.peer_errors import PeerLostError, RpcError
from nacre.mcp_client.stdio_transport import open_stdio
from nacre.mcp_client.upstream import UpstreamRefusal

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping
    from contextlib import AbstractAsyncContextManager, AbstractContextManager
    from types import TracebackType
    from typing import Self

    from anyio.abc import TaskGroup, TaskStatus
    from mcp.shared._stream_protocols import ReadStream
    from mcp.shared.dispatcher import CallOptions, DispatchContext
    from mcp.shared.transport_context import TransportContext

    from nacre.config import McpServerConfig
    from nacre.json_types import JsonObject, JsonValue
    from nacre.mcp_client.handshake import ServerFacts
    from nacre.mcp_client.process import OutputTail
    from nacre.mcp_client.transport import Transport
    from nacre.mcp_client.upstream import UpstreamGate


SERVERS_OWN_CODE: Final = CONNECTION_CLOSED - 1_000_000
"""Stands for the SDK's code of a lost connection where the server itself answered with that."""

# By the transport over HTTP, which has no other way to say that a stream broke off.
_SDK_ERROR_PREFIX: Final = "SSE stream "


class ServerErrorStream:
    """The messages of a transport. An error with the code of a lost connection gets another one,
    unless the transport made it up: many servers use that code for errors of their own."""

    def __init__(
        self, stream: ReadStream[SessionMessage | Exception], *, is_made_up_possible: bool
    ) -> None:
        self._stream = stream
        self._is_made_up_possible = is_made_up_possible

    @property
    def last_context(self) -> object:
        return getattr(self._stream, "last_context", None)

    async def receive(self) -> SessionMessage | Exception:
        return self._mark_server_error(await self._stream.receive())

    async def aclose(self) -> None:
        await self._stream.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        return self._mark_server_error(await self._stream.__anext__())

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

    def _mark_server_error(self, item: SessionMessage | Exception) -> SessionMessage | Exception:
        if not isinstance(item, SessionMessage) or not isinstance(item.message, JSONRPCError):
            return item
        error = item.message.error
        is_made_up = self._is_made_up_possible and error.message.startswith(_SDK_ERROR_PREFIX)
        if error.code == CONNECTION_CLOSED and not is_made_up:
            error.code = SERVERS_OWN_CODE
        return item


_MAX_INPUT_ROUNDS: Final = 10
_POLL_SECONDS: Final = 0.25
_REPLACEMENT: Final = "\N{REPLACEMENT CHARACTER}".encode()
_MAX_ERROR_CHARACTERS: Final = 4_000


class Peer:
    """Use `request` once `run` has started and `shake_hands` has returned."""

    def __init__(
        self,
        transport: Transport,
        *,
        tasks: TaskGroup,
        gate: UpstreamGate,
        on_list_changed: Callable[[], None],
    ) -> None:
        read, write = transport.streams
        is_made_up_possible = transport.pid is None
        self._transport = transport
        self._tasks = tasks
        self._dispatcher = JSONRPCDispatcher(
            ServerErrorStream(read, is_made_up_possible=is_made_up_possible),
            write,
            on_stream_exception=_ignore_exception,
        )
        self._gate = gate
        self._on_list_changed = on_list_changed
        self._era: Era = BEFORE_HANDSHAKE
        self._progress: dict[int, Callable[[JsonObject], None]] = {}
        self._tokens = itertools.count(1)
        self.over = anyio.Event()

    @property
    def pid(self) -> int | None:
        return self._transport.pid

    async def how_it_ended(self) -> str:
        """For people; to be asked once it is over."""
        return await self._transport.how_it_ended()

    async def run(self, *, task_status: TaskStatus[None]) -> None:
        """Read messages until they end."""
        try:
            await self._dispatcher.run(
                self._answer_request,
                _ignore_notification,
                self._handle_notification,
                task_status=task_status,
            )
        finally:
            self.over.set()

    async def shake_hands(self) -> ServerFacts:
        """Agree on a version of the protocol; raises PeerLostError and RpcError."""
        facts, self._era = await negotiate_era(self._send, self._gate.capabilities())
        if facts.is_modern:
            self._tasks.start_soon(self._listen)
        else:
            options: CallOptions = {}
            self._era.stamp("notifications/initialized", {}, options)
            await self._dispatcher.notify("notifications/initialized", None, options)
        return facts

    async def _listen(self) -> None:
        """Stay subscribed to changes of the server's list, which come unasked otherwise."""
        try:
            await self._send("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
        except (RpcError, PeerLostError):
            # It has none; then its list is what it was when it was asked.
            return

    async def request(
        self,
        method: str,
        params: JsonObject,
        *,
        on_progress: Callable[[JsonObject], None] | None = None,
    ) -> JsonObject:
        """The result as the server sent it; raises PeerLostError, RpcError and NotJsonError."""
        token = next(self._tokens)
        if on_progress is not None:
            params = {**params, "_meta": {"progressToken": token}}
            self._progress[token] = on_progress
        try:
            return await self._complete_result(method, params)
        finally:
            self._progress.pop(token, None)

    async def _complete_result(self, method: str, params: JsonObject) -> JsonObject:
        """In the newer protocol a server answers with questions, and is asked again."""
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
        sent, options = _sendable(params), cast("CallOptions", {})
        (era or self._era).stamp(method, sent, options)
        is_unsent = self.over.is_set()
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
            # It was restarted, and knows nothing of us any more.
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
            return _sendable(await self._gate.answer(method, dict(params or {})))
        except UpstreamRefusal as refusal:
            raise MCPError(refusal.code, refusal.message) from refusal

    def _handle_notification(self, method: str, params: Mapping[str, Any] | None) -> bool:
        """Called in the order of the messages; nothing is left to the SDK, which would start a
        task for each one."""
        match method, params:
            case "notifications/tools/list_changed", _:
                self._on_list_changed()
            case "notifications/progress", {"progressToken": int(token)}:
                listener = self._progress.get(token)
                if listener is not None:
                    listener(_progress_in(params))
            case _:
                pass
        return True


def _sendable(params: JsonObject) -> JsonObject:
    """Without halves of surrogate pairs, on which a connection would break; raises NotJsonError."""
    # Wrapped: what goes around it in a message counts into the depth that can be sent.
    encoded = encode_json([[[[params]]]])
    if _REPLACEMENT not in encoded:
        return dict(params)
    # Decoded with its wrapping, which is two brackets for each of four levels.
    return cast("JsonObject", decode_json(encoded[4:-4]))


def _progress_in(params: Mapping[str, Any]) -> JsonObject:
    found: JsonObject = {}
    for key in ("progress", "total"):
        value = params.get(key)
        if isinstance(value, (int, float)) and abs(value) <= sys.float_info.max:
            found[key] = value
    if isinstance(message := params.get("message"), str):
        found["message"] = message
    return found


async def _ignore_exception(error: Exception) -> None:
    """What is no message is for the transport to tell."""


async def _ignore_notification(
    context: DispatchContext[TransportContext], method: str, params: Mapping[str, Any] | None
) -> None:
    """Never called: every notice has been taken before."""


# They log whole messages, addresses and tracebacks, in which there are secrets; what went wrong is
# told by our own errors. Whoever has set a level for one of them wants that.
_TALKATIVE: Final = {
    "mcp.client": logging.CRITICAL,
    "httpx2": logging.WARNING,
    "httpcore2": logging.WARNING,
}
for _name, _level in _TALKATIVE.items():
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
    """The server, reading its messages; hands are still to be shaken.

    Raises OSError or ValueError when it cannot be started, and groups of what the SDK raises.
    """
    async with (
        _transport_to(config, tail, logging_in) as transport,
        anyio.create_task_group() as tasks,
    ):
        peer = Peer(transport, tasks=tasks, gate=gate, on_list_changed=on_list_changed)
        await tasks.start(peer.run)
        try:
            yield peer
        finally:
            tasks.cancel_scope.cancel()


def _transport_to(
    config: McpServerConfig,
    tail: OutputTail,
    logging_in: Callable[[], AbstractContextManager[None]],
) -> AbstractAsyncContextManager[Transport]:
    match config.transport:
        case "stdio":
            return open_stdio(config, tail)
        case "http":
            return open_http(config, auth=build_login(config, logging_in))
        case "sse":
            return open_sse(config, auth=build_login(config, logging_in))
        case _:
            assert_never(config.transport)
