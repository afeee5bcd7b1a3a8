"""The tool surface of one run with Tool Search: the controls and the direct-only tools."""

from __future__ import annotations

from collections import defaultdict
from functools import cached_property
from typing import TYPE_CHECKING

from nacre.errors import ToolError
from nacre.json_types import encode_json
from nacre.messages import ImagePart
from nacre.tool_search.catalog import CatalogAccess, RunTools
from nacre.tool_search.model_surface import (
    CODE_NAME,
    DESCRIBE_NAME,
    SEARCH_NAME,
    parse_program,
    parse_tool_args,
)
from nacre.tool_search.results import RequestCounts, ToolSearchResult, ToolSearchTelemetry
from nacre.tools import (
    CallResult,
    CallSite,
    CallSubject,
    DirectResult,
    InvalidCall,
    format_error,
    format_result,
    make_call_site,
    make_tool_specs,
    parse_call,
    take_images,
    verify_payload,
)

if TYPE_CHECKING:
    from collections.abc import Sequence, Set

    from nacre.json_types import JsonObject, JsonValue
    from nacre.messages import SentPayload, ToolCallPart, ToolSpec
    from nacre.run_context import AbortController, RunContext
    from nacre.tool_search.model_surface import ModelSurface, SurfaceMode
    from nacre.tool_search.programs import Programs
    from nacre.tools import CallWaits, Catalog, DefinitionFormat, SurfaceKind, Tool
    from nacre.trajectory import TrajectoryEvent, TrajectoryRecorder


