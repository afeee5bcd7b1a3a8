"""Serves MCP on standard input and output to the client that started this process.

Two daemon threads read and write. If the client neither reads nor writes, a thread blocks in a
system call, but it does not block the event loop or the end of the process.
"""

from __future__ import annotations

import logging
import os
import queue
import threading
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias, cast

import anyio
import anyio.from_thread
import anyio.lowlevel
import mcp_types as types
from mcp.shared.message import SessionMessage

from nacre.json_lines import (
    EDGE_BYTES,
    Line,
    LineReader,
    LongLine,
    encode_line,
    read_edges,
    request_id,
)
from nacre.json_types import NotJsonError, decode_json
from nacre.mcp_server.server import open_server, run_until_signal

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from anyio.lowlevel import EventLoopToken
    from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

    from nacre.json_types import JsonValue
    from nacre.mcp_server.server import ServeOptions


MAX_LINE_BYTES: Final = 4 * 1024 * 1024
_CHUNK_BYTES: Final = 64 * 1024

logger = logging.getLogger(__name__)

_FLUSH_SECONDS: Final = 1.0

_Inbound: TypeAlias = SessionMessage | Exception


class _UnreadableError(Exception):
    """A line is not a message. `request_id` is set if it was a request."""

    def __init__(self, problem: str, *, request_id: int | str | None) -> None:
        super().__init__(problem)
        self.problem = problem
        self.request_id = request_id


@dataclass(frozen=True, kw_only=True, slots=True)
class StdioWire:
    """The descriptors of the connection, which nothing else in the process uses."""

    input_fd: int
    output_fd: int


def claim_stdio() -> StdioWire:
    """Move the connection to other descriptors.

    Other output of the process then goes to standard error, and standard input is empty for child
    processes and libraries.
    """
    wire = StdioWire(input_fd=os.dup(0), output_fd=os.dup(1))
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return wire


@asynccontextmanager
async def stdio_streams(
    wire: StdioWire,
) -> AsyncGenerator[
    tuple[MemoryObjectReceiveStream[_Inbound], MemoryObjectSendStream[SessionMessage]]
]:
    """Open the message streams for the SDK. The first one ends with the input of the client."""
    inbound_send, inbound = anyio.create_memory_object_stream[_Inbound](0)
    outbound, outbound_receive = anyio.create_memory_object_stream[SessionMessage](0)
    lines_send, lines = anyio.create_memory_object_stream[Line](0)
    _start_thread(_read_lines, wire.input_fd, lines_send, anyio.lowlevel.current_token())
    reading, is_flushed = anyio.CancelScope(), anyio.Event()

    async def read() -> None:
        with reading:
            await _decode(lines, inbound_send, outbound.clone())

    async def write() -> None:
        await _encode(outbound_receive, _LineWriter(wire.output_fd))
        # A client that does not read any more gets no answers.
        reading.cancel()
        is_flushed.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(read)
        tasks.start_soon(write)
        try:
            yield inbound, outbound
        finally:
            reading.cancel()
            lines_send.close()
            inbound.close()
            outbound.close()
            # The last response may not be written yet.
            with anyio.move_on_after(_FLUSH_SECONDS, shield=True):
                await is_flushed.wait()
            tasks.cancel_scope.cancel()


async def _decode(
    lines: MemoryObjectReceiveStream[Line],
    inbound: MemoryObjectSendStream[_Inbound],
    outbound: MemoryObjectSendStream[SessionMessage],
) -> None:
    async with lines, inbound, outbound:
        async for line in lines:
            try:
                await inbound.send(_parse_message(line))
            except _UnreadableError as error:
                # The client waits for a response.
                await outbound.send(SessionMessage(_build_error(error)))


async def _encode(outbound: MemoryObjectReceiveStream[SessionMessage], writer: _LineWriter) -> None:
    async with outbound:
        async for message in outbound:
            if not await writer.write(_encode_message(message.message)):
                return


