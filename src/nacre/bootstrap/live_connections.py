"""MCP connections and model providers that can be exchanged while runs use them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

import anyio

from nacre.mcp_client import McpConnections
from nacre.providers.source import Providers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from anyio.abc import TaskStatus

    from nacre.config.mcp_server_config import McpServerConfig
    from nacre.config.models import ModelsConfig
    from nacre.mcp_client.server import McpServer
    from nacre.mcp_client.status import ServerStatus
    from nacre.providers.base import Provider


class LiveMcp:
    """The MCP servers in force. A run that has begun keeps those that it began with.

    An async context manager. Connections live in tasks of its own: whoever brings a change of the
    configuration is another task than the one that closes everything.
    """

    def __init__(self) -> None:
        self._tasks = anyio.create_task_group()
        self._closing = anyio.Event()
        self._connections: McpConnections | None = None

    async def __aenter__(self) -> Self:
        await self._tasks.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        self._closing.set()
        await self._tasks.__aexit__(None, None, None)

    async def configure(self, servers: Sequence[McpServerConfig]) -> None:
        """Use these from now on. The old ones stay open to the end: a run may be in the middle of a
        call, and what is idle costs little."""
        self._connections = await self._tasks.start(self._hold, servers)

    async def _hold(
        self, servers: Sequence[McpServerConfig], *, task_status: TaskStatus[McpConnections]
    ) -> None:
        async with McpConnections(servers) as connections:
            task_status.started(connections)
            await self._closing.wait()

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
