"""MCP connections and model providers that can be exchanged while runs use them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nacre.mcp_client import McpConnections
from nacre.providers.source import Providers

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AsyncExitStack

    from nacre.config.mcp_server_config import McpServerConfig
    from nacre.config.models import ModelsConfig
    from nacre.mcp_client.server import McpServer
    from nacre.mcp_client.status import ServerStatus
    from nacre.providers.base import Provider


class LiveMcp:
    """The MCP servers in force. A run that has begun keeps those that it began with."""

    def __init__(self, stack: AsyncExitStack) -> None:
        self._stack = stack
        self._connections: McpConnections | None = None

    async def configure(self, servers: Sequence[McpServerConfig]) -> None:
        """Use these from now on. The old ones stay open to the end: a run may be in the middle of a
        call, and what is idle costs little."""
        self._connections = await self._stack.enter_async_context(McpConnections(servers))

    def servers(self, session_id: str) -> Sequence[McpServer]:
        """The servers as a session sees them; nothing is started by asking."""
        return [] if self._connections is None else self._connections.servers(session_id)

    def status(self) -> list[ServerStatus]:
        return [] if self._connections is None else self._connections.status()


class LiveProviders:
    """The models in force; an answer that is being written comes from where it began."""

    def __init__(self, config: ModelsConfig) -> None:
        self._current = Providers(config)
        self._replaced: list[Providers] = []

    def configure(self, config: ModelsConfig) -> None:
        self._replaced.append(self._current)
        self._current = Providers(config)

    def get(self, model_id: str) -> Provider:
        return self._current.get(model_id)

    def known(self) -> list[str]:
        return self._current.known()

    async def prepare(self, model_id: str) -> None:
        await self._current.prepare(model_id)

    async def aclose(self) -> None:
        for providers in (*self._replaced, self._current):
            await providers.aclose()
