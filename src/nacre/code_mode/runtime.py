"""`Runtime`: workers, cells and namespaces shared by runs. `CodeMode`: a runtime with one run."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Final, Self, TypeAlias
from weakref import WeakSet

import anyio

from nacre.code_mode.bridge import ApiFiles, PreparedCatalogs, RunTools
from nacre.code_mode.cell import RunTelemetry
from nacre.code_mode.cells import LiveCells, RunCells, SuspendedCells
from nacre.code_mode.durable_cells import DurableRun
from nacre.code_mode.mcp_servers import McpRequests, McpServers
from nacre.code_mode.model_surface import visible_tools
from nacre.code_mode.namespaces import Namespace, NamespaceRegistry, RunNamespaces
from nacre.code_mode.run import CodeModeRun
from nacre.config import (
    MAX_SUSPENDED_CELLS,
    MAX_SUSPENDED_LIMIT,
    CodeModeConfig,
    RunConfig,
    ToolsConfig,
    code_mode_config_from,
    is_document,
    refuse_unopened_servers,
)
from nacre.errors import (
    ConfigError,
    NamespaceError,
    RuntimeUnavailableError,
    ToolDefinitionError,
)
from nacre.hooks import HookRunner, Hooks
from nacre.lazy_dataclasses import replace
from nacre.run_context import AbortController, RunContext
from nacre.sandbox import Sandbox, SandboxOptions
from nacre.telemetry import debug_log, get_debug_flags
from nacre.tools import (
    APPROVAL_SECONDS,
    ApprovalMemory,
    Approvals,
    InputValidators,
    Tool,
    ToolExecutor,
    effective_tools,
    permitted_servers,
    policy_for,
    servers_of,
)
from nacre.trajectory import TrajectoryRecorder

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence
    from pathlib import Path
    from types import TracebackType

    from anyio.abc import TaskGroup

    from nacre.code_mode.cell import CellInfo, CodeModeResult
    from nacre.config import Language, Protection, RayConfig
    from nacre.json_types import JsonObject, JsonValue
    from nacre.sandbox import KeyRing, Launcher
    from nacre.storage import CellStore, TurnState
    from nacre.tools import ApprovalQueue, Approver, DefinitionFormat, DirectResult, ToolServer
    from nacre.trajectory import TrajectoryEvent


# In the turn of an agent, an approval is shown when its cell is stored. Within this time, code that
# reads the queue has answered.
_TURN_PERSON_SECONDS: Final = 0.02

ConfigInput: TypeAlias = "RunConfig | CodeModeConfig | Mapping[str, object] | bool | None"

# The logged members of an event; never inputs, results or output.
_LOGGED_KEYS: Final = (
    "runId", "toolId", "language", "status", "reason", "outcome", "errorCode", "durationMs",
    "snapshotBytes", "model", "toolNames", "toolBytes", "payloadBytes", "finishReason",
    "calledNames",
)  # fmt: skip


def run_config_from(config: ConfigInput) -> RunConfig:
    """Read a configuration. In a document code mode is off unless it has `enabled: true`. With
    settings alone, or none, it is on unless they have `enabled: false`."""
    if isinstance(config, RunConfig):
        return config
    if config is None:
        return _with_settings(CodeModeConfig(enabled=True))
    if isinstance(config, CodeModeConfig):
        return _with_settings(replace(config, enabled=True))
    if isinstance(config, bool):
        return _with_settings(CodeModeConfig(enabled=config))
    if not isinstance(config, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ConfigError("config", f"is a {type(config).__name__}; allowed: an object")
    if is_document(config):
        return RunConfig(document=config)
    return _with_settings(code_mode_config_from({"enabled": True, **config}, path="config"))


def _with_settings(settings: CodeModeConfig) -> RunConfig:
    return RunConfig(tools=ToolsConfig(code_mode=settings))


def log_run_if_enabled(run: CodeModeRun) -> None:
    """Log the run's surface now, and its cells and their calls as they come."""
    if not get_debug_flags().code_mode:
        return
    log = debug_log("code_mode")
    sources = ", ".join(f"{count} {name}" for name, count in run.telemetry().sources.items())
    log.info(
        "run %s: code mode is %s; the model sees %s; the catalog has %s",
        run.context.run_id,
        "active" if run.is_code_mode else "not active",
        ", ".join(run.visible_names) or "no tools",
        sources or "no tools",
    )

    def log_event(event: TrajectoryEvent) -> None:
        # The data for replays is for programs only.
        if not event.kind.startswith("replay."):
            log.info("%s", _format_event(event))

    run.trajectory.subscribe(log_event)


