"""Opens the running system: store, sandbox, providers, MCP servers, plugins, agents."""

from __future__ import annotations

import logging
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

import anyio

from nacre.agent import (
    AgentService,
    BuiltInHarness,
    FailedTurnWrites,
    ServiceContext,
)
from nacre.bootstrap.live_connections import LiveMcp, LiveProviders
from nacre.code_mode import Runtime
from nacre.config import changed_sections
from nacre.hooks import HookRunner, Hooks
from nacre.plugins import PluginHost
from nacre.run_context import RunContext
from nacre.storage import open_store
from nacre.tools import ApprovalQueue, CoreTools, Tool, policy_for

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Sequence
    from pathlib import Path

    from nacre.agent import AgentRun
    from nacre.config import AgentConfig, CoreToolsConfig, SystemConfig
    from nacre.storage import Store
    from nacre.tools import MessageSink


class RunMessageSink:
    """The sink of the `message` tool."""

    def __init__(self, run_of: Callable[[str], AgentRun | None]) -> None:
        self._run_of = run_of

    async def send(self, text: str, context: RunContext, /) -> None:
        run = self._run_of(context.run_id)
        if run is not None:
            run.events.add("message.sent", {"text": text})


_NOT_ALLOWED: Final = "by a change of the configuration this agent may not use `exec` any more"


@dataclass(frozen=True, kw_only=True, slots=True)
class _AgentCoreTools:
    """Core tools, and what they were made for."""

    workspace: Path
    config: CoreToolsConfig
    core: CoreTools


class AgentTools:
    """Core tools are made when an agent first runs, and again when its settings change.

    An async context manager. Commands in the background outlive a change, but not the permission
    to run commands.
    """

    def __init__(self, plugins: PluginHost, *, messages: MessageSink) -> None:
        self._plugins = plugins
        self._messages = messages
        self._core_tools: dict[str, _AgentCoreTools] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        async with anyio.create_task_group() as tasks:
            for made in self._core_tools.values():
                tasks.start_soon(made.core.__aexit__, None, None, None)

    def tools(self, agent: AgentConfig, context: RunContext, /) -> Sequence[Tool]:
        """Before policy, in the order of the catalog."""
        return (*self._core_tools_of(agent).tools, *self._plugins.tools)

    async def configure(self, config: SystemConfig) -> None:
        """End the commands of agents that are gone, or may not run any now. Runs that have begun
        keep their tools, but start nothing in the background."""
        # All of them before the first is waited for: turns that begin meanwhile get new tools.
        retired = [self._core_tools.pop(key) for key in self._without_commands(config)]
        async with anyio.create_task_group() as tasks:
            for made in retired:
                tasks.start_soon(made.core.end_background_commands, _NOT_ALLOWED)

    def _core_tools_of(self, agent: AgentConfig) -> CoreTools:
        key = agent.id.casefold()
        last = self._core_tools.get(key)
        if last and (last.workspace, last.config) == (agent.workspace, agent.core_tools):
            return last.core
        core = CoreTools(
            agent.core_tools,
            workspace=agent.workspace,
            messages=self._messages,
            replaces=last.core if last else None,
        )
        self._core_tools[key] = _AgentCoreTools(
            workspace=agent.workspace, config=agent.core_tools, core=core
        )
        return core

    def _without_commands(self, config: SystemConfig) -> list[str]:
        agents = {agent.id.casefold(): agent for agent in config.agents.by_id.values()}
        return [
            key
            for key, made in self._core_tools.items()
            if key not in agents or not _may_run_commands(agents[key], made.core)
        ]


def _may_run_commands(agent: AgentConfig, core: CoreTools) -> bool:
    policy = policy_for(agent.tools, RunContext(agent_id=agent.id))
    is_permitted = all(policy.permits(tool) for tool in core.tools if tool.name == "exec")
    return agent.core_tools.exec.is_enabled and is_permitted


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
        store = await stack.enter_async_context(open_store(config.storage.url))
        await store.interrupt_open_turns()
        runtime = await stack.enter_async_context(
            # Without settings: each run brings those of its agent.
            Runtime(workers=workers, cache_directory=cache_directory)
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
                ServiceContext(
                    config=config,
                    store=store,
                    failed_writes=FailedTurnWrites(store),
                    providers=providers.in_use,
                    tools=tools,
                    servers=mcp.in_use,
                    hooks=HookRunner(hooks),
                    approvals=approvals,
                    harness=BuiltInHarness(runtime),
                )
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
