"""A model provider that answers chat completions at once and measures its own time."""

import asyncio
import json
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final

from benchmarks.measurement import elapsed_ms
from nacre.messages import Usage
from nacre.testing.script import Call, Say
from nacre.testing.wire.base import Answer
from nacre.testing.wire.openai_chat import ChatWire

_WIRE: Final = ChatWire()
_USAGE: Final = Usage(input_tokens=100, output_tokens=10)

Spoken = Say | Call
Script = Callable[[dict[str, Any]], Sequence[Spoken] | None]
"""The response to a request; None means that the stream stops without an end."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """One request."""

    body: dict[str, Any]
    body_bytes: int
    own_ms: float
    """The time from the last byte of the request to the last byte of the response."""


class QuickModel:
    """A minimal HTTP server, because the overhead of a framework would exceed the measured time."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self.asked: list[Asked] = []
        self.url = ""
        self.abandoned = asyncio.Event()
        """Set when the client has dropped a request without an answer."""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                body = await reader.readexactly(_length(head))
                if not body:
                    # LiteLLM asks for a list of models.
                    writer.write(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n")
                    continue
                await self._answer(body, reader, writer)
        writer.close()

    async def _answer(
        self, body: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        started = time.perf_counter()
        request = json.loads(body)
        spoken = self._script(request)
        if spoken is None:
            await self._leave_hanging(len(self.asked), request, reader, writer)
            return
        kind, content = _response(len(self.asked), request, spoken)
        head = f"content-type: {kind}\r\ncontent-length: {len(content)}\r\n\r\n"
        writer.write(b"HTTP/1.1 200 OK\r\n" + head.encode() + content)
        await writer.drain()
        own = elapsed_ms(started)
        self.asked.append(Asked(body=request, body_bytes=len(body), own_ms=own))

    async def _leave_hanging(
        self,
        number: int,
        request: dict[str, Any],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        answer = _answer(number, request, [])
        stream = _WIRE.stream(answer)
        events = b"".join([*stream.begin(), *stream.speak(Say("Well, "))])
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n" + events)
        await writer.drain()
        await reader.read()
        self.abandoned.set()


@asynccontextmanager
async def quick_model(script: Script) -> AsyncGenerator[QuickModel]:
    model = QuickModel(script)
    # Through the event loop, which disables Nagle's algorithm.
    server = await asyncio.start_server(model.serve, "127.0.0.1", 0, limit=64 << 20)
    model.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    try:
        yield model
    finally:
        server.close()


def _length(head: bytes) -> int:
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return int(line.partition(b":")[2])
    return 0


def _answer(number: int, request: dict[str, Any], spoken: Sequence[Spoken]) -> Answer:
    is_calling = any(isinstance(part, Call) for part in spoken)
    return Answer(
        number=number,
        model=str(request["model"]),
        spoken=spoken,
        reason="tool_calls" if is_calling else "stop",
        usage=_USAGE,
        request=request,
    )


def _response(number: int, request: dict[str, Any], spoken: Sequence[Spoken]) -> tuple[str, bytes]:
    """The media type and the body: events, or one object if the request wants no stream."""
    answer = _answer(number, request, spoken)
    if not request.get("stream"):
        return "application/json", json.dumps(_WIRE.whole(answer)).encode()
    stream = _WIRE.stream(answer)
    parts = [event for part in spoken for event in stream.speak(part)]
    return "text/event-stream", b"".join([*stream.begin(), *parts, *stream.end()])
