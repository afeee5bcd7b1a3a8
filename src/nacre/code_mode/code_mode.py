"""A runtime and one run in one step, for agents that need no more."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from nacre.code_mode.runtime import Runtime
from nacre.errors import RuntimeUnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import TracebackType

    from nacre.code_mode.namespaces import Namespace
    from nacre.code_mode.results import CodeModeResult, DirectResult
    from nacre.code_mode.run import CodeModeRun
    from nacre.code_mode.run_config import ConfigInput
    from nacre.config.code_mode import Language
    from nacre.hooks import Hooks
    from nacre.json_types import JsonObject
    from nacre.run_context import RunContext
    from nacre.tools import ApprovalQueue, Approver, Tool
    from nacre.tools.tool_definitions import DefinitionFormat
    from nacre.tools.tool_servers import ToolServer


class CodeMode:
    """Two tools in front of many: `async with CodeMode(tools=[...]) as code_mode: ...`.

    `namespaces` are pairs of the plugin that owns the tools and the namespace.
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
    ) -> None:
        self.runtime = Runtime(config, workers=workers)
        for plugin_id, namespace in namespaces:
            self.runtime.namespaces.register(plugin_id, namespace)
        self._tools = tuple(tools)
        self._mcp = None if mcp is None else tuple(mcp)
        self._context = context
        self._hooks = hooks
        self._approvals = approvals
        self._run: CodeModeRun | None = None

    async def __aenter__(self) -> Self:
        await self.runtime.__aenter__()
        try:
            self._run = self.runtime.run(
                tools=self._tools,
                mcp=self._mcp,
                context=self._context,
                hooks=self._hooks,
                approvals=self._approvals,
            )
        except BaseException as error:
            await self.runtime.__aexit__(type(error), error, error.__traceback__)
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.runtime.__aexit__(kind, error, traceback)

    @property
    def run(self) -> CodeModeRun:
        """The one run: its catalog, its trajectory, its cells."""
        if self._run is None:
            raise RuntimeUnavailableError("code mode is not open; use it in `async with`")
        return self._run

    def definitions(self, format: DefinitionFormat = "openai") -> list[JsonObject]:
        """What to send to a provider as its tools."""
        return self.run.definitions(format)

    async def exec(
        self, code: str, *, language: Language | None = None, call_id: str = ""
    ) -> CodeModeResult:
        """Run a program in a new cell."""
        return await self.run.exec(code, language=language, call_id=call_id)

    async def wait(self, run_id: str, *, call_id: str = "") -> CodeModeResult:
        """Continue a suspended cell."""
        return await self.run.wait(run_id, call_id=call_id)

    async def call(
        self, name: str, arguments: object = None, *, call_id: str = ""
    ) -> CodeModeResult | DirectResult:
        """Do what the model asked for, whatever it was."""
        return await self.run.call(name, arguments, call_id=call_id)

    async def abort(self, reason: str = "the run was aborted") -> None:
        """End every cell and its calls."""
        await self.run.abort(reason)