def _parse_message(line: Line) -> SessionMessage:
    """Raises _UnreadableError."""
    if isinstance(line, LongLine):
        problem = f"the message is longer than {MAX_LINE_BYTES} bytes; it was not read"
        found = request_id(read_edges(line.start, line.end))
        raise _UnreadableError(problem, request_id=found)
    message = _decode_line(line)
    try:
        # The decoder of the SDK rejects half a surrogate pair, which a program may contain.
        known = types.jsonrpc_message_adapter.validate_python(message, by_name=False)
    except ValueError as error:
        raise _UnreadableError("not a JSON-RPC message", request_id=request_id(message)) from error
    return SessionMessage(known)


def _decode_line(line: bytes) -> JsonValue:
    try:
        return decode_json(line.decode(errors="replace").encode())
    except NotJsonError as error:
        found = request_id(read_edges(line[:EDGE_BYTES], line[-EDGE_BYTES:]))
        problem = f"not a JSON-RPC message: it {error.problem}"
        raise _UnreadableError(problem, request_id=found) from error


def _build_error(error: _UnreadableError) -> types.JSONRPCError:
    return types.JSONRPCError(
        jsonrpc="2.0",
        id=error.request_id,
        error=types.ErrorData(code=types.PARSE_ERROR, message=error.problem),
    )


def _encode_message(message: types.JSONRPCMessage) -> bytes:
    try:
        return message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"
    except ValueError as error:
        # The message contains half a surrogate pair. The error must not end the connection.
        logger.exception("a message could not be sent")
        failed = types.JSONRPCError(
            jsonrpc="2.0",
            id=cast("types.RequestId | None", getattr(message, "id", None)),
            error=types.ErrorData(code=types.INTERNAL_ERROR, message=f"not JSON: {error}"[:300]),
        )
        return encode_line(failed.model_dump(by_alias=True, exclude_unset=True))


# Threads.


def _start_thread(run: Callable[..., None], *arguments: object) -> None:
    threading.Thread(target=run, args=arguments, daemon=True).start()


class _LineWriter:
    """Writes lines in a thread, one at a time."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._loop = anyio.lowlevel.current_token()
        self._lines: queue.SimpleQueue[tuple[bytes, anyio.Event]] = queue.SimpleQueue()
        self._is_broken = False
        _start_thread(self._write_lines)

    async def write(self, line: bytes) -> bool:
        """Wait until the line is written. Returns False if the client does not read any more."""
        is_done = anyio.Event()
        self._lines.put((line, is_done))
        await is_done.wait()
        return not self._is_broken

    def _write_lines(self) -> None:
        while True:
            line, is_done = self._lines.get()
            try:
                _write_all(self._fd, line)
            except OSError:
                self._is_broken = True
            try:
                anyio.from_thread.run_sync(is_done.set, token=self._loop)
            except RuntimeError:
                # The server has ended.
                return


def _write_all(fd: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(fd, rest) :]


def _read_lines(fd: int, lines: MemoryObjectSendStream[Line], loop: EventLoopToken) -> None:
    try:
        reader = LineReader(max_bytes=MAX_LINE_BYTES)
        while chunk := os.read(fd, _CHUNK_BYTES):
            for line in reader.feed(chunk):
                anyio.from_thread.run(lines.send, line, token=loop)
        for line in reader.finish():
            anyio.from_thread.run(lines.send, line, token=loop)
        anyio.from_thread.run_sync(lines.close, token=loop)
    except (OSError, RuntimeError, anyio.ClosedResourceError, anyio.BrokenResourceError):
        # The server has ended.
        return


def serve_stdio(options: ServeOptions) -> int:
    """Serve the client that started this process. Returns the exit status.

    Raises CatalogError for conflicting tools, and ConfigError.
    """
    wire = claim_stdio()
    return anyio.run(run_until_signal, partial(_serve, options, wire))


async def _serve(options: ServeOptions, wire: StdioWire) -> None:
    async with open_server(options) as server, stdio_streams(wire) as (inbound, outbound):
        sdk_server = server.sdk_server
        await sdk_server.run(inbound, outbound, sdk_server.create_initialization_options())
