"""Opens the running system: store, sandbox, providers, MCP servers, plugins, agents.

Connections can be replaced while runs use them.
"""

from __future__ import annotations

import logging
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic, Self, TypeVar

import anyio
import anyio.to_thread

from nacre.agent import (
    AgentService,
    BuiltInHarness,
    ChatCommand,
    Diagnostics,
    FailedTurnWrites,
    Harnesses,
    ManualCalls,
    ServiceContext,
)
from nacre.code_mode import Runtime
from nacre.codex_harness import (
    CodexCommands,
    CodexFeedback,
    CodexHarness,
    open_codex_harness,
)
from nacre.config import changed_sections, choose_runtime
from nacre.errors import NacreError
from nacre.hooks import ContextRegistry, HookRunner, Hooks
from nacre.mcp_client import McpConnections
from nacre.plugins import PluginHost
from nacre.providers import Provider, Providers
from nacre.run_context import RunContext
from nacre.sandbox import load_key_ring
from nacre.storage import open_store
from nacre.telemetry import keep_recent_logs
from nacre.tools import ApprovalQueue, CoreTools, Tool, policy_for

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Generator, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from anyio.abc import TaskStatus

    from nacre.agent import AgentRun, CommandCall
    from nacre.config import (
        AgentConfig,
        CoreToolsConfig,
        McpServerConfig,
        ModelsConfig,
        SystemConfig,
    )
    from nacre.json_types import JsonObject
    from nacre.mcp_client.server import McpServer, ServerStatus
    from nacre.plugins import PluginCommand
    from nacre.storage import Store
    from nacre.telemetry import RecentLogs
    from nacre.tools import Attachment, MessageSink

logger = logging.getLogger(__name__)


class RunMessageSink:
    """The sink of the `message` tool: adds the files to the reply of the run, and an event."""

    def __init__(self, run_of: Callable[[str], AgentRun | None]) -> None:
        self._run_of = run_of

    async def send(
        self, text: str, context: RunContext, /, *, attachments: Sequence[Attachment] = ()
    ) -> None:
        run = self._run_of(context.run_id)
        if run is None:
            return
        sent = [
            await run.media.add(file.data, name=file.name, path=file.path) for file in attachments
        ]
        media: JsonObject = {"media": [record.id for record in sent]} if sent else {}
        run.events.add("message.sent", {"text": text, **media})


_NOT_ALLOWED: Final = "the configuration has changed, and this agent may no longer use `exec`"


@dataclass(frozen=True, kw_only=True, slots=True)
class _AgentCoreTools:
    """Core tools and the settings that they were created with."""

    workspace: Path
    config: CoreToolsConfig
    core: CoreTools


class AgentTools:
    """The tools of agents. Core tools are created with an agent's first run and with new settings.

    An async context manager. Background commands survive a change of settings, unless the agent
    may no longer run commands.
    """

    def __init__(self, plugins: PluginHost, *, messages: MessageSink) -> None:
        self._plugins = plugins
        self._messages = messages
        self._core_tools: dict[str, _AgentCoreTools] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        async with anyio.create_task_group() as tasks:
            for entry in self._core_tools.values():
                tasks.start_soon(entry.core.__aexit__, None, None, None)

    def tools(self, agent: AgentConfig, context: RunContext, /) -> Sequence[Tool]:
        """The tools in catalog order, before the policy is applied."""
        core = self._core_tools_of(agent)
        policy = policy_for(agent.tools, context)
        may_read = any(tool.name == "read" and policy.permits(tool) for tool in core.tools)
        return (*(core.tools if may_read else core.tools_without_files), *self._plugins.tools)

    async def configure(self, config: SystemConfig) -> None:
        """End the commands of agents that were removed or may no longer run commands. Active runs
        keep their tools, but cannot start background commands."""
        # Remove all before waiting: turns that start meanwhile get new tools.
        retired = [self._core_tools.pop(key) for key in self._retired_agents(config)]
        async with anyio.create_task_group() as tasks:
            for entry in retired:
                tasks.start_soon(entry.core.end_background_commands, _NOT_ALLOWED)

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

    def _retired_agents(self, config: SystemConfig) -> list[str]:
        agents = {agent.id.casefold(): agent for agent in config.agents.by_id.values()}
        return [
            key
            for key, entry in self._core_tools.items()
            if key not in agents or not _may_run_commands(agents[key], entry.core)
        ]


