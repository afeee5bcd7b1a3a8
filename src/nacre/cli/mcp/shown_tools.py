"""What a client of `nacre mcp` sees, asked as a client asks it."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import anyio

from nacre.cli.mcp.serving import refusals_as_usage_problems
from nacre.code_mode import Runtime
from nacre.mcp_client import McpConnections
from nacre.mcp_server.server import CodeModeMcpServer
from nacre.mcp_server.sessions import same_servers

if TYPE_CHECKING:
    from nacre.json_types import JsonObject
    from nacre.mcp_server import ServeOptions


def shown_tools(options: ServeOptions) -> list[JsonObject]:
    """The answer to `tools/list`; no upstream server is started for it. Raises UsageProblem."""
    with refusals_as_usage_problems():
        return anyio.run(_listed, options)


async def _listed(options: ServeOptions) -> list[JsonObject]:
    from mcp import Client

    async with (
        Runtime(options.config, workers=1) as runtime,
        McpConnections(options.servers) as own,
    ):
        server = CodeModeMcpServer(
            runtime, servers=same_servers(own.servers()), tools=options.tools
        )
        async with Client(server.sdk_server, mode="legacy") as client:
            listed = await client.list_tools()
    return [
        cast("JsonObject", tool.model_dump(mode="json", by_alias=True, exclude_none=True))
        for tool in listed.tools
    ]
