"""Waits on this machine's own address for a browser to come back from a login."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qs, urlsplit

import anyio

if TYPE_CHECKING:
    from anyio.abc import SocketStream

HOST: Final = "127.0.0.1"
PATH: Final = "/callback"

_MAX_REQUEST_BYTES: Final = 16 * 1024
_REQUEST_SECONDS: Final = 10.0
_ANSWER: Final = (
    b"HTTP/1.1 %b\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n%b\n"
)


class LoopbackCallback:
    """Listens from `listen` on, until `wait_for_callback` returns."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._listener: anyio.abc.Listener[SocketStream] | None = None
        self._query: dict[str, str] = {}

    async def listen(self) -> None:
        """Raises OSError when the port is taken."""
        if self._listener is None:
            self._listener = await anyio.create_tcp_listener(local_host=HOST, local_port=self._port)

    async def wait_for_callback(self) -> dict[str, str]:
        """The query with which the browser came back."""
        assert self._listener is not None
        try:
            async with anyio.create_task_group() as tasks:
                self._scope = tasks.cancel_scope
                await self._listener.serve(self._serve, tasks)
        finally:
            await self._listener.aclose()
            self._listener = None
        return self._query

    async def _serve(self, stream: SocketStream) -> None:
        async with stream:
            with anyio.move_on_after(_REQUEST_SECONDS):
                target = await _read_request_target(stream)
                is_callback = urlsplit(target).path == PATH
                if not is_callback:
                    await stream.send(_ANSWER % (b"404 Not Found", b"There is nothing here."))
                    return
                found = parse_qs(urlsplit(target).query)
                self._query = {key: values[0] for key, values in found.items()}
                await stream.send(_ANSWER % (b"200 OK", b"Done: you can close this window."))
                self._scope.cancel()


async def _read_request_target(stream: SocketStream) -> str:
    """The target of an HTTP request; empty for what is none."""
    request = b""
    while b"\r\n\r\n" not in request and len(request) < _MAX_REQUEST_BYTES:
        try:
            request += await stream.receive()
        except (anyio.EndOfStream, anyio.BrokenResourceError):
            return ""
    words = request.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
    return words[1] if len(words) == 3 and words[0] == "GET" else ""