def _format_event(event: TrajectoryEvent) -> str:
    told = {key: event.data.get(key) for key in _LOGGED_KEYS}
    said = [
        f"{key}={_format_value(value)}"
        for key, value in told.items()
        if value not in (None, "", [])
    ]
    parent = f"in {event.parent_id}" if event.parent_id else ""
    return " ".join(filter(None, [event.kind, event.call_id, parent, *said]))


def _format_value(value: JsonValue) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


class Runtime:
    """Workers and suspended cells for many runs. An async context manager.

    `config` holds settings of code mode, or a whole config document: see `run_config_from`.
    `approval_seconds` is how long an approval stays open. `require` names protections of the
    sandbox, instead of `sandbox.require` in the document. With `is_lazy`, the first program starts
    the workers. `snapshot_keys` seal the snapshots of cells; by default a key that only this
    runtime has. `cell_store` stores the cells of runs with `durable: true`: `Store.cells`.
    `ray` is the Ray cluster that runs the programs; by default they run on this machine.
    `launcher` starts the workers of cells, and may have started one.
    """

    def __init__(
        self,
        config: ConfigInput = None,
        *,
        workers: int = 0,
        cache_directory: Path | None = None,
        require: Collection[Protection] | None = None,
        max_suspended_cells: int = MAX_SUSPENDED_CELLS,
        approval_seconds: float = APPROVAL_SECONDS,
        is_lazy: bool = False,
        snapshot_keys: KeyRing | None = None,
        cell_store: CellStore | None = None,
        ray: RayConfig | None = None,
        launcher: Launcher | None = None,
    ) -> None:
        if (
            type(max_suspended_cells) is not int
            or not 1 <= max_suspended_cells <= MAX_SUSPENDED_LIMIT
        ):
            raise ConfigError(
                "max_suspended_cells",
                f"is {max_suspended_cells!r}; "
                f"allowed: whole numbers from 1 to {MAX_SUSPENDED_LIMIT}",
            )
        self._config = run_config_from(config)
        self.approval_seconds = approval_seconds
        if require is None:
            require = self._config.required_protections()
        options = SandboxOptions(
            workers=workers,
            cache_directory=cache_directory,
            require=require,
            is_lazy=is_lazy,
            keys=snapshot_keys,
            ray=ray,
            launcher=launcher,
        )
        self._sandbox = Sandbox(options)
        self._cell_store = cell_store
        self._suspended = SuspendedCells(max_suspended_cells)
        self._live = LiveCells(self._suspended)
        self._catalogs = PreparedCatalogs()
        self._approval_memory = ApprovalMemory()
        self._validators = InputValidators()
        self._runs: WeakSet[CodeModeRun] = WeakSet()
        self._stack = AsyncExitStack()
        self._background: TaskGroup
        self._is_open = False
        self.namespaces = NamespaceRegistry()
        """The registry for the namespaces of plugins."""

    @property
    def sandbox(self) -> Sandbox:
        """For other surfaces that run programs in the same workers."""
        return self._sandbox

    @property
    def validators(self) -> InputValidators:
        return self._validators

    def approvals(self, approver: Approver | ApprovalQueue | None) -> Approvals:
        """Approvals that share the memory and the time limit of this runtime."""
        return Approvals(approver, ttl_seconds=self.approval_seconds, memory=self._approval_memory)

    async def __aenter__(self) -> Self:
        await self._stack.enter_async_context(self._sandbox)
        self._background = await self._stack.enter_async_context(anyio.create_task_group())
        self._stack.callback(self._background.cancel_scope.cancel)
        self._background.start_soon(self._suspended.expire)
        self._is_open = True
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._is_open = False
        # Durable cells that wait are left to the next process.
        self._live.detach()
        with anyio.CancelScope(shield=True):
            await self.abort(reason="the runtime is closed")
        await self._stack.aclose()

    def run(
        self,
        *,
        tools: Iterable[Tool | Callable[..., object]] = (),
        context: RunContext | None = None,
        hooks: Hooks | Iterable[object] = (),
        approvals: Approver | ApprovalQueue | None = None,
        mcp: Iterable[ToolServer] | None = None,
        tools_disabled: bool = False,
    ) -> CodeModeRun:
        """Start a run of an agent with these tools and MCP servers, as far as policy permits them.

        Raises CatalogError for tools that cannot be in one catalog, and ConfigError. If the
        configuration names MCP servers, pass `mcp`; otherwise this raises ConfigError, too.
        """
        if mcp is None:
            refuse_unopened_servers(self._config.document)
        context = context or RunContext()
        executor = ToolExecutor(
            context=context,
            policy=policy_for(self._config.tools_for(context), context),
            hooks=HookRunner(hooks if isinstance(hooks, Hooks) else Hooks(hooks)),
            approvals=self.approvals(approvals),
            recorder=TrajectoryRecorder(context),
            validators=self._validators,
        )
        return self.run_with(
            executor,
            self._config,
            tools=[_to_tool(each) for each in tools],
            servers=tuple(mcp or ()),
            tools_disabled=tools_disabled,
        )

    def run_with(
        self,
        executor: ToolExecutor,
        config: RunConfig,
        *,
        tools: Sequence[Tool],
        servers: Sequence[ToolServer],
        tools_disabled: bool = False,
        describe_turn: Callable[[str], TurnState | None] | None = None,
        is_stored: bool = True,
    ) -> CodeModeRun:
        """Start a run whose calls go through this executor, with a configuration of its own.

        `describe_turn` returns what is stored with a durable cell about the turn, by the id of the
        cell. Without `is_stored`, the cells of the run are not durable.
        """
        if not self._is_open:
            raise RuntimeUnavailableError("the runtime is not open; use it in `async with`")
        settings, policy = config.tools_for(executor.context).code_mode, executor.policy
        allowed = effective_tools(tools, policy)
        if servers:
            servers = permitted_servers(servers, policy, tools)
        surface = visible_tools(
            allowed, config=settings, has_servers=bool(servers), tools_disabled=tools_disabled
        )
        prepared = self._catalogs.prepare(surface.cataloged)
        reached = servers if surface.is_code_mode else ()
        mcp_servers = McpServers([*servers_of(surface.cataloged), *reached], policy)
        abort = AbortController()
        run_tools = RunTools(
            config=settings,
            prepared=prepared,
            executor=executor,
            namespaces=RunNamespaces(
                self.namespaces,
                prepared.catalog,
                context=executor.context,
                config=config.to_json(),
                abort=abort.signal,
            ),
            mcp=McpRequests(mcp_servers),
            files=ApiFiles(prepared.catalog, mcp_servers),
            telemetry=RunTelemetry(
                catalog=prepared.catalog, mcp=mcp_servers, visible_tools=surface.tool_names
            ),
        )
        durable: DurableRun | None = None
        if settings.durable and is_stored and self._cell_store is not None:
            durable = DurableRun(store=self._cell_store)
            if describe_turn is not None:
                durable = replace(
                    durable, describe_turn=describe_turn, person_seconds=_TURN_PERSON_SECONDS
                )
        cells = RunCells(
            run_tools,
            sandbox=self._sandbox,
            suspended=self._suspended,
            live=self._live,
            durable=durable,
        )
        run = CodeModeRun(surface, run_tools, cells, abort)
        self._runs.add(run)
        log_run_if_enabled(run)
        return run

    def cells(self) -> list[CellInfo]:
        """All cells that run or wait; oldest first."""
        return self._live.infos(lambda _cell: True)

    async def abort(
        self, *, session_id: str | None = None, reason: str = "the run was aborted"
    ) -> None:
        """Abort all runs of a session; without `session_id`, all runs."""
        for run in list(self._runs):
            if session_id in (None, run.context.session_id):
                await run.abort(reason)
        # Also the cells of runs that have been garbage-collected.
        await self._live.abort(lambda cell: session_id in (None, cell.context.session_id), reason)

    def resume_cell(self, cell_id: str) -> bool:
        """Start the next leg of a waiting cell, for a person. The next `wait` of the model returns
        its result. False if there is no such cell, it runs, or a call of the model resumes it when
        somebody has answered."""
        for run in list(self._runs):
            leg = run.begin_person_leg(cell_id)
            if leg is not None:
                self._background.start_soon(leg)
                return True
        return False

    async def abort_cell(self, cell_id: str, reason: str = "the cell was aborted") -> bool:
        """Abort one cell; False if there is none with this id."""
        return bool(await self._live.abort(lambda cell: cell.cell_id == cell_id, reason))


