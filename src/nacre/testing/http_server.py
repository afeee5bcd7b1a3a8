"""Serves an ASGI application on a local port, and sends its replies."""

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
    """Begun by the first thing that is sent; `cut` closes the connection as it is."""

    send: Send
    cut: Callable[[], None]
    is_begun: bool = False

    async def json(
        self, status: int, body: JsonObject, headers: Mapping[str, str] | None = None
    ) -> None:
        data = encode_json(body)
        await self._begin(status, "application/json", {"content-length": str(len(data))}, headers)
        await self.send({"type": "http.response.body", "body": data})

    async def chunk(self, data: bytes, *, is_stream: bool) -> None:
        if not self.is_begun:
            await self._begin(200, "text/event-stream" if is_stream else "application/json")
        await self.send({"type": "http.response.body", "body": data, "more_body": True})

    async def end(self) -> None:
        await self.send({"type": "http.response.body", "body": b""})

    async def _begin(
        self, status: int, content_type: str, *headers: Mapping[str, str] | None
    ) -> None:
        self.is_begun = True
        named = {"content-type": content_type, "x-request-id": "req_scripted"}
        for more in headers:
            named |= more or {}
        encoded = [(name.encode(), value.encode()) for name, value in named.items()]
        await self.send({"type": "http.response.start", "status": status, "headers": encoded})


# A test may think between two requests for longer than the five seconds that are usual.
_KEEP_ALIVE_SECONDS: Final = 3600
_HOST: Final = "127.0.0.1"


@asynccontextmanager
async def serving(app: ASGIApp, *, port: int = 0) -> AsyncGenerator[str]:
    """Serve the application at the address that is given; whoever is connected at the end is not
    waited for.

    uvicorn's own `Server` looks only ten times a second whether it is to end: too slow for a server
    per test.
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
        made = H11Protocol(config=config, server_state=state, app_state=app_state)
        app_state["cut"] = lambda: made.transport.close()
        return made

    # Not by way of `socket.create_server`: asyncio would not know that its sockets speak TCP, leave
    # Nagle's algorithm on, and a stream of small events would take 40 ms more.
    server = await asyncio.get_running_loop().create_server(protocol, _HOST, port)
    try:
        yield f"http://{_HOST}:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        with anyio.CancelScope(shield=True):
            await _drop(state)


def connection_cutter(scope: Scope) -> Callable[[], None]:
    """What closes the connection that a request came on, whatever was promised to the client."""
    return cast("Callable[[], None]", scope["state"]["cut"])


async def _drop(state: ServerState) -> None:
    for connection in list(state.connections):
        cast("H11Protocol", connection).transport.abort()
    # An aborted connection ends its request, which then has nobody to answer.
    while state.connections or state.tasks:
        await anyio.lowlevel.checkpoint()