def _may_run_commands(agent: AgentConfig, core: CoreTools) -> bool:
    context = RunContext(agent_id=agent.id, is_sandboxed=agent.is_sandboxed())
    policy = policy_for(agent.tools, context)
    is_permitted = all(policy.permits(tool) for tool in core.tools if tool.name == "exec")
    return agent.core_tools.exec.is_enabled and is_permitted


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
        self._replace(await self._tasks.start(self._hold, servers) if servers else None)

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

    async def restart(self, name: str) -> bool:
        """Restart a server in all sessions that use it; False if there is no such server."""
        current = self._current
        if current is None:
            return False
        with current.in_use() as connections:
            return await connections.restart(name)

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


class System:
    """The open system. Created by `open_system`."""

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
        diagnostics: Diagnostics,
        codex: CodexHarness,
        logs: RecentLogs,
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
        self.diagnostics = diagnostics
        """What `/diagnostics` collects."""
        self.codex = codex
        """The harness of turns in Codex."""
        self.logs = logs
        """The last lines of the log."""

    def list_models(self) -> list[str]:
        """The models of the configuration: those of providers with a list, and of agents."""
        agents = self.config.agents.by_id.values()
        used = [model for agent in agents for model in (agent.model, *agent.fallback_models)]
        return list(dict.fromkeys((*self.providers.list_models(), *used)))

    async def prepare_models(self) -> None:
        """Load the SDKs of the agents' models, which takes seconds, before a turn needs them."""
        agents = self.config.agents
        ordered = (agents.agent(agents.default_id), *agents.by_id.values())
        models, codex = self.config.models, self.config.codex
        used = [
            agent.model
            for agent in ordered
            if choose_runtime(agent.model, agent, models, codex).id != "codex"
        ]
        for model in dict.fromkeys(used):
            try:
                await self.providers.prepare(model)
            except NacreError as error:
                # Reported again when a turn uses the model.
                logger.info("the model %s is not ready: %s", model, error)

    async def apply(self, config: SystemConfig) -> None:
        """Apply a changed configuration. Active runs continue with the old one.

        `storage.url`, `sandbox`, `gateway.host` and `gateway.port` change only with a restart.
        """
        sections = changed_sections(self.config, config)
        # A turn begins with all changes or none.
        with self.agents.hold_turns():
            if "mcp" in sections or "plugins" in sections:
                # First, because it can fail, and then nothing has changed.
                self.plugins.reserved_ids = [server.name for server in config.mcp_servers]
                await self.plugins.apply(config.plugins)
            if "mcp" in sections:
                await self.mcp.configure(config.mcp_servers)
            if "models" in sections:
                self.providers.configure(config.models)
            self.agents.configure(config)
            self.config = config
        await self.tools.configure(config)
        if sections:
            logger.info("the configuration changed: %s", ", ".join(sections))


def _has_programs(config: SystemConfig) -> bool:
    """Whether models can write programs. A changed configuration may allow it later."""
    settings = [agent.tools for agent in config.agents.by_id.values()]
    return any(
        it.code_mode.enabled or (it.tool_search.enabled and it.tool_search.mode == "code")
        for it in settings
    )


async def _make_runtime(
    config: SystemConfig,
    store: Store,
    *,
    workers: int,
    cache_directory: Path | None,
    is_durable: bool,
) -> Runtime:
    keys = None
    if is_durable:
        keys = await anyio.to_thread.run_sync(load_key_ring, config.snapshot_keys)
        await store.cells.delete_expired()
    # Without settings: each run has those of its agent.
    return Runtime(
        workers=workers,
        cache_directory=cache_directory,
        require=config.required_protections,
        max_suspended_cells=config.max_suspended_cells,
        is_lazy=not _has_programs(config),
        snapshot_keys=keys,
        cell_store=store.cells if is_durable else None,
        ray=config.ray,
    )


