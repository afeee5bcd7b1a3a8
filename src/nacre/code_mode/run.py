"""The tool surface of one run in code mode: `exec`, `wait` and the direct-only tools."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import anyio

from nacre.code_mode.cell import CellRefused, CodeModeResult, Failed, Waiting
from nacre.code_mode.durable_cells import can_repeat
from nacre.code_mode.model_surface import (
    EXEC_NAME,
    WAIT_NAME,
    add_language_hint,
    parse_exec_input,
    parse_wait_input,
)
from nacre.errors import CatalogError, NamespaceError, StorageError, ToolError
from nacre.lazy_dataclasses import replace
from nacre.messages import ImagePart
from nacre.tools import (
    CallResult,
    CallSubject,
    DirectResult,
    InvalidCall,
    format_direct_result,
    format_error,
    format_result,
    make_call_site,
    make_tool_specs,
    parse_call,
    verify_payload,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Sequence, Set

    from nacre.code_mode.bridge import RunTools
    from nacre.code_mode.cell import CellInfo, PendingToolCall, Telemetry
    from nacre.code_mode.cells import RunCells
    from nacre.code_mode.model_surface import ModelSurface
    from nacre.config import Language
    from nacre.json_types import JsonObject, JsonValue
    from nacre.messages import SentPayload, ToolCallPart, ToolSpec
    from nacre.run_context import AbortController, RunContext
    from nacre.sandbox.results import Reason
    from nacre.tools import CallWaits, Catalog, DefinitionFormat, SurfaceKind, Tool
    from nacre.trajectory import TrajectoryRecorder

# A suspended cell is resumed well before it would expire, as long as somebody may still answer.
_RESUME_SHARE: Final = 0.5
_EXEC: Final = CallSubject(tool_id="code_mode:exec", tool_name=EXEC_NAME, kind="code_mode_exec")
_WAIT: Final = CallSubject(tool_id="code_mode:wait", tool_name=WAIT_NAME, kind="code_mode_wait")


class CodeModeRun:
    """A run of an agent, made by `Runtime.run`. Its methods may be called concurrently.

    Implements `nacre.tools.surface.ToolSurface`.
    """

    def __init__(
        self, surface: ModelSurface, tools: RunTools, cells: RunCells, abort: AbortController
    ) -> None:
        self._surface = surface
        self._tools = tools
        self._config = tools.config
        self._cells = cells
        self._abort = abort
        self.context: RunContext = tools.executor.context
        self.trajectory: TrajectoryRecorder = tools.executor.recorder
        """The redacted events of the run: see `nacre.trajectory`."""

    # What the model sees.

    @property
    def kind(self) -> SurfaceKind:
        return "code_mode" if self.is_code_mode else "direct"

    @property
    def is_code_mode(self) -> bool:
        """Whether the model sees `exec` and `wait`. If not, it sees the tools themselves."""
        return self._surface.is_code_mode

    @property
    def visible_names(self) -> tuple[str, ...]:
        """The names of all tools that the model sees."""
        return self._surface.tool_names

    @property
    def catalog(self) -> Catalog:
        return self._tools.catalog

    @property
    def specs(self) -> Sequence[ToolSpec]:
        return self._specs

    @cached_property
    def _specs(self) -> Sequence[ToolSpec]:
        return make_tool_specs(self.definitions("anthropic"))

    def definitions(self, format: DefinitionFormat = "openai") -> list[JsonObject]:
        """The tools of a model request, in the format of a provider."""
        return self._surface.definitions(
            format,
            config=self._config,
            catalog=self.catalog,
            namespaces=self._tools.namespaces.visible(),
            mcp_servers=self._tools.mcp.servers.names,
        )

    def verify_payload(self, sent: SentPayload) -> None:
        """Raise ToolPayloadError unless a model request has exactly the tools of code mode. If
        code mode is not active, there is nothing to verify."""
        if self.is_code_mode:
            verify_payload(sent, expected=self.visible_names)

    def telemetry(self) -> Telemetry:
        """The catalog of the run, and how it was used so far."""
        return self._tools.telemetry.report()

    # The calls of the model.

    async def execute_call(self, call: ToolCallPart, waits: CallWaits) -> CallResult:
        """Execute a call of the model. A cell that waits only for people or clients is resumed
        when they have answered, so that the model sees one result."""
        try:
            given = parse_call(call.name, call.arguments, known=self.visible_names)
        except InvalidCall as error:
            if not self._is_control(call.name):
                return format_error(error.message)
            result = self._fail(error.message, "invalid_input")
        else:
            result = await self._dispatch(call.name, given, call.call_id, waits)
        return await _format_result(result)

    async def continue_call(self, call: ToolCallPart, waits: CallWaits) -> CallResult | None:
        """Continue a call of `exec` or `wait` whose process has ended, with its stored cell; None
        if it has none. Raises StorageError."""
        stored = await self._cells.find_stored()
        found = [cell.id for cell in stored if _is_cell_of(cell.call_id, cell.id, call)]
        if not found or not self._is_control(call.name):
            return None

        async def resume(_given: JsonObject, _call_id: str) -> CodeModeResult:
            return await self._cells.resume(found[0], cause="restart")

        subject = _EXEC if call.name == EXEC_NAME else _WAIT
        result = await self._control(subject, {}, call.call_id, resume, waits, is_continued=True)
        return await _format_result(result)

    def are_cells_stored(self, *, besides: str = "") -> bool:
        """Whether another process can continue all cells besides the one with this id."""
        return self._cells.are_stored(besides=besides)

    async def settle(self) -> None:
        """Wait until the cells that are being stored are stored."""
        await self._cells.settle()

    def detach(self) -> None:
        """Leave the stored cells to another process. Call it before `abort`."""
        self._cells.detach()

    async def call(
        self, name: str, arguments: object = None, *, call_id: str = ""
    ) -> CodeModeResult | DirectResult:
        """Execute a call of the model. `arguments` are an object, or the JSON text of one."""
        try:
            given = parse_call(name, arguments, known=self.visible_names)
        except InvalidCall as error:
            return self._fail(error.message, "invalid_input")
        return await self._dispatch(name, given, call_id)

    async def exec(
        self, code: str, *, language: Language | None = None, call_id: str = ""
    ) -> CodeModeResult:
        """Run a program in a new cell."""
        given: JsonObject = {"code": code}
        if language is not None:
            given["language"] = language
        return await self._exec(given, call_id)

    async def wait(self, cell_id: str, *, call_id: str = "") -> CodeModeResult:
        """Continue a suspended cell."""
        return await self._wait({"runId": cell_id}, call_id)

    async def resume(self, cell_id: str) -> CodeModeResult:
        """Continue a suspended cell for the application itself, after a person or a client has
        answered. The model did not call it: there are no hooks, and it does not count as `wait`."""
        try:
            return await self._cells.resume(cell_id, cause="answer")
        except CellRefused as refusal:
            return self._fail(refusal.message, refusal.reason)

    def begin_person_leg(self, cell_id: str) -> Callable[[], Coroutine[Any, Any, None]] | None:
        """Claim a waiting cell for a person; call the result to run its next leg. None if the cell
        does not wait, or a call of the model resumes it when somebody has answered."""
        if not any(cell.cell_id == cell_id and cell.can_be_resumed for cell in self.cells()):
            return None
        try:
            return self._cells.begin_person_leg(cell_id)
        except CellRefused:
            return None

    async def wait_for_person(self, cell_id: str) -> None:
        """Wait until a person resumes this waiting cell, or it has ended. Then call `wait`."""
        await self._cells.wait_for_person(cell_id)

    def _is_control(self, name: str) -> bool:
        return self.is_code_mode and name in (EXEC_NAME, WAIT_NAME)

    async def _dispatch(
        self, name: str, given: JsonObject, call_id: str, waits: CallWaits | None = None
    ) -> CodeModeResult | DirectResult:
        if self._is_control(name):
            control = self._exec if name == EXEC_NAME else self._wait
            return await control(given, call_id, waits)
        tool = next(tool for tool in self._surface.direct_tools if tool.name == name)
        return await self._call_directly(tool, given, call_id, waits)

    async def _exec(
        self, given: JsonObject, call_id: str, waits: CallWaits | None = None
    ) -> CodeModeResult:
        self._tools.telemetry.exec_count += 1
        subject = replace(_EXEC, input_kind=self._language_of)
        return await self._control(subject, given, call_id, self._start_cell, waits)

    async def _wait(
        self, given: JsonObject, call_id: str, waits: CallWaits | None = None
    ) -> CodeModeResult:
        self._tools.telemetry.wait_count += 1
        return await self._control(_WAIT, given, call_id, self._resume_cell, waits)

    def _language_of(self, given: JsonObject) -> Language | None:
        """The language in which the program would run; None if `exec` refuses the input."""
        try:
            return parse_exec_input(given, self._config).language
        except CellRefused:
            return None

    async def _start_cell(self, given: JsonObject, call_id: str) -> CodeModeResult:
        program = parse_exec_input(given, self._config)
        result = await self._cells.start(program, call_id=call_id)
        return add_language_hint(
            result, program.code, language=program.language, languages=self._config.languages
        )

    async def _resume_cell(self, given: JsonObject, _call_id: str) -> CodeModeResult:
        return await self._cells.resume(parse_wait_input(given), cause="wait")

    async def _control(
        self,
        subject: CallSubject,
        given: JsonObject,
        call_id: str,
        perform: Callable[[JsonObject, str], Awaitable[CodeModeResult]],
        waits: CallWaits | None,
        *,
        is_continued: bool = False,
    ) -> CodeModeResult:
        """Run `exec` or `wait` with hooks, approvals and a record. A refusal is a result."""
        if not self._config.enabled:
            return self._fail("code mode is off (`tools.codeMode.enabled`)", "invalid_input")
        site = replace(make_call_site(call_id, self._abort.signal), is_continued=is_continued)

        async def perform_permitted(permitted: JsonObject) -> tuple[CodeModeResult, JsonValue]:
            closed_before = waits.closed_count if waits else 0
            try:
                if waits is not None and not is_continued:
                    await waits.note_begun(site.call_id)
                result = await perform(permitted, site.call_id)
                if waits is not None:
                    result = await self._resume_answered(result, waits, closed_before)
            except CellRefused as refusal:
                result = self._fail(refusal.message, refusal.reason)
            except (CatalogError, NamespaceError) as error:
                result = self._fail(str(error), "internal_error")
            except StorageError as error:
                message = (
                    f"the program was not started, because its start cannot be stored: {error}"
                )
                result = self._fail(message, "internal_error")
            return result, result.to_json()

        try:
            return await self._tools.executor.control(
                subject, given, site=site, perform=perform_permitted
            )
        except ToolError as error:
            return self._fail(
                error.message, "aborted" if error.code == "aborted" else "call_denied"
            )

    async def _call_directly(
        self, tool: Tool, given: JsonObject, call_id: str, waits: CallWaits | None
    ) -> DirectResult:
        site = make_call_site(call_id, self._abort.signal)
        if waits is not None and not can_repeat(tool):
            # It is not repeated if the process ends during the call.
            begun = waits

            async def note_begun(_tool_id: str) -> None:
                await begun.note_begun(site.call_id)

            site = replace(site, before_execute=note_begun)
        try:
            value = await self._tools.executor.call_directly(tool, given, site=site)
        except ToolError as error:
            return DirectResult(error=error.message, code=error.code)
        return DirectResult(value=value)

    def _fail(self, message: str, reason: Reason) -> Failed:
        return Failed(error=message, reason=reason, telemetry=self.telemetry())

    # Cells that wait for people or clients.

    def is_held(self, call: ToolCallPart, *, open_ids: Set[str]) -> bool:
        if call.call_id in open_ids:
            return True
        cells = [cell for cell in self.cells() if _is_cell_of(cell.call_id, cell.cell_id, call)]
        return bool(cells) and all(self._is_cell_held(cell, open_ids) for cell in cells)

    def waits_for_somebody(self, pending: Sequence[PendingToolCall]) -> bool:
        """Whether a cell with these calls continues only when a person or a client answers."""
        awaited = sum(call.is_awaiting_somebody for call in pending)
        # The other calls are queued behind those that wait.
        return 0 < awaited == min(len(pending), self._config.max_pending_tool_calls)

    async def _resume_answered(
        self, result: CodeModeResult, waits: CallWaits, closed_before: int
    ) -> CodeModeResult:
        """Resume a cell for as long as only people or clients hold it up."""
        output = result.output
        while isinstance(result, Waiting) and result.reason == "pending_tools":
            # An answer may have come while the cell was being suspended.
            has_been_answered = waits.closed_count > closed_before
            # A program that has returned did not await the calls, so the model need not either.
            is_held = self.waits_for_somebody(result.pending) and not result.has_returned
            if not has_been_answered and not is_held:
                break
            closed_before = waits.closed_count
            awaited = {call.call_id for call in result.pending if call.is_awaiting_somebody}
            # The timers of a program run only while it is resumed.
            if awaited and result.next_timer_ms is None:
                with (
                    self._cells.await_answer(result.cell_id),
                    anyio.move_on_after(self._config.snapshot_ttl_seconds * _RESUME_SHARE),
                ):
                    await waits.any_closed(awaited)
            result = await self.resume(result.cell_id)
            # The model sees one result with the output of all legs.
            output = (*output, *result.output)
        return replace(result, output=output)

    def _is_cell_held(self, cell: CellInfo, open_ids: Set[str]) -> bool:
        awaited = {call.call_id for call in cell.pending if call.is_awaiting_somebody}
        return self.waits_for_somebody(cell.pending) and awaited <= open_ids

    # Management of the run.

    def cells(self) -> list[CellInfo]:
        """The cells that run or wait."""
        return self._cells.infos()

    async def abort(self, reason: str = "the run was aborted") -> None:
        """Abort all cells and their calls. The run takes no more calls."""
        self._abort.abort(reason)
        await self._cells.abort(reason)

    async def abort_cell(self, cell_id: str, reason: str = "the cell was aborted") -> bool:
        """Abort one cell; False if this run has none with this id."""
        return await self._cells.abort_one(cell_id, reason)


def _is_cell_of(exec_call_id: str, cell_id: str, call: ToolCallPart) -> bool:
    """Whether the call started the cell, or resumes it with its id in the arguments. The program
    of another `exec` may contain any text."""
    if call.name == EXEC_NAME:
        return exec_call_id == call.call_id
    return call.name == WAIT_NAME and cell_id in call.arguments


async def _format_result(result: CodeModeResult | DirectResult) -> CallResult:
    if isinstance(result, DirectResult):
        return await format_direct_result(result)
    return format_result(
        result.for_model(),
        is_error=isinstance(result, Failed),
        images=tuple(ImagePart(url=image.url) for image in result.images),
    )
