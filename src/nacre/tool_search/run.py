"""One run of an agent with Tool Search: what the model is shown, and what comes of its calls."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from nacre.errors import ToolError
from nacre.json_types import encode_json
from nacre.tool_search.catalog_access import CatalogAccess, RunTools
from nacre.tool_search.model_surface import (
    CODE_NAME,
    DESCRIBE_NAME,
    SEARCH_NAME,
    InvalidInput,
    parse_program,
    parse_tool_args,
)
from nacre.tool_search.results import (
    Completed,
    Failed,
    RequestCounts,
    ToolSearchResult,
    ToolSearchTelemetry,
)
from nacre.tools import (
    CallSite,
    CallSubject,
    Catalog,
    DefinitionFormat,
    NotArguments,
    Tool,
    arguments_from,
    no_such_tool,
    site_of_model_call,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nacre.json_types import JsonObject, JsonValue
    from nacre.run_context import AbortController, RunContext
    from nacre.tool_search.model_surface import ModelSurface, SurfaceMode
    from nacre.tool_search.programs import Programs
    from nacre.trajectory import TrajectoryRecorder


class ToolSearchRun:
    """A run of an agent. Made by `start_run`; its methods may be called concurrently."""

    def __init__(
        self,
        *,
        surface: ModelSurface,
        tools: RunTools,
        programs: Programs | None,
        context: RunContext,
        trajectory: TrajectoryRecorder,
        abort: AbortController,
        fallback_reason: str = "",
    ) -> None:
        self._surface = surface
        self._tools = tools
        self._programs = programs
        self._abort = abort
        self._fallback_reason = fallback_reason
        self._sent = RequestCounts()
        self.context = context
        self.trajectory = trajectory
        """Everything that the run did, redacted: see `nacre.trajectory`."""

    # What the model is shown.

    @property
    def mode(self) -> SurfaceMode:
        """`code` or `tools`; `direct` where Tool Search is off and the model sees the tools."""
        return self._surface.mode

    @property
    def visible_names(self) -> tuple[str, ...]:
        """The names of all that the model sees."""
        return self._surface.tool_names

    @property
    def catalog(self) -> Catalog:
        """What can be found and called now."""
        return self._tools.catalog.listing().catalog

    def definitions(self, format: DefinitionFormat = "openai") -> list[JsonObject]:
        """What to send to a provider as its tools."""
        return self._surface.definitions(format, self._tools.config)

    def note_request(self, definitions: Sequence[JsonObject], *, prompt: str = "") -> None:
        """Count a request to the provider: the definitions that went with it, and the prompt."""
        self._sent.requests += 1
        self._sent.tool_bytes += len(encode_json(list(definitions)))
        self._sent.prompt_bytes += len(prompt.encode(errors="replace"))

    def telemetry(self) -> ToolSearchTelemetry:
        """What was sent, found and called so far."""
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

    # What the model calls.

    async def call(
        self, name: str, arguments: object = None, *, call_id: str = ""
    ) -> ToolSearchResult:
        """Do what the model asked for; `arguments` are an object, or the JSON text of one."""
        try:
            given = arguments_from(arguments)
        except NotArguments as refusal:
            return Failed(error=str(refusal), code="invalid_input")
        site = self._site(call_id)
        if name in self._surface.control_names:
            return await self._control(name, given, site)
        for tool in self._surface.direct_tools:
            if tool.name == name:
                return await self._call_directly(tool, given, site)
        return Failed(error=no_such_tool(name, self.visible_names), code="unknown_tool")

    async def abort(self, reason: str = "the run was aborted") -> None:
        """End the run: its programs and their calls. It takes no more calls."""
        self._abort.abort(reason)
        if self._programs is not None:
            await self._programs.abort(reason)

    async def _control(self, name: str, given: JsonObject, site: CallSite) -> ToolSearchResult:
        """Hooks, approvals and the record hold for controls too; a refusal is a result."""
        subject = CallSubject(
            tool_id=f"tool_search:{name}",
            tool_name=name,
            kind="tool_search",
            input_kind="javascript" if name == CODE_NAME else None,
        )

        async def perform(permitted: JsonObject) -> tuple[ToolSearchResult, JsonValue]:
            result = await self._perform(name, permitted, site)
            await self._tools.catalog.listing().measure()
            # The record has the counts, too: it tells which tools the model saw and used.
            return result, {**result.to_json(), "telemetry": self.telemetry().to_json()}

        try:
            return await self._tools.executor.control(subject, given, site=site, perform=perform)
        except ToolError as error:
            return _tool_failure(error)

    async def _perform(self, name: str, given: JsonObject, site: CallSite) -> ToolSearchResult:
        try:
            if name == CODE_NAME and self._programs is not None:
                return await self._programs.run(parse_program(given), call_id=site.call_id)
            with site.abort.cancelling():
                return await self._call_control(name, given, site)
        except InvalidInput as refusal:
            return _invalid(refusal)
        except ToolError as error:
            return _tool_failure(error)
        return Failed(error=site.abort.reason, code="aborted")

    async def _call_control(self, name: str, given: JsonObject, site: CallSite) -> Completed:
        access = CatalogAccess(self._tools)
        value: JsonValue
        if name == SEARCH_NAME:
            value = await access.search(given.get("query"), given.get("limit"))
        elif name == DESCRIBE_NAME:
            value = await access.describe(given.get("id"))
        else:
            args = parse_tool_args(given)
            value = await access.call(given.get("id"), args, site=_nested_in(site))
        return Completed(value=value, unavailable_servers=access.unavailable_servers)

    async def _call_directly(
        self, tool: Tool, given: JsonObject, site: CallSite
    ) -> ToolSearchResult:
        try:
            return Completed(value=await self._tools.executor.call_directly(tool, given, site=site))
        except ToolError as error:
            return _tool_failure(error)

    # Small things.

    @cached_property
    def _tool_bytes(self) -> int:
        return len(encode_json(self.definitions()))

    @cached_property
    def _direct_bytes(self) -> int:
        """Of what is shown in any case."""
        controls = len(self._surface.control_names)
        return len(encode_json(self.definitions()[controls:]))

    def _site(self, call_id: str) -> CallSite:
        return site_of_model_call(call_id, self._abort.signal)


def _nested_in(site: CallSite) -> CallSite:
    """The tool's own call stands below the call of `tool_call`."""
    return CallSite(call_id=f"{site.call_id}.1", parent_id=site.call_id, abort=site.abort)


def _tool_failure(error: ToolError) -> Failed:
    details = {"toolId": error.tool_id, **error.details}
    return Failed(error=error.message, code=error.code, details=details)


def _invalid(refusal: InvalidInput) -> Failed:
    return Failed(error=refusal.message, code="invalid_input")
