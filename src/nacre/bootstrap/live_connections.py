"""MCP connections and model providers that can be replaced while runs use them."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Generic, Self, TypeVar

import anyio

from nacre.mcp_client import McpConnections
from nacre.providers import Provider, Providers

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence
    from contextlib import AbstractContextManager

    from anyio.abc import TaskStatus

    from nacre.config import McpServerConfig, ModelsConfig
    from nacre.mcp_client.server import McpServer, ServerStatus

logger = logging.getLogger(__name__)

_CLOSE_SECONDS: Final = 5.0

_T = TypeVar("_T")


class _Lease(Generic[_T]):
    """Connections of one configuration. They are closed when they are replaced and no run uses
    them."""

    def __init__(self, connections: _T) -> None:
        self.open = connections
        self.is_unused = anyio.Event()
        self._user_count = 0
        self._is_replaced = False

    @contextmanager
    def in_use(self) -> Generator[_T]:
        self._user_count += 1
        try:
            yield self.open
        finally:
            self._user_count -= 1
            self._check_unused()

    def replace(self) -> None:
        self._is_replaced = True
        self._check_unused()

    def _check_unused(self) -> None:
        if self._is_replaced and not self._user_count:
            self.is_unused.set()


class LiveMcp:
    """The current MCP servers. A run keeps the servers with which it started.

    An async context manager. Connections live in tasks of their own, because the configuration
    changes in another task than the one that closes the system.
    """

    def __init__(self) -> None:
        self._tasks = anyio.create_task_group()
        self._current: _Lease[McpConnections] | None = None

    async def __aenter__(self) -> Self:
        await self._tasks.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        # All runs have ended: they are closed before their connections.
        self._replace(None)
        await self._tasks.__aexit__(None, None, None)

    async def configure(self, servers: Sequence[McpServerConfig]) -> None:
        """Use these from now on. The old ones are closed when the last run that uses them ends."""
        self._replace(await self._tasks.start(self._hold, servers))

    @contextmanager
    def in_use(self, session_id: str, *, is_kept: bool = True) -> Generator[Sequence[McpServer]]:
        """The servers of a session, open during the block. This starts no server.

        At the end, the servers of a session that is not stored are stopped: it cannot continue.
        """
        current = self._current
        if current is None:
            yield []
            return
        with current.in_use() as connections:
            try:
                yield connections.servers(session_id)
            finally:
                if not is_kept:
                    connections.end_session(session_id)

    def status(self) -> list[ServerStatus]:
        return [] if self._current is None else self._current.open.status()

    def _replace(self, new: _Lease[McpConnections] | None) -> None:
        old, self._current = self._current, new
        if old is not None:
            old.replace()

    async def _hold(
        self,
        servers: Sequence[McpServerConfig],
        *,
        task_status: TaskStatus[_Lease[McpConnections]],
    ) -> None:
        try:
            async with McpConnections(servers) as connections:
                connections = _Lease(connections)
                task_status.started(connections)
                await connections.is_unused.wait()
        except Exception:
            # Runs with other connections must continue.
            logger.exception("MCP connections cannot be closed")


class LiveProviders:
    """The current model providers. A run keeps the providers with which it started.

    An async context manager. Replaced providers are closed in tasks of their own.
    """

    def __init__(self, config: ModelsConfig) -> None:
        self._tasks = anyio.create_task_group()
        self._current = _Lease(Providers(config))

    async def __aenter__(self) -> Self:
        await self._tasks.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        self._tasks.start_soon(_close_after_use, self._current)
        await self._tasks.__aexit__(None, None, None)

    def configure(self, config: ModelsConfig) -> None:
        """Use these from now on. The old ones are closed when the last run that uses them ends."""
        old, self._current = self._current, _Lease(Providers(config))
        self._tasks.start_soon(_close_after_use, old)

    def in_use(self) -> AbstractContextManager[Providers]:
        """The current providers, open during the block."""
        return self._current.in_use()

    def get(self, model_id: str) -> Provider:
        return self._current.open.get(model_id)

    def list_models(self) -> list[str]:
        return self._current.open.list_models()

    def list_open_providers(self) -> list[str]:
        """The providers without a list of models, which accept any model name."""
        return self._current.open.list_open_providers()

    async def prepare(self, model_id: str) -> None:
        with self.in_use() as providers:
            await providers.prepare(model_id)


async def _close_after_use(replaced: _Lease[Providers]) -> None:
    replaced.replace()
    try:
        await replaced.is_unused.wait()
    finally:
        # Even if the system is cancelled, but only for a limited time.
        with anyio.move_on_after(_CLOSE_SECONDS, shield=True):
            try:
                await replaced.open.aclose()
            except Exception:
                logger.exception("the connections to model providers cannot be closed")
