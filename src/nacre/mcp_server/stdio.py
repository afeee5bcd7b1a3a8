"""`nacre mcp` on standard input and output: one client, until it goes or a signal comes."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import anyio

from nacre.mcp_server.serving import open_server, until_signal
from nacre.mcp_server.stdio_wire import claim_stdio, stdio_streams

if TYPE_CHECKING:
    from nacre.mcp_server.serving import ServeOptions
    from nacre.mcp_server.stdio_wire import StdioWire


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
