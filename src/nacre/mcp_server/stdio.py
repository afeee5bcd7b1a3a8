"""Serves MCP on standard input and output to the client that started this process.

Both sides are threads of their own that die with the process: one that blocks in the system, since
the client neither speaks nor reads, holds up nothing.
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
from nacre.mcp_server.runner import open_server, until_signal

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from anyio.lowlevel import EventLoopToken
    from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

    from nacre.json_types import JsonValue
    from nacre.mcp_server.runner import ServeOptions


MAX_LINE_BYTES: Final = 4 * 1024 * 1024
_CHUNK_BYTES: Final = 64 * 1024

logger = logging.getLogger(__name__)

_FLUSH_SECONDS: Final = 1.0

_Inbound: TypeAlias = SessionMessage | Exception


class _UnreadableError(Exception):
    """A line that is no message; the id is that of the request, if it was one."""

    def __init__(self, problem: str, *, request_id: int | str | None) -> None:
        super().__init__(problem)
        self.problem = problem
        self.request_id = request_id


@dataclass(frozen=True, kw_only=True, slots=True)
class StdioWire:
    """The two ends of the wire, at descriptors that nothing else in the process uses."""

    input_fd: int
    output_fd: int


def claim_stdio() -> StdioWire:
    """Take the wire for ourselves: what else is printed goes to standard error, and children and
    libraries that read standard input find it empty."""
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
    """Messages as the SDK takes them. The first ends with the client's end of input."""
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
        # Where nobody reads any more, nobody has anything to ask.
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
            # The last answer may still be on its way.
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
                await inbound.send(_message_in(line))
            except _UnreadableError as error:
                # Somebody waits for an answer to it, and has to learn that none will come.
                await outbound.send(SessionMessage(_refusal_of(error)))


async def _encode(outbound: MemoryObjectReceiveStream[SessionMessage], writer: _LineWriter) -> None:
    async with outbound:
        async for message in outbound:
            if not await writer.write(_line_of(message.message)):
                return


def _message_in(line: Line) -> SessionMessage:
    """Raises _UnreadableError."""
    if isinstance(line, LongLine):
        problem = f"the message is longer than {MAX_LINE_BYTES} bytes; it was not read"
        found = request_id(read_edges(line.start, line.end))
        raise _UnreadableError(problem, request_id=found)
    message = _decode_line(line)
    try:
        # By our own decoder: the SDK's refuses half a surrogate pair, which a program may have.
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


def _refusal_of(error: _UnreadableError) -> types.JSONRPCError:
    return types.JSONRPCError(
        jsonrpc="2.0",
        id=error.request_id,
        error=types.ErrorData(code=types.PARSE_ERROR, message=error.problem),
    )


def _line_of(message: types.JSONRPCMessage) -> bytes:
    try:
        return message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"
    except ValueError as error:
        # Text that UTF-8 has no bytes for; one bad answer must not end all others.
        logger.exception("a message could not be sent")
        failed = types.JSONRPCError(
            jsonrpc="2.0",
            id=cast("types.RequestId | None", getattr(message, "id", None)),
            error=types.ErrorData(code=types.INTERNAL_ERROR, message=f"no JSON: {error}"[:300]),
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
        """Return when the line is written; False if nobody reads any more."""
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
        # Nobody listens any more: the server has ended.
        return


def serve_stdio(options: ServeOptions) -> int:
    """Serve the client that started this process; returns the exit status.

    Raises CatalogError for tools that cannot be together, and ConfigError.
    """
    wire = claim_stdio()
    return anyio.run(until_signal, partial(_serve, options, wire))


async def _serve(options: ServeOptions, wire: StdioWire) -> None:
    async with open_server(options) as server, stdio_streams(wire) as (inbound, outbound):
        sdk_server = server.sdk_server
        await sdk_server.run(inbound, outbound, sdk_server.create_initialization_options())
