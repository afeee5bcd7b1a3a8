"""Connections that are closed at the end of a test, and leave no process behind."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import anyio.to_thread
import psutil
import pytest

from nacre.config.mcp_entry import McpServerConfig
from nacre.mcp_client import McpConnections, McpServer, UpstreamRequests


class Opening:
    """Opens connections; `one` is for a test that needs a single server."""

    def __init__(self, stack: AsyncExitStack) -> None:
        self._stack = stack

    async def all(
        self, *configs: McpServerConfig, upstream: UpstreamRequests | None = None
    ) -> McpConnections:
        return await self._stack.enter_async_context(McpConnections(configs, upstream=upstream))

    async def one(
        self, config: McpServerConfig, *, upstream: UpstreamRequests | None = None
    ) -> McpServer:
        (server,) = (await self.all(config, upstream=upstream)).servers()
        return server


@pytest.fixture
async def opening() -> AsyncIterator[Opening]:
    with_children = set(psutil.Process().children(recursive=True))
    async with AsyncExitStack() as stack:
        yield Opening(stack)
    left = await anyio.to_thread.run_sync(
        lambda: set(psutil.Process().children(recursive=True)) - with_children
    )
    assert not left
