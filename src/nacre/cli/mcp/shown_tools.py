"""What a client of `nacre mcp` sees, asked as a client asks it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, cast

import anyio

from nacre.cli.mcp.serving import refusals_as_usage_problems
from nacre.mcp_server.serving import open_server

if TYPE_CHECKING:
    from nacre.json_types import JsonObject
    from nacre.mcp_server import ServeOptions


def shown_tools(options: ServeOptions) -> list[JsonObject]:
    """The answer to `tools/list`; no upstream server is started for it. Raises UsageProblem."""
    with refusals_as_usage_problems():
        return anyio.run(_list_tools, options)


async def _list_tools(options: ServeOptions) -> list[JsonObject]:
    from mcp import Client

    async with (
        open_server(replace(options, workers=1)) as server,
        Client(server.sdk_server, mode="legacy") as client,
    ):
        listed = await client.list_tools()
    return [
        cast("JsonObject", tool.model_dump(mode="json", by_alias=True, exclude_none=True))
        for tool in listed.tools
    ]
