"""One run of an agent: what the model is shown, and what happens when it calls something."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nacre.code_mode.api_files import ApiFiles
from nacre.code_mode.bridge import RunTools
from nacre.code_mode.cell_registry import CellRefused
from nacre.code_mode.control_tools import InvalidInput, parse_exec_input, parse_wait_input
from nacre.code_mode.mcp_servers import McpRequests
from nacre.code_mode.model_surface import EXEC_NAME, WAIT_NAME, verify_payload
from nacre.code_mode.results import CodeModeResult, DirectResult, Failed
from nacre.config import LANGUAGES
from nacre.errors import CatalogError, NamespaceError, ToolError
from nacre.tools import (
    CallSite,
    CallSubject,
    Catalog,
    DefinitionFormat,
    NotArguments,
    RunIndex,
    Tool,
    ToolExecutor,
    arguments_from,
    no_such_tool,
    site_of_model_call,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from nacre.code_mode.cells import CellInfo, RunCells
    from nacre.code_mode.mcp_servers import McpServers
    from nacre.code_mode.model_surface import ModelSurface
    from nacre.code_mode.namespaces import RunNamespaces
    from nacre.code_mode.results import PendingToolCall, Telemetry
    from nacre.code_mode.run_telemetry import RunTelemetry
    from nacre.config import CodeModeConfig, Language
    from nacre.json_types import JsonObject, JsonValue
    from nacre.run_context import AbortController, RunContext
    from nacre.sandbox.results import Reason
    from nacre.trajectory import TrajectoryRecorder


class CodeModeRun:
    """A run of an agent. Made by `Runtime.run`; its methods may be called concurrently."""

    def __init__(
        self,
        *,
        surface: ModelSurface,
        config: CodeModeConfig,
        catalog: Catalog,
        index: RunIndex,
        executor: ToolExecutor,
        namespaces: RunNamespaces,
        mcp: McpServers,
        cells: RunCells,
        telemetry: RunTelemetry,
        trajectory: TrajectoryRecorder,
        context: RunContext,
        abort: AbortController,
    ) -> None:
        self._surface = surface
        self._config = config
        self._executor = executor
        self._namespaces = namespaces
        self._cells = cells
        self._telemetry = telemetry
        self._abort = abort
        self._index = index
        self._mcp = McpRequests(mcp)
        self._files = ApiFiles(catalog, mcp)
        self.catalog = catalog
        self.context = context
        self.trajectory = trajectory
        """Everything that the run did, redacted: see `nacre.trajectory`."""

    # What the model is shown.

    @property
    def is_code_mode(self) -> bool:
        """Whether the model sees `exec` and `wait`; if not, it sees the tools themselves."""
        return self._surface.is_code_mode

    @property
    def visible_names(self) -> tuple[str, ...]:
        """The names of all that the model sees."""
        return self._telemetry.visible_tools

    def definitions(self, format: DefinitionFormat = "openai") -> list[JsonObject]:
        """What to send to a provider as its tools."""
        return self._surface.definitions(
            format,
            config=self._config,
            catalog=self.catalog,
            namespaces=self._namespaces.visible(),
            mcp_servers=self._mcp.servers.names,
        )

    def verify_payload(self, tool_names: Sequence[str]) -> None:
        """Raises CodeModePayloadError unless a request to the model holds exactly code mode's
        tools; nothing to check where it is not active."""
        verify_payload(tool_names, self._surface)

    def telemetry(self) -> Telemetry:
        """What the catalog holds and how it was used so far."""
        return self._telemetry.report()

    # What the model calls.

    async def call(
        self, name: str, arguments: object = None, *, call_id: str = ""
    ) -> CodeModeResult | DirectResult:
        """Do what the model asked for; `arguments` are an object, or the JSON text of one."""
        try:
            given = arguments_from(arguments)
        except NotArguments as refusal:
            return self._fail(str(refusal), "invalid_input")
        if self.is_code_mode and name == EXEC_NAME:
            return await self._exec(given, call_id)
        if self.is_code_mode and name == WAIT_NAME:
            return await self._wait(given, call_id)
        for tool in self._surface.direct_tools:
            if tool.name == name:
                return await self._call_directly(tool, given, call_id)
        return self._fail(no_such_tool(name, self.visible_names), "invalid_input")

    async def exec(
        self, code: str, *, language: Language | None = None, call_id: str = ""
    ) -> CodeModeResult:
        """Run a program in a new cell."""
        given: JsonObject = {"code": code}
        if language is not None:
            given["language"] = language
        return await self._exec(given, call_id)

    async def wait(self, run_id: str, *, call_id: str = "") -> CodeModeResult:
        """Continue a suspended cell."""
        return await self._wait({"runId": run_id}, call_id)

    # Looking after it.

    def cells(self) -> list[CellInfo]:
        """The cells that run, wait, or left calls behind that still run."""
        return self._cells.infos()

    def waits_for_somebody(self, pending: Sequence[PendingToolCall]) -> bool:
        """Whether a cell with these calls goes on only when a person or a client has answered."""
        awaited = sum(call.is_awaiting_somebody for call in pending)
        # The others wait for their turn, and the turns are taken by those that wait for somebody.
        return 0 < awaited == min(len(pending), self._config.max_pending_tool_calls)

    async def abort(self, reason: str = "the run was aborted") -> None:
        """End the run: its cells, wherever they are, and their calls. It takes no more calls."""
        self._abort.abort(reason)
        await self._cells.abort(reason)

    async def abort_cell(self, run_id: str, reason: str = "the cell was aborted") -> bool:
        """End one cell; False if this run has none of that id."""
        return await self._cells.abort_one(run_id, reason)

    # Control calls.

    async def _exec(self, given: JsonObject, call_id: str) -> CodeModeResult:
        self._telemetry.exec_count += 1
        language = given.get("language", LANGUAGES[0])
        subject = CallSubject(
            tool_id="code_mode:exec",
            tool_name=EXEC_NAME,
            kind="code_mode_exec",
            input_kind=language if language in LANGUAGES else None,
        )
        return await self._control(subject, given, call_id, self._start_cell)

    async def _wait(self, given: JsonObject, call_id: str) -> CodeModeResult:
        self._telemetry.wait_count += 1
        subject = CallSubject(tool_id="code_mode:wait", tool_name=WAIT_NAME, kind="code_mode_wait")
        return await self._control(subject, given, call_id, self._resume_cell)

    async def _start_cell(self, given: JsonObject, call_id: str) -> CodeModeResult:
        program = parse_exec_input(given, self._config)
        tools = RunTools(
            catalog=self.catalog,
            executor=self._executor,
            namespaces=await self._namespaces.open(),
            mcp=self._mcp,
            files=self._files,
            index=self._index,
            counters=self._telemetry.counters,
            config=self._config,
        )
        return await self._cells.start(program, tools, call_id=call_id)

    async def _resume_cell(self, given: JsonObject, _call_id: str) -> CodeModeResult:
        return await self._cells.resume(parse_wait_input(given))

    async def _control(
        self,
        subject: CallSubject,
        given: JsonObject,
        call_id: str,
        perform: Callable[[JsonObject, str], Awaitable[CodeModeResult]],
    ) -> CodeModeResult:
        """Hooks, approvals and the record hold for control calls too; a refusal is a result."""
        if not self._config.enabled:
            return self._fail("code mode is off (`tools.codeMode.enabled`)", "invalid_input")
        site = self._site(call_id)

        async def perform_permitted(permitted: JsonObject) -> tuple[CodeModeResult, JsonValue]:
            result = await self._perform(perform, permitted, site.call_id)
            return result, result.to_json()

        try:
            return await self._executor.control(
                subject, given, site=site, perform=perform_permitted
            )
        except ToolError as error:
            return self._fail(
                error.message, "aborted" if error.code == "aborted" else "call_denied"
            )

    async def _perform(
        self,
        perform: Callable[[JsonObject, str], Awaitable[CodeModeResult]],
        given: JsonObject,
        call_id: str,
    ) -> CodeModeResult:
        try:
            return await perform(given, call_id)
        except (InvalidInput, CellRefused) as refusal:
            return self._fail(refusal.message, refusal.reason)
        except (CatalogError, NamespaceError) as error:
            return self._fail(str(error), "internal_error")

    # Tools that the model sees by themselves.

    async def _call_directly(self, tool: Tool, given: JsonObject, call_id: str) -> DirectResult:
        try:
            value = await self._executor.call_directly(tool, given, site=self._site(call_id))
        except ToolError as error:
            return DirectResult(error=error.message, code=error.code)
        return DirectResult(value=value)

    def _site(self, call_id: str) -> CallSite:
        return site_of_model_call(call_id, self._abort.signal)

    def _fail(self, message: str, reason: Reason) -> Failed:
        return Failed(error=message, reason=reason, telemetry=self._telemetry.report())
