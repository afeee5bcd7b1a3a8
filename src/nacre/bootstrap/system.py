"""The running system: everything that a gateway, or a turn at the terminal, stands on."""

from __future__ import annotations

import logging
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

from nacre.agent import AgentService
from nacre.bootstrap.agent_tools import AgentTools
from nacre.bootstrap.live_connections import LiveMcp, LiveProviders
from nacre.bootstrap.run_messages import RunMessageSink
from nacre.code_mode import Runtime
from nacre.code_mode.run_config import RunConfig
from nacre.config.watching import changed_sections
from nacre.hooks import Hooks
from nacre.plugins import PluginHost
from nacre.storage import Store
from nacre.tools import ApprovalQueue

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

    from nacre.config.system import SystemConfig

logger = logging.getLogger(__name__)


class System:
    """All parts, open. Made by `open_system`."""

    def __init__(
        self,
        config: SystemConfig,
        *,
        store: Store,
        runtime: Runtime,
        providers: LiveProviders,
        mcp: LiveMcp,
        plugins: PluginHost,
        tools: AgentTools,
        agents: AgentService,
        approvals: ApprovalQueue,
    ) -> None:
        self.config = config
        self.store = store
        self.runtime = runtime
        self.providers = providers
        self.mcp = mcp
        self.plugins = plugins
        self.tools = tools
        """The core tools of each agent and those of the plugins."""
        self.agents = agents
        self.approvals = approvals

    async def apply(self, config: SystemConfig) -> None:
        """Take over a changed configuration: runs that have begun go on with the old one.

        `storage.url`, `gateway.host` and `gateway.port` stay as they are until the next start.
        """
        sections = changed_sections(self.config, config)
        if "mcp" in sections or "plugins" in sections:
            # First, since it is what may fail: then everything stays as it is.
            self.plugins.reserved_ids = [server.name for server in config.mcp_servers]
            await self.plugins.apply(config.plugins)
        if "mcp" in sections:
            await self.mcp.configure(config.mcp_servers)
        if "models" in sections:
            self.providers.configure(config.models)
        # From the servers to here nothing is waited for, so that a turn begins with all or nothing.
        self.runtime.configure(RunConfig(document=config.document))
        self.agents.configure(config)
        self.config = config
        await self.tools.configure(config)
        if sections:
            logger.info("the configuration changed: %s", ", ".join(sections))


@asynccontextmanager
async def open_system(
    config: SystemConfig, *, workers: int = 0, cache_directory: Path | None = None
) -> AsyncGenerator[System]:
    """Open every part, and close them in the opposite order.

    Raises StorageError, RuntimeUnavailableError where the sandbox is needed and cannot start, and
    ConfigError. A plugin or an MCP server that is broken keeps nothing else from working.
    """
    hooks = Hooks()
    approvals = ApprovalQueue()
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(Store.open(config.storage.url))
        await store.interrupt_open_turns()
        runtime = await stack.enter_async_context(
            Runtime(
                # Also where it is empty: nobody has asked for code mode then.
                RunConfig(document=config.document),
                workers=workers,
                cache_directory=cache_directory,
            )
        )
        providers = await stack.enter_async_context(LiveProviders(config.models))
        mcp = await stack.enter_async_context(LiveMcp())
        await mcp.configure(config.mcp_servers)
        plugins = await stack.enter_async_context(
            PluginHost(
                hooks=hooks,
                namespaces=runtime.namespaces,
                reserved_ids=[server.name for server in config.mcp_servers],
            )
        )
        await plugins.apply(config.plugins)
        messages = RunMessageSink(lambda run_id: agents.run(run_id))
        tools = await stack.enter_async_context(AgentTools(plugins, messages=messages))
        agents = await stack.enter_async_context(
            AgentService(
                config=config,
                store=store,
                runtime=runtime,
                providers=providers.in_use,
                tools=tools,
                hooks=hooks,
                approvals=approvals,
                servers=mcp.in_use,
            )
        )
        yield System(
            config,
            store=store,
            runtime=runtime,
            providers=providers,
            mcp=mcp,
            plugins=plugins,
            tools=tools,
            agents=agents,
            approvals=approvals,
        )