def _make_plugin_host(
    config: SystemConfig, hooks: Hooks, contexts: ContextRegistry, runtime: Runtime
) -> PluginHost:
    return PluginHost(
        hooks=hooks,
        namespaces=runtime.namespaces,
        contexts=contexts,
        reserved_ids=[server.name for server in config.mcp_servers],
    )


def _make_harnesses(runtime: Runtime, codex: CodexHarness) -> Harnesses:
    return Harnesses(built_in=BuiltInHarness(runtime), codex=codex, manual=ManualCalls(runtime))


def _add_commands(
    agents: AgentService, logs: RecentLogs, codex: CodexHarness, plugins: PluginHost
) -> Diagnostics:
    """Add the chat commands; return what `/diagnostics` collects."""
    diagnostics = Diagnostics(
        sources={"log.txt": lambda: logs.to_text().encode()},
        feedback=CodexFeedback(codex.servers),
    )
    agents.commands.add(diagnostics.as_command())
    agents.commands.add(CodexCommands(codex).as_command())
    agents.commands.add_source(lambda: map(_as_chat_command, plugins.commands))
    return diagnostics


def _as_chat_command(command: PluginCommand) -> ChatCommand:
    async def handle(call: CommandCall) -> str:
        return await command.run(call.arguments, call.identity)

    return ChatCommand(
        name=command.name,
        description=command.description,
        arguments=command.arguments,
        handler=handle,
        right="owner" if command.owner_only else None,
    )


@asynccontextmanager
async def open_system(
    config: SystemConfig,
    *,
    workers: int = 0,
    cache_directory: Path | None = None,
    continues_turns: bool = False,
) -> AsyncGenerator[System]:
    """Open all parts, and close them in reverse order.

    `continues_turns` is for a process that calls `AgentService.continue_turns` each time it starts.
    Only then, cells and turns are durable: another process would leave them to nobody.

    Raises StorageError, ConfigError, and RuntimeUnavailableError if the sandbox is needed and
    cannot start. A broken plugin or MCP server does not affect the rest.
    """
    hooks, contexts, approvals = Hooks(), ContextRegistry(), ApprovalQueue()
    async with AsyncExitStack() as stack:
        logs = stack.enter_context(keep_recent_logs())
        store = await stack.enter_async_context(open_store(config.storage.url))
        await store.interrupt_open_turns()
        is_durable = continues_turns and config.is_durable
        runtime = await _make_runtime(
            config,
            store,
            workers=workers,
            cache_directory=cache_directory,
            is_durable=is_durable,
        )
        await stack.enter_async_context(runtime)
        providers = await stack.enter_async_context(LiveProviders(config.models))
        mcp = await stack.enter_async_context(LiveMcp())
        await mcp.configure(config.mcp_servers)
        plugins = _make_plugin_host(config, hooks, contexts, runtime)
        await stack.enter_async_context(plugins)
        await plugins.apply(config.plugins)
        sink = RunMessageSink(lambda run_id: agents.run(run_id))
        tools = await stack.enter_async_context(AgentTools(plugins, messages=sink))
        codex = await stack.enter_async_context(open_codex_harness(runtime, store))
        context = ServiceContext(
            config=config,
            store=store,
            failed_writes=FailedTurnWrites(store),
            providers=providers.in_use,
            tools=tools,
            servers=mcp.in_use,
            hooks=HookRunner(hooks),
            approvals=approvals,
            harness=_make_harnesses(runtime, codex),
            context_registry=contexts,
            is_durable=is_durable,
        )
        agents = await stack.enter_async_context(AgentService(context))
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
            diagnostics=_add_commands(agents, logs, codex, plugins),
            codex=codex,
            logs=logs,
        )
