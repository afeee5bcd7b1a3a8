"""Opens the way to a server, whichever kind it is. Importing this imports the SDK."""

from __future__ import annotations

import logging
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final, assert_never

import anyio

from nacre.mcp_client.http_transport import open_http, open_sse
from nacre.mcp_client.oauth import build_login
from nacre.mcp_client.peer import Peer
from nacre.mcp_client.stdio_transport import open_stdio

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable
    from contextlib import AbstractAsyncContextManager, AbstractContextManager

    from nacre.config.mcp_entry import McpServerConfig
    from nacre.mcp_client.output_tail import OutputTail
    from nacre.mcp_client.transport import Transport
    from nacre.mcp_client.upstream import UpstreamGate

# They log whole messages, addresses and tracebacks, in which there are secrets; what went wrong is
# told by our own errors. Whoever has set a level for one of them wants that.
_TALKATIVE: Final = {
    "mcp.client": logging.CRITICAL,
    "httpx2": logging.WARNING,
    "httpcore2": logging.WARNING,
}
for _name, _level in _TALKATIVE.items():
    if logging.getLogger(_name).level == logging.NOTSET:
        logging.getLogger(_name).setLevel(_level)


@asynccontextmanager
async def open_peer(
    config: McpServerConfig,
    *,
    gate: UpstreamGate,
    tail: OutputTail,
    on_list_changed: Callable[[], None],
    logging_in: Callable[[], AbstractContextManager[None]],
) -> AsyncGenerator[Peer]:
    """The server, reading its messages; hands are still to be shaken.

    Raises OSError or ValueError when it cannot be started, and groups of what the SDK raises.
    """
    async with (
        _transport_to(config, tail, logging_in) as transport,
        anyio.create_task_group() as tasks,
    ):
        peer = Peer(transport, tasks=tasks, gate=gate, on_list_changed=on_list_changed)
        await tasks.start(peer.run)
        try:
            yield peer
        finally:
            tasks.cancel_scope.cancel()


def _transport_to(
    config: McpServerConfig,
    tail: OutputTail,
    logging_in: Callable[[], AbstractContextManager[None]],
) -> AbstractAsyncContextManager[Transport]:
    match config.transport:
        case "stdio":
            return open_stdio(config, tail)
        case "http":
            return open_http(config, auth=build_login(config, logging_in))
        case "sse":
            return open_sse(config, auth=build_login(config, logging_in))
        case _:
            assert_never(config.transport)