class ToolSearchRun:
    """A run of an agent, made by `start_run`. Its methods may be called concurrently.

    Implements `nacre.tools.surface.ToolSurface`.
    """

    def __init__(
        self,
        surface: ModelSurface,
        tools: RunTools,
        programs: Programs | None,
        abort: AbortController,
        *,
        fallback_reason: str = "",
    ) -> None:
        self._surface = surface
        self._tools = tools
        self._programs = programs
        self._abort = abort
        self._fallback_reason = fallback_reason
        self._sent = RequestCounts()
        # The running nested calls of each call of the model.
        self._nested: defaultdict[str, set[str]] = defaultdict(set)
        self.context: RunContext = tools.executor.context
        self.trajectory: TrajectoryRecorder = tools.executor.recorder
        """The redacted events of the run: see `nacre.trajectory`."""
        self.trajectory.subscribe(self._note_nested_call)

    # What the model sees.

    @property
    def kind(self) -> SurfaceKind:
        return "tool_search"

    @property
    def mode(self) -> SurfaceMode:
        """`code` or `tools`; `direct` if Tool Search is off and the model sees the tools."""
        return self._surface.mode

    @property
    def visible_names(self) -> tuple[str, ...]:
        """The names of all tools that the model sees."""
        return self._surface.tool_names

    @property
    def catalog(self) -> Catalog:
        """The tools that can be found and called now."""
        return self._tools.catalog.listing().catalog

    @property
    def specs(self) -> Sequence[ToolSpec]:
        return self._specs

    @cached_property
    def _specs(self) -> Sequence[ToolSpec]:
        return make_tool_specs(self.definitions("anthropic"))

    def definitions(self, format: DefinitionFormat = "openai") -> list[JsonObject]:
        """The tools of a model request, in the format of a provider."""
        return self._surface.definitions(format, self._tools.config)

    def verify_payload(self, sent: SentPayload) -> None:
        """Count a model request. Raises ToolPayloadError unless it has exactly the tools of
        Tool Search."""
        verify_payload(sent, expected=self.visible_names)
        self._count_request(sent.tool_bytes, sent.payload_bytes - sent.tool_bytes)

    def note_request(self, definitions: Sequence[JsonObject], *, prompt: str = "") -> None:
        """Count a request to the provider, with its tool definitions and its prompt."""
        self._count_request(
            len(encode_json(list(definitions))), len(prompt.encode(errors="replace"))
        )

    def telemetry(self) -> ToolSearchTelemetry:
        """Counts of the requests, searches and calls so far."""
        listing, counters = self._tools.catalog.listing(), self._tools.counters
        return ToolSearchTelemetry(
            mode=self.mode,
            fallback_reason=self._fallback_reason,
            visible_tools=self.visible_names,
            tool_bytes=self._tool_bytes,
            direct_tool_bytes=listing.direct_bytes + self._direct_bytes,
            requests=self._sent.requests,
            tool_bytes_sent=self._sent.tool_bytes,
            prompt_bytes_sent=self._sent.prompt_bytes,
            catalog_size=listing.catalog.size,
            sources={**listing.catalog.source_counts},
            search_count=counters.searches,
            describe_count=counters.describes,
            call_count=counters.calls,
            called_tools=dict(counters.called),
        )

    def _count_request(self, tool_bytes: int, prompt_bytes: int) -> None:
        self._sent.requests += 1
        self._sent.tool_bytes += tool_bytes
        self._sent.prompt_bytes += prompt_bytes

    @cached_property
    def _tool_bytes(self) -> int:
        return len(encode_json(self.definitions()))

    @cached_property
    def _direct_bytes(self) -> int:
        """The size of the definitions of the direct-only tools."""
        controls = len(self._surface.control_names)
        return len(encode_json(self.definitions()[controls:]))

    # The calls of the model.

    async def execute_call(self, call: ToolCallPart, waits: CallWaits) -> CallResult:
        """Execute a call of the model. Calls that wait for people or clients are waited for."""
        try:
            given = parse_call(call.name, call.arguments, known=self.visible_names)
        except InvalidCall as error:
            return format_error(error.message)
        result = await self._dispatch(call.name, given, call.call_id)
        if isinstance(result.outcome, DirectResult) and result.code == "invalid_input":
            return format_error(result.error)
        images = tuple(ImagePart(url=image.url) for image in result.images)
        wire = result.to_json()
        if "value" in wire:
            # The result of an MCP tool.
            wire["value"], found = take_images(wire["value"])
            images += found
        return format_result(wire, is_error=result.is_error, images=images)

    async def call(
        self, name: str, arguments: object = None, *, call_id: str = ""
    ) -> ToolSearchResult:
        """Execute a call of the model. `arguments` are an object, or the JSON text of one."""
        try:
            given = parse_call(name, arguments, known=self.visible_names)
        except InvalidCall as error:
            return ToolSearchResult(outcome=DirectResult(error=error.message, code=error.code))
        return await self._dispatch(name, given, call_id)

    def is_held(self, call: ToolCallPart, *, open_ids: Set[str]) -> bool:
        nested = self._nested.get(call.call_id, set())
        return call.call_id in open_ids or (bool(nested) and nested <= open_ids)

    async def abort(self, reason: str = "the run was aborted") -> None:
        """Abort all programs and their calls. The run takes no more calls."""
        self._abort.abort(reason)
        if self._programs is not None:
            await self._programs.abort(reason)

    async def _dispatch(self, name: str, given: JsonObject, call_id: str) -> ToolSearchResult:
        site = make_call_site(call_id, self._abort.signal)
        if name in self._surface.control_names:
            return await self._control(name, given, site)
        tool = next(tool for tool in self._surface.direct_tools if tool.name == name)
        return ToolSearchResult(outcome=await self._call_directly(tool, given, site))

    async def _control(self, name: str, given: JsonObject, site: CallSite) -> ToolSearchResult:
        """Run a control with hooks, approvals and a record. A refusal is a result."""
        subject = CallSubject(
            tool_id=f"tool_search:{name}",
            tool_name=name,
            kind="tool_search",
            input_kind=lambda _given: "javascript" if name == CODE_NAME else None,
        )

        async def perform(permitted: JsonObject) -> tuple[ToolSearchResult, JsonValue]:
            result = await self._perform(name, permitted, site)
            await self._tools.catalog.listing().measure()
            # The record has the counts, too: it tells which tools the model saw and used.
            return result, {**result.to_json(), "telemetry": self.telemetry().to_json()}

        try:
            return await self._tools.executor.control(subject, given, site=site, perform=perform)
        except ToolError as error:
            return ToolSearchResult(outcome=DirectResult.from_error(error))

    async def _perform(self, name: str, given: JsonObject, site: CallSite) -> ToolSearchResult:
        try:
            if name == CODE_NAME and self._programs is not None:
                return await self._programs.run(parse_program(given), call_id=site.call_id)
            with site.abort.cancelling():
                return await self._call_control(name, given, site)
        except InvalidCall as error:
            outcome = DirectResult(error=error.message, code=error.code)
        except ToolError as error:
            outcome = DirectResult.from_error(error)
        else:
            outcome = DirectResult(error=site.abort.reason, code="aborted")
        return ToolSearchResult(outcome=outcome)

    async def _call_control(self, name: str, given: JsonObject, site: CallSite) -> ToolSearchResult:
        access = CatalogAccess(self._tools)
        value: JsonValue
        if name == SEARCH_NAME:
            value = await access.search(given.get("query"), given.get("limit"))
        elif name == DESCRIBE_NAME:
            value = await access.describe(given.get("id"))
        else:
            args = parse_tool_args(given)
            # The call of the tool is nested in the call of `tool_call`.
            nested = CallSite(call_id=f"{site.call_id}.1", parent_id=site.call_id, abort=site.abort)
            value = await access.call(given.get("id"), args, site=nested)
        return ToolSearchResult(
            outcome=DirectResult(value=value), unavailable_servers=access.unavailable_servers
        )

    async def _call_directly(self, tool: Tool, given: JsonObject, site: CallSite) -> DirectResult:
        try:
            value = await self._tools.executor.call_directly(tool, given, site=site)
        except ToolError as error:
            return DirectResult.from_error(error)
        return DirectResult(value=value)

    def _note_nested_call(self, event: TrajectoryEvent) -> None:
        nested = self._nested[event.parent_id]
        if event.kind == "call.started" and event.parent_id:
            nested.add(event.call_id)
        elif event.kind == "call.ended":
            nested.discard(event.call_id)
        if not nested:
            del self._nested[event.parent_id]
