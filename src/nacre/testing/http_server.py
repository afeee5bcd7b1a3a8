"""Serves an ASGI application on a local port."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, cast

import anyio.lowlevel
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from nacre.json_types import encode_json

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping

    from starlette.types import ASGIApp, Scope, Send

    from nacre.json_types import JsonObject


@dataclass(kw_only=True, slots=True)
class HttpReply:
    """An HTTP response, started by the first data; `cut` closes the connection."""

    send: Send
    cut: Callable[[], None]
    is_started: bool = False

    async def json(
        self, status: int, body: JsonObject, headers: Mapping[str, str] | None = None
    ) -> None:
        data = encode_json(body)
        await self._begin(status, "application/json", {"content-length": str(len(data))}, headers)
        await self.send({"type": "http.response.body", "body": data})

    async def chunk(self, data: bytes, *, is_stream: bool) -> None:
        if not self.is_started:
            await self._begin(200, "text/event-stream" if is_stream else "application/json")
        await self.send({"type": "http.response.body", "body": data, "more_body": True})

    async def end(self) -> None:
        await self.send({"type": "http.response.body", "body": b""})

    async def _begin(
        self, status: int, content_type: str, *headers: Mapping[str, str] | None
    ) -> None:
        self.is_started = True
        named = {"content-type": content_type, "x-request-id": "req_scripted"}
        for more in headers:
            named |= more or {}
        encoded = [(name.encode(), value.encode()) for name, value in named.items()]
        await self.send({"type": "http.response.start", "status": status, "headers": encoded})


# A test may pause between two requests for longer than the default of five seconds.
_KEEP_ALIVE_SECONDS: Final = 3600
_HOST: Final = "127.0.0.1"


@asynccontextmanager
async def serving(app: ASGIApp, *, port: int = 0) -> AsyncGenerator[str]:
    """Serve the application and yield its URL; open connections are aborted at the end.

    The `Server` of uvicorn checks only ten times a second whether to stop, which is too slow for
    one server per test.
    """
    config = uvicorn.Config(
        app,
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
    )
    config.load()
    state = ServerState()

    def protocol() -> asyncio.Protocol:
        app_state: dict[str, object] = {}
        connection = H11Protocol(config=config, server_state=state, app_state=app_state)
        app_state["cut"] = lambda: connection.transport.close()
        return connection

    # Not with `socket.create_server`: asyncio would then leave Nagle's algorithm on, and a stream
    # of small events would take 40 ms more.
    server = await asyncio.get_running_loop().create_server(protocol, _HOST, port)
    try:
        yield f"http://{_HOST}:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        with anyio.CancelScope(shield=True):
            await _abort_connections(state)


def connection_cutter(scope: Scope) -> Callable[[], None]:
    """A function that closes the connection of a request."""
    return cast("Callable[[], None]", scope["state"]["cut"])


async def _abort_connections(state: ServerState) -> None:
    for connection in list(state.connections):
        cast("H11Protocol", connection).transport.abort()
    # An aborted connection ends the task of its request.
    while state.connections or state.tasks:
        await anyio.lowlevel.checkpoint()
