"""Opens the server of `nacre mcp`, and runs it until a signal arrives."""

from __future__ import annotations

import os
import signal
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import anyio

from nacre.code_mode import Runtime
from nacre.mcp_client import McpConnections
from nacre.mcp_client.process import kill_all_groups
from nacre.mcp_server.server import CodeModeMcpServer

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence

    from nacre.code_mode import ConfigInput
    from nacre.config import McpServerConfig
    from nacre.mcp_client.upstream import UpstreamRequests
    from nacre.tools import Tool, ToolServer


_STOP_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


@dataclass(frozen=True, kw_only=True, slots=True)
class ServeOptions:
    """The servers, tools and settings of `nacre mcp`."""

    servers: Sequence[McpServerConfig] = ()
    tools: Sequence[Tool] = ()
    config: ConfigInput = None
    """The settings of code mode, or a whole config document."""
    workers: int = 0
    hooks: Sequence[object] = ()


@asynccontextmanager
async def open_server(options: ServeOptions) -> AsyncGenerator[CodeModeMcpServer]:
    """Open the server. It does not start any upstream server.

    Raises CatalogError for conflicting tools, and ConfigError.
    """
    enabled = [config for config in options.servers if not config.is_disabled]

    @asynccontextmanager
    async def servers(
        session_id: str, client: UpstreamRequests
    ) -> AsyncGenerator[Sequence[ToolServer]]:
        # Each session has its own connections, so that requests of a server reach its client.
        async with McpConnections(enabled, upstream=client) as connections:
            yield connections.servers(session_id)

    async with Runtime(options.config, workers=options.workers) as runtime:
        # Report invalid tools at the start, not to the first client.
        runtime.run(tools=options.tools, mcp=())
        yield CodeModeMcpServer(
            runtime,
            servers=servers,
            tools=options.tools,
            hooks=options.hooks,
        )


async def run_until_signal(serve: Callable[[], Awaitable[None]]) -> int:
    """Serve until the end or a signal. Returns the exit status of the process."""
    stopped_by: signal.Signals | None = None
    failure: Exception | None = None
    with anyio.open_signal_receiver(*_stop_signals()) as signals:
        async with anyio.create_task_group() as tasks:
            scope = anyio.CancelScope()

            async def stop_at_signal() -> None:
                nonlocal stopped_by
                async for number in signals:
                    if stopped_by is not None:
                        # The second signal ends the process at once. Servers have their own
                        # process groups and would survive it.
                        kill_all_groups()
                        os._exit(128 + number)
                    stopped_by = number
                    scope.cancel()

            tasks.start_soon(stop_at_signal)
            with scope:
                try:
                    await serve()
                except Exception as error:
                    # Raised below, so that no exception group wraps it.
                    failure = error
            tasks.cancel_scope.cancel()
    if failure is not None:
        raise failure
    return 0 if stopped_by is None else 128 + stopped_by


def _stop_signals() -> tuple[signal.Signals, ...]:
    """Return the signals that stop the server. SIGHUP only if it is not ignored (`nohup`)."""
    hang_up: signal.Signals | None = getattr(signal, "SIGHUP", None)
    if hang_up is None or signal.getsignal(hang_up) is signal.SIG_IGN:
        return _STOP_SIGNALS
    return (*_STOP_SIGNALS, hang_up)
