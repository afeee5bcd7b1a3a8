"""The other end of the tool `kit_hold`: a test sees its calls, answers them, and sees them go."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import anyio

# Longer than a sound gateway needs for anything, on a machine with much else to do.
PATIENCE_SECONDS = 90


@dataclass(kw_only=True)
class HeldCall:
    """One call that waits in the gateway for its answer."""

    note: str
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def answer(self, text: str) -> None:
        self.writer.write(json.dumps(text).encode() + b"\n")
        await self.writer.drain()

    async def gone(self) -> None:
        """Return when the tool has ended, answered or not."""
        with anyio.fail_after(PATIENCE_SECONDS):
            assert await self.reader.read() == b""


class Outside:
    """Where all calls of `kit_hold` arrive. Made by `open_outside`."""

    def __init__(self) -> None:
        self.port = 0
        self._calls: list[HeldCall] = []
        self._send, self._receive = anyio.create_memory_object_stream[HeldCall](1000)

    async def call(self) -> HeldCall:
        """The next call, when it is there."""
        with anyio.fail_after(PATIENCE_SECONDS):
            return await self._receive.receive()

    async def take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = await reader.readline()
        if not line:
            # The tool was ended before it had said anything.
            writer.close()
            return
        note = json.loads(line)["note"]
        call = HeldCall(note=note, reader=reader, writer=writer)
        self._calls.append(call)
        self._send.send_nowait(call)

    def close(self) -> None:
        for call in self._calls:
            call.writer.close()
        self._send.close()
        self._receive.close()


@asynccontextmanager
async def open_outside() -> AsyncGenerator[Outside]:
    outside = Outside()
    server = await asyncio.start_server(outside.take, "127.0.0.1", 0)
    outside.port = server.sockets[0].getsockname()[1]
    try:
        yield outside
    finally:
        server.close()
        outside.close()