def _to_tool(given: object) -> Tool:
    """Convert a typed function to a tool. Raises ToolDefinitionError for anything else."""
    if isinstance(given, Tool):
        return given
    if callable(given) and not isinstance(given, type):
        # Not above: a tool from a function needs pydantic.
        from nacre.tools import tool

        return tool(given)
    raise ToolDefinitionError(
        f"tools has a {type(given).__name__}; allowed: tools and typed functions"
    )


def _check_namespace(pair: object, tools: Sequence[Tool]) -> tuple[str, Namespace]:
    """Return the pair. Raises NamespaceError unless it is one, and its plugin has the tools."""
    match pair:
        case (str() as plugin_id, Namespace() as namespace):
            pass
        case _:
            raise NamespaceError(
                f"namespaces has a {type(pair).__name__}; allowed: pairs of a plugin id and a "
                'Namespace, such as ("shop", namespace)'
            )
    for name in namespace.required_tool_names:
        owners = [tool.owner for tool in tools if (tool.source, tool.name) == ("openclaw", name)]
        if plugin_id not in owners:
            found = f"it belongs to {', '.join(map(repr, owners))}" if owners else "there is none"
            raise NamespaceError(
                f"namespace {namespace.id!r} of plugin {plugin_id!r} needs the tool {name!r} of "
                f"this plugin; {found}. Give the tool the owner {plugin_id!r}, or change the pair"
            )
    return plugin_id, namespace


