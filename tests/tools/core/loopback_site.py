"""A web server of a test's own, on loopback: answers are bytes, requests are kept."""

from __future__ import annotations

from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

import anyio
from anyio.streams.tls import TLSListener

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncGenerator

    from anyio.abc import ByteStream


class Site:
    """Its pages by their paths."""

    def __init__(self) -> None:
        self.port = 0
        self.pages: dict[str, bytes] = {}
        self.requests: list[str] = []
        self.stall = anyio.Event()
        """Set when somebody asked for a page that never comes."""
        self.was_left = anyio.Event()
        """Set when whoever waited for it has gone."""
        self.stays_open = False
        """Whether a page that was sent has no end."""

    def url(self, path: str, host: str = "127.0.0.1") -> str:
        return f"http://{host}:{self.port}{path}"

    def add(self, path: str, body: bytes, *headers: str, status: str = "200 OK") -> None:
        lines = [f"HTTP/1.1 {status}", "Connection: close", *headers]
        self.pages[path] = "\r\n".join([*lines, "", ""]).encode() + body

    async def answer(self, stream: ByteStream) -> None:
        async with stream:
            request = b""
            try:
                while b"\r\n\r\n" not in request:
                    request += await stream.receive()
            except (anyio.EndOfStream, anyio.BrokenResourceError):
                # Who asked had no time left to say for what.
                return
            self.requests.append(request.decode())
            path = request.split(b" ")[1].decode()
            if path not in self.pages:
                self.stall.set()
                with suppress(anyio.EndOfStream, anyio.BrokenResourceError):
                    await stream.receive()
                self.was_left.set()
                return
            try:
                await stream.send(self.pages[path])
                if self.stays_open:
                    await stream.receive()
            except (anyio.BrokenResourceError, anyio.EndOfStream, ConnectionError):
                # Who fetched it had enough of it.
                return


@asynccontextmanager
async def loopback_site(tls: ssl.SSLContext | None = None) -> AsyncGenerator[Site]:
    """The server, until it is left."""
    site = Site()
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    site.port = listener.extra(anyio.abc.SocketAttribute.local_port)
    async with listener, anyio.create_task_group() as tasks:
        if tls is None:
            tasks.start_soon(listener.serve, site.answer)
        else:
            wrapped = TLSListener(listener, tls, standard_compatible=False)
            tasks.start_soon(wrapped.serve, site.answer)
        yield site
        tasks.cancel_scope.cancel()
