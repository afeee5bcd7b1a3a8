"""Opens a run with Tool Search: its configuration, its sandbox, its catalog and its tools."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Self, TypeAlias

import anyio

from nacre.config import (
    RunConfig,
    ToolsConfig,
    ToolSearchConfig,
    is_document,
    refuse_unopened_servers,
    tool_search_config_from,
)
from nacre.errors import ConfigError, RuntimeUnavailableError
from nacre.hooks import HookRunner, Hooks
from nacre.run_context import AbortController, RunContext
from nacre.sandbox import Sandbox, SandboxOptions
from nacre.tool_search.catalog import LiveCatalog, RunTools
from nacre.tool_search.model_surface import (
    direct_surface,
    is_tool_search_active,
    searchable_surface,
)
from nacre.tool_search.programs import Programs
from nacre.tool_search.run import ToolSearchRun
from nacre.tools import (
    ApprovalQueue,
    Approvals,
    Approver,
    CatalogCounters,
    DefinitionFormat,
    InputValidators,
    Tool,
    ToolExecutor,
    ToolServer,
    effective_tools,
    permitted_servers,
    policy_for,
)
from nacre.trajectory import TrajectoryRecorder

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from types import TracebackType

    from nacre.json_types import JsonObject
    from nacre.tool_search.results import ToolSearchResult, ToolSearchTelemetry

logger = logging.getLogger(__name__)


ConfigInput: TypeAlias = ToolSearchConfig | Mapping[str, object] | bool | None


def run_config_from(config: ConfigInput) -> RunConfig:
    """Read a configuration. In a document Tool Search is off unless it is enabled. With settings
    alone, or none, it is on unless they have `enabled: false`."""
    if config is None:
        return _with_settings(ToolSearchConfig(enabled=True))
    if isinstance(config, ToolSearchConfig):
        return _with_settings(replace(config, enabled=True))
    if isinstance(config, bool):
        return _with_settings(ToolSearchConfig(enabled=config))
    if not isinstance(config, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ConfigError("config", f"is a {type(config).__name__}; allowed: an object")
    if is_document(config):
        return RunConfig(document=config)
    return _with_settings(tool_search_config_from(config, path="config"))


def _with_settings(settings: ToolSearchConfig) -> RunConfig:
    return RunConfig(tools=ToolsConfig(tool_search=settings))


async def start_run(
    executor: ToolExecutor,
    config: ToolSearchConfig,
    *,
    tools: Sequence[Tool],
    servers: Sequence[ToolServer] = (),
    sandbox: Sandbox | None,
    tools_disabled: bool = False,
) -> ToolSearchRun:
    """Start a run whose calls go through this executor. `sandbox` is open and may be shared.

    If the mode is `code` and no worker starts, the model sees the structured tools instead.
    Raises CatalogError for tools that cannot be in one catalog.
    """
    policy = executor.policy
    allowed = [] if tools_disabled else effective_tools(tools, policy)
    servers = permitted_servers(servers, policy, tools)
    is_active = is_tool_search_active(
        config, is_code_mode=False, tools=allowed, has_servers=bool(servers)
    )
    problem = ""
    if is_active and config.mode == "code":
        problem = await _problem_with(sandbox)
    mode = "tools" if problem else config.mode
    surface = (
        searchable_surface(allowed, mode=mode, server_names=[server.name for server in servers])
        if is_active
        else direct_surface(allowed)
    )
    run_tools = RunTools(
        catalog=LiveCatalog(
            tools if is_active else (), servers=servers if is_active else (), policy=policy
        ),
        executor=executor,
        counters=CatalogCounters(),
        config=config,
    )
    programs = None
    if surface.mode == "code" and sandbox is not None:
        programs = Programs(sandbox, run_tools)
    return ToolSearchRun(surface, run_tools, programs, AbortController(), fallback_reason=problem)


async def _problem_with(sandbox: Sandbox | None) -> str:
    """Why programs cannot run; empty if they can."""
    problem = "there is no sandbox" if sandbox is None else (await sandbox.check()).problem
    if problem:
        logger.warning("Tool Search shows no code, as no sandbox can be started: %s", problem)
    return problem


class ToolSearch:
    """One or three tools in front of many: `async with ToolSearch(tools=[...]) as search: ...`.

    `config` holds settings of Tool Search, or a whole config document: see `run_config_from`.
    Opening raises CatalogError for tools that cannot be in one catalog, and ConfigError.
    """

    def __init__(
        self,
        *,
        tools: Iterable[Tool] = (),
        mcp: Iterable[ToolServer] | None = None,
        config: ConfigInput = None,
        context: RunContext | None = None,
        hooks: Hooks | Iterable[object] = (),
        approvals: Approver | ApprovalQueue | None = None,
        workers: int = 0,
    ) -> None:
        context = context or RunContext()
        run_config = run_config_from(config)
        if mcp is None:
            refuse_unopened_servers(run_config.document)
        configured = run_config.tools_for(context)
        self._require = run_config.required_protections()
        self._config = configured.tool_search
        self._is_code_mode = configured.code_mode.enabled
        self._policy = policy_for(configured, context)
        self._tools = tuple(tools)
        self._servers = tuple(mcp or ())
        self._context = context
        self._hooks = hooks if isinstance(hooks, Hooks) else Hooks(hooks)
        self._approvals = Approvals(approvals)
        self._workers = workers
        self._stack = AsyncExitStack()
        self._run: ToolSearchRun | None = None

    async def __aenter__(self) -> Self:
        if self._config.enabled and self._is_code_mode:
            raise ConfigError(
                "tools.toolSearch",
                "is on, and so is `tools.codeMode`, which goes before it; "
                "use CodeMode for this agent, or switch one of them off",
            )
        try:
            self._run = await self._open_run()
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with anyio.CancelScope(shield=True):
            await self.run.abort("tool search is closed")
        await self._stack.aclose()

    @property
    def run(self) -> ToolSearchRun:
        """The run, with its catalog and its trajectory."""
        if self._run is None:
            raise RuntimeUnavailableError("tool search is not open; use it in `async with`")
        return self._run

    def definitions(self, format: DefinitionFormat = "openai") -> list[JsonObject]:
        """The tools of a model request, in the format of a provider."""
        return self.run.definitions(format)

    async def call(
        self, name: str, arguments: object = None, *, call_id: str = ""
    ) -> ToolSearchResult:
        """Execute a call of the model."""
        return await self.run.call(name, arguments, call_id=call_id)

    def telemetry(self) -> ToolSearchTelemetry:
        """Counts of the requests, searches and calls so far."""
        return self.run.telemetry()

    async def abort(self, reason: str = "the run was aborted") -> None:
        """Abort all programs and calls."""
        await self.run.abort(reason)

    async def _open_run(self) -> ToolSearchRun:
        is_wanted = self._config.enabled and self._config.mode == "code"
        sandbox: Sandbox | None = None
        if is_wanted and (self._tools or self._servers):
            options = SandboxOptions(workers=self._workers, require=self._require)
            sandbox = await self._stack.enter_async_context(Sandbox(options))
        executor = ToolExecutor(
            context=self._context,
            policy=self._policy,
            hooks=HookRunner(self._hooks),
            approvals=self._approvals,
            recorder=TrajectoryRecorder(self._context),
            validators=InputValidators(),
        )
        return await start_run(
            executor, self._config, tools=self._tools, servers=self._servers, sandbox=sandbox
        )
