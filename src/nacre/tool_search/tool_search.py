"""The door to Tool Search: a run of an agent with all that it needs, opened and closed."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Self

import anyio

from nacre.config.documents import refuse_unopened_servers
from nacre.errors import ConfigError, RuntimeUnavailableError
from nacre.hooks import HookRunner, Hooks
from nacre.run_context import RunContext
from nacre.sandbox import Sandbox, SandboxOptions
from nacre.tool_search.run_config import ConfigInput, run_config_from
from nacre.tool_search.start_run import start_run
from nacre.tools import Approvals

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import TracebackType

    from nacre.json_types import JsonObject
    from nacre.tool_search.results import ToolSearchResult, ToolSearchTelemetry
    from nacre.tool_search.run import ToolSearchRun
    from nacre.tools import ApprovalQueue, Approver, Tool
    from nacre.tools.tool_definitions import DefinitionFormat
    from nacre.tools.tool_servers import ToolServer


class ToolSearch:
    """One or three tools in front of many: `async with ToolSearch(tools=[...]) as search: ...`.

    `config` holds settings of Tool Search, or a whole config document: see `run_config_from`.
    Opening raises CatalogError for tools that cannot be together, and ConfigError.
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
        self._config = run_config.tool_search_for(context)
        self._is_code_mode = run_config.is_code_mode_on_for(context)
        self._policy = run_config.policy_for(context)
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
        """The one run: its catalog and its trajectory."""
        if self._run is None:
            raise RuntimeUnavailableError("tool search is not open; use it in `async with`")
        return self._run

    def definitions(self, format: DefinitionFormat = "openai") -> list[JsonObject]:
        """What to send to a provider as its tools."""
        return self.run.definitions(format)

    async def call(
        self, name: str, arguments: object = None, *, call_id: str = ""
    ) -> ToolSearchResult:
        """Do what the model asked for, whatever it was."""
        return await self.run.call(name, arguments, call_id=call_id)

    def telemetry(self) -> ToolSearchTelemetry:
        """What was sent, found and called so far."""
        return self.run.telemetry()

    async def abort(self, reason: str = "the run was aborted") -> None:
        """End every program and every call."""
        await self.run.abort(reason)

    async def _open_run(self) -> ToolSearchRun:
        is_wanted = self._config.enabled and self._config.mode == "code"
        sandbox: Sandbox | None = None
        if is_wanted and (self._tools or self._servers):
            options = SandboxOptions(workers=self._workers)
            sandbox = await self._stack.enter_async_context(Sandbox(options))
        return await start_run(
            tools=self._tools,
            servers=self._servers,
            sandbox=sandbox,
            config=self._config,
            policy=self._policy,
            context=self._context,
            hooks=HookRunner(self._hooks),
            approvals=self._approvals,
        )
