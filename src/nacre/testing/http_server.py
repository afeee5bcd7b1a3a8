"""An ASGI application on a port of this machine, for as long as a block lasts."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final, cast

import anyio.lowlevel
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from starlette.types import ASGIApp, Scope

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
