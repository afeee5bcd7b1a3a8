"""All MCP servers of a configuration, each with a connection for every session that uses it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

import anyio

from nacre.mcp_client.server import McpServer, ServerStatus

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType
    from typing import Self

    from anyio.abc import TaskGroup

    from nacre.config import McpServerConfig
    from nacre.mcp_client.upstream import UpstreamRequests

logger = logging.getLogger(__name__)

# Of sessions beyond these, the oldest that use no server are forgotten; whoever still holds its
# servers may go on with them.
_MAX_SESSIONS: Final = 256


class McpConnections:
    """Used with `async with`: at its end, every server that was started is stopped.

    Nothing is started before it is asked something, and no server waits for another.
    """

    def __init__(
        self, configs: Sequence[McpServerConfig], *, upstream: UpstreamRequests | None = None
    ) -> None:
        self._configs = tuple(configs)
        self._upstream = upstream
        self._sessions: dict[str, list[McpServer]] = {}
        self._ending: list[McpServer] = []
        self._tasks: TaskGroup | None = None
        self._is_closed = False

    async def __aenter__(self) -> Self:
        if self._tasks is not None:
            raise RuntimeError("McpConnections is opened once; make another one")
        tasks = anyio.create_task_group()
        await tasks.__aenter__()
        self._tasks = tasks
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        tasks = self._tasks
        assert tasks is not None
        try:
            with anyio.CancelScope(shield=True):
                await self.aclose()
        finally:
            tasks.cancel_scope.cancel()
            await tasks.__aexit__(None, None, None)

    def servers(self, session_id: str = "") -> list[McpServer]:
        """The servers as one session sees them; those that are switched off are left out."""
        if self._tasks is None or self._is_closed:
            raise RuntimeError("McpConnections is not open: use it with `async with`")
        found = self._sessions.pop(session_id, None)
        if found is None:
            found = self._new_servers(session_id, self._tasks)
        # Last in the order, as the one used most recently.
        self._sessions[session_id] = found
        self._forget_old_sessions()
        return list(found)

    def end_session(self, session_id: str) -> None:
        """Stop the servers of a session that will not go on; returns before they have ended."""
        servers = self._sessions.pop(session_id, [])
        if self._tasks is None or self._is_closed:
            return
        for server in servers:
            self._ending.append(server)
            self._tasks.start_soon(self._end, server)

    def status(self) -> list[ServerStatus]:
        """Every server in every session that has used it, and those that nobody has used."""
        found = [server.status() for servers in self._sessions.values() for server in servers]
        named = {status.name for status in found}
        return [
            *found,
            *(_unused_status(config) for config in self._configs if config.name not in named),
        ]

    async def aclose(self) -> None:
        """Stop all servers, at the same time; open calls fail. They do not start again."""
        self._is_closed = True
        async with anyio.create_task_group() as tasks:
            for servers in (*self._sessions.values(), self._ending):
                for server in servers:
                    tasks.start_soon(server.aclose)

    async def _end(self, server: McpServer) -> None:
        try:
            await server.aclose()
        except Exception:
            # One that does not end must not end those of other sessions.
            logger.exception("the MCP server %s cannot be stopped", server.name)
        finally:
            self._ending.remove(server)

    def _new_servers(self, session_id: str, tasks: TaskGroup) -> list[McpServer]:
        return [
            McpServer(config, session_id=session_id, tasks=tasks, upstream=self._upstream)
            for config in self._configs
            if not config.is_disabled
        ]

    def _forget_old_sessions(self) -> None:
        for session_id in list(self._sessions)[:-_MAX_SESSIONS]:
            if not any(server.is_running for server in self._sessions[session_id]):
                del self._sessions[session_id]


def _unused_status(config: McpServerConfig) -> ServerStatus:
    if config.is_disabled:
        problem = "switched off in the configuration"
        return ServerStatus(name=config.name, state="closed", problem=problem)
    return ServerStatus(name=config.name)
