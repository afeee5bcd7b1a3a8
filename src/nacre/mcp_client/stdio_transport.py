"""The stdio transport: a server process that exchanges lines of JSON.

It replaces the transport of the SDK, which does not limit the length of a line, drops a line with
half a surrogate pair, so that a call never returns, and closes the connection when it has to send
one.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final, TypeAlias

import anyio
from mcp.client.stdio import get_default_environment
from mcp.shared.message import SessionMessage
from mcp_types import (
    PARSE_ERROR,
    ErrorData,
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
    jsonrpc_message_adapter,
)
from pydantic import ValidationError

from nacre.json_lines import (
    EDGE_BYTES,
    EndlessLineError,
    Line,
    LineReader,
    LongLine,
    read_edges,
    response_id,
)
from nacre.json_types import JsonValue, NotJsonError
from nacre.large_json import decode_off_loop, encode_pieces_off_loop
from nacre.mcp_client.process import ServerProcess
from nacre.mcp_client.transport import MAX_MESSAGE_BYTES, Inflow, Transport

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from anyio.abc import ByteReceiveStream
    from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

    from nacre.config import McpServerConfig
    from nacre.mcp_client.process import OutputTail

    _Incoming: TypeAlias = MemoryObjectSendStream[SessionMessage | Exception]
    _Outgoing: TypeAlias = MemoryObjectReceiveStream[SessionMessage]

# A line of more bytes is treated as endless.
_MAX_SKIPPED_BYTES: Final = 16 * MAX_MESSAGE_BYTES
# A cancellation notice must not wait for a server that does not read.
_OUTGOING_MESSAGES: Final = 64
_LAST_OUTPUT_SECONDS: Final = 0.5
_CLOSED_ERRORS: Final = (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError)


@asynccontextmanager
async def open_stdio(config: McpServerConfig, tail: OutputTail) -> AsyncGenerator[Transport]:
    """Start the server. Raises OSError or ValueError if it cannot be started."""
    environment = {**get_default_environment(), **config.env}
    process = await ServerProcess.start(
        [config.command, *config.args], environment=environment, cwd=config.cwd
    )
    incoming, received = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    sent, outgoing = anyio.create_memory_object_stream[SessionMessage](_OUTGOING_MESSAGES)
    errors_read = anyio.Event()
    has_sent = anyio.Event()
    inflow = Inflow(tail)

    async def describe_end() -> str:
        description = await process.describe_end()
        # Wait for the rest of its standard error.
        with anyio.move_on_after(_LAST_OUTPUT_SECONDS):
            await errors_read.wait()
        return description

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_read_messages, process.output, incoming, tail, has_sent, inflow)
        tasks.start_soon(_write_messages, process, outgoing)
        tasks.start_soon(_read_errors, process.errors, tail, errors_read)
        try:
            yield Transport(
                streams=(received, sent),
                inflow=inflow,
                describe_end=describe_end,
                last_refusal=str,
                pid=process.pid,
            )
        finally:
            # The reader task continues, so that the server can write its last output.
            received.close()
            sent.close()
            with anyio.CancelScope(shield=True):
                await process.stop(is_in_use=has_sent.is_set())
            tasks.cancel_scope.cancel()


async def _read_messages(
    output: ByteReceiveStream,
    incoming: _Incoming,
    tail: OutputTail,
    has_sent: anyio.Event,
    inflow: Inflow,
) -> None:
    lines = LineReader(max_bytes=MAX_MESSAGE_BYTES, max_skipped_bytes=_MAX_SKIPPED_BYTES)
    try:
        async with incoming:
            async for chunk in output:
                for line in lines.feed(chunk):
                    start = line.start if isinstance(line, LongLine) else line
                    message = None if inflow.drops(start) else await _parse_message(line, tail)
                    if message is not None:
                        has_sent.set()
                        await incoming.send(SessionMessage(message))
    except EndlessLineError:
        tail.add_line(b"an endless line; the output is no longer read", label="stdout")
    except _CLOSED_ERRORS:
        # This side closed it, or the server did. The receiver sees the end of the stream.
        pass
    await _drain(output)


async def _drain(output: ByteReceiveStream) -> None:
    # A server that blocks on its output would not notice the end of its input.
    try:
        async for _ in output:
            pass
    except _CLOSED_ERRORS:
        pass


async def _write_messages(process: ServerProcess, outgoing: _Outgoing) -> None:
    async with outgoing:
        try:
            async for message in outgoing:
                pieces = await encode_pieces_off_loop(_wire_form(message.message))
                pieces[-1] += b"\n"
                for piece in pieces:
                    await process.input.send(piece)
        except _CLOSED_ERRORS:
            # The server does not read any more. The reader task detects that it has ended.
            pass


async def _read_errors(
    errors: ByteReceiveStream, tail: OutputTail, errors_read: anyio.Event
) -> None:
    try:
        async for chunk in errors:
            tail.add(chunk)
    except _CLOSED_ERRORS:
        pass
    errors_read.set()


async def _parse_message(line: Line, tail: OutputTail) -> JSONRPCMessage | None:
    """Parse a line. A line that is no message goes to the tail, as many servers print logs."""
    if isinstance(line, LongLine):
        tail.add_line(b"a message of %d bytes, too large to read" % line.size_bytes, label="stdout")
        problem = f"its response has {line.size_bytes:,} bytes, which is too large to read"
        return _build_error(response_id(read_edges(line.start, line.end)), problem)
    try:
        value = await decode_off_loop(line)
    except NotJsonError as error:
        tail.add_line(line, label="stdout")
        ends = read_edges(line[:EDGE_BYTES], line[-EDGE_BYTES:])
        return _build_error(response_id(ends), f"its response {error.problem}")
    return _check_message(value, line, tail)


def _check_message(value: JsonValue, line: bytes, tail: OutputTail) -> JSONRPCMessage | None:
    try:
        return jsonrpc_message_adapter.validate_python(value, by_name=False)
    except ValidationError:
        tail.add_line(line, label="stdout")
        return _build_error(response_id(value), "its response is not a JSON-RPC message")


def _build_error(request_id: int | None, problem: str) -> JSONRPCError | None:
    """Return an error response for a request whose response cannot be read."""
    if request_id is None:
        return None
    error = ErrorData(code=PARSE_ERROR, message=problem)
    return JSONRPCError(jsonrpc="2.0", id=request_id, error=error)


def _wire_form(message: JSONRPCMessage) -> dict[str, object]:
    """Return the JSON of a message. The encoder of the SDK fails on half a surrogate pair."""
    match message:
        case JSONRPCRequest() | JSONRPCNotification():
            form: dict[str, object] = {"jsonrpc": "2.0", "method": message.method}
            if isinstance(message, JSONRPCRequest):
                form["id"] = message.id
            if message.params is not None:
                form["params"] = message.params
            return form
        case JSONRPCResponse():
            return {"jsonrpc": "2.0", "id": message.id, "result": message.result}
        case JSONRPCError():
            error = message.error.model_dump(by_alias=True, exclude_unset=True)
            return {"jsonrpc": "2.0", "id": message.id, "error": error}