class CodeMode:
    """Two tools in front of many: `async with CodeMode(tools=[...]) as code_mode: ...`.

    Or call `open` and `aclose`, which may be in different tasks of one event loop. `namespaces` are
    pairs of the plugin that owns the tools and the namespace.
    """

    def __init__(
        self,
        *,
        tools: Iterable[Tool | Callable[..., object]] = (),
        mcp: Iterable[ToolServer] | None = None,
        config: ConfigInput = None,
        context: RunContext | None = None,
        hooks: Hooks | Iterable[object] = (),
        approvals: Approver | ApprovalQueue | None = None,
        namespaces: Iterable[tuple[str, Namespace]] = (),
        workers: int = 0,
        require: Collection[Protection] | None = None,
    ) -> None:
        self.runtime = Runtime(config, workers=workers, require=require)
        self._tools = tuple(_to_tool(given) for given in tools)
        for pair in namespaces:
            plugin_id, namespace = _check_namespace(pair, self._tools)
            self.runtime.namespaces.register(plugin_id, namespace)
        self._mcp = None if mcp is None else tuple(mcp)
        self._context = context
        self._hooks = hooks
        self._approvals = approvals
        self._run: CodeModeRun | None = None
        self._owner: asyncio.Task[None] | None = None
        self._closing = anyio.Event()

    async def open(self) -> Self:
        """Start the runtime and the run. Close them with `aclose`."""
        if self._owner is not None:
            raise RuntimeUnavailableError("code mode can be opened only once; create another one")
        opened = anyio.Event()
        # A task group has to be left in the task that entered it, and `aclose` may be called in
        # another one. So this task owns the runtime, and no task group can outlive it.
        self._owner = asyncio.create_task(self._own_runtime(opened))  # noqa: TID251
        self._owner.add_done_callback(lambda _: opened.set())
        try:
            await opened.wait()
        except BaseException:
            await self.aclose()
            raise
        if self._run is None:
            await self.aclose()
        return self

    async def aclose(self) -> None:
        """Abort all cells and stop the workers. Raises the error of a background task."""
        self._closing.set()
        if self._owner is None:
            return
        if not self._owner.done():
            with anyio.CancelScope(shield=True):
                await asyncio.wait([self._owner])
        if not self._owner.cancelled():
            self._owner.result()

    async def _own_runtime(self, opened: anyio.Event) -> None:
        async with self.runtime:
            self._run = self.runtime.run(
                tools=self._tools,
                mcp=self._mcp,
                context=self._context,
                hooks=self._hooks,
                approvals=self._approvals,
            )
            opened.set()
            await self._closing.wait()

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()

    @property
    def run(self) -> CodeModeRun:
        """The run, with its catalog, its trajectory and its cells."""
        if self._run is None:
            raise RuntimeUnavailableError("code mode is not open; use `async with`, or `open()`")
        return self._run

    def definitions(self, format: DefinitionFormat = "openai") -> list[JsonObject]:
        """The tools of a model request, in the format of a provider."""
        return self.run.definitions(format)

    async def exec(
        self, code: str, *, language: Language | None = None, call_id: str = ""
    ) -> CodeModeResult:
        """Run a program in a new cell."""
        return await self.run.exec(code, language=language, call_id=call_id)

    async def wait(self, cell_id: str, *, call_id: str = "") -> CodeModeResult:
        """Continue a suspended cell."""
        return await self.run.wait(cell_id, call_id=call_id)

    async def call(
        self, name: str, arguments: object = None, *, call_id: str = ""
    ) -> CodeModeResult | DirectResult:
        """Execute a call of the model."""
        return await self.run.call(name, arguments, call_id=call_id)

    async def abort(self, reason: str = "the run was aborted") -> None:
        """Abort all cells and their calls."""
        await self.run.abort(reason)
