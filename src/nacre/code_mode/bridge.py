"""Answers the host requests of a cell: of `tools`, namespaces, `MCP` and `API`.

Untrusted code may have taken over the worker and can send any payload. So every field is checked
here, and only tools in the catalog of the run can be called.
"""

from __future__ import annotations

import math
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

import anyio.lowlevel

from nacre.errors import HostRequestError, ToolError, UnknownToolError
from nacre.tools import CallSite

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    from nacre.code_mode.guest_view import ApiFiles, PreparedCatalog
    from nacre.code_mode.mcp_servers import McpRequests
    from nacre.code_mode.namespaces import NamespaceRuntime, RunNamespaces
    from nacre.code_mode.results import RunTelemetry
    from nacre.config import CodeModeConfig
    from nacre.json_types import JsonObject, JsonValue
    from nacre.sandbox import HostRequest
    from nacre.sandbox.results import PendingRequest
    from nacre.telemetry import Span
    from nacre.tools import Catalog, CatalogEntry, Tool, ToolExecutor

METHODS: Final = (
    "tools.search",
    "tools.describe",
    "tools.call",
    "namespace",
    "mcp.call",
    "mcp.api",
    "mcp.search",
    "api.list",
    "api.read",
)
"""The methods that a cell may call. The guest uses the same names (guest/src)."""

# Finding similar ids takes milliseconds, so a program that guesses in a loop stops getting them.
_MAX_SUGGESTIONS: Final = 20
_MAX_SHOWN_ID: Final = 120


@dataclass(frozen=True, kw_only=True, slots=True)
class RunTools:
    """Everything that the cells of one run share."""

    config: CodeModeConfig
    prepared: PreparedCatalog
    executor: ToolExecutor
    namespaces: RunNamespaces
    mcp: McpRequests
    files: ApiFiles
    telemetry: RunTelemetry

    @property
    def catalog(self) -> Catalog:
        return self.prepared.catalog


class CellBridge:
    """Answers the host requests of one cell."""

    def __init__(
        self,
        tools: RunTools,
        namespaces: Mapping[str, NamespaceRuntime],
        *,
        exec_call_id: str,
        span: Span,
    ) -> None:
        self.tools = tools
        self.exec_call_id = exec_call_id
        self.span = span
        """The span of the cell, and the parent of the spans of its calls."""
        self._namespaces = namespaces
        self._counters = tools.telemetry.counters
        self._suggestions_left = _MAX_SUGGESTIONS
        self._with_clients: set[int] = set()

    async def __call__(self, request: HostRequest) -> JsonValue:
        try:
            payload = _object_in(request.payload)
            match request.method:
                case "tools.search":
                    return await self._search(payload)
                case "tools.describe":
                    return self._describe(payload)
                case "tools.call":
                    return await self._call(payload, request)
                case "namespace":
                    return await self._call_namespace(payload, request)
                case "mcp.call":
                    return await self._call_mcp(payload, request)
                case _:
                    return await self._look_up(request.method, payload)
        except ToolError as error:
            raise _to_host_error(error) from error

    def call_id_of(self, request_id: int) -> str:
        """The id of the nested call of a request."""
        return f"{self.exec_call_id}.{request_id}"

    def is_with_client(self, request_id: int) -> bool:
        """Whether the request waits for the client whose tool it calls."""
        return request_id in self._with_clients

    def tool_id_of(self, request: PendingRequest) -> str:
        """The tool that a request is for, as far as it is known before it is answered."""
        payload = _object_in(request.payload)
        match request.method:
            case "tools.call" | "tools.describe":
                entry = self.tools.catalog.resolve(str(payload.get("id", "")))
                return entry.id if entry else str(payload.get("id", ""))[:_MAX_SHOWN_ID]
            case "namespace":
                return _format_path(payload.get("namespace"), payload.get("path"))
            case "mcp.call":
                return f"MCP.{_format_path(payload.get('server'), payload.get('path'))}"
            case method:
                return method

    async def _look_up(self, method: str, payload: JsonObject) -> JsonValue:
        """Answer a request of `MCP` or `API` that calls no tool."""
        match method:
            case "mcp.search":
                query, limit = self._query_in(payload)
                await anyio.lowlevel.checkpoint()
                return await self.tools.mcp.search(query, limit)
            case "mcp.api":
                self._counters.describes += 1
                return await self.tools.mcp.header(payload)
            case "api.list":
                return list(await self.tools.files.listing(str(payload.get("prefix") or "")))
            case _:
                return await self.tools.files.read(str(payload.get("path")))

    async def _search(self, payload: JsonObject) -> JsonValue:
        query, limit = self._query_in(payload)
        # Many searches at once must not block the event loop.
        await anyio.lowlevel.checkpoint()
        found = await self.tools.prepared.index.search(query, limit)
        return [entry.to_json() for entry in found]

    def _query_in(self, payload: JsonObject) -> tuple[str, int]:
        query = payload.get("query")
        if not isinstance(query, str):
            raise HostRequestError("a search needs a query as text", name="TypeError")
        self._counters.searches += 1
        return query, self._limit_from(payload.get("limit"))

    def _limit_from(self, limit: JsonValue) -> int:
        config = self.tools.config
        if limit is None:
            return config.search_default_limit
        if isinstance(limit, bool) or not isinstance(limit, int | float) or math.isnan(limit):
            raise HostRequestError(
                f"a search takes limit as a number from 1 to {config.max_search_limit}",
                name="TypeError",
            )
        return int(max(1, min(limit, config.max_search_limit)))

    def _describe(self, payload: JsonObject) -> JsonValue:
        self._counters.describes += 1
        entry = self._entry_of(payload.get("id"))
        described: JsonObject = {**entry.to_json(), "parameters": entry.tool.parameters}
        if entry.tool.output_schema is not None:
            described["outputSchema"] = entry.tool.output_schema
        return described

    async def _call(self, payload: JsonObject, request: HostRequest) -> JsonValue:
        entry = self._entry_of(payload.get("id"))
        return await self._execute(entry.tool, payload.get("input"), request)

    async def _call_namespace(self, payload: JsonObject, request: HostRequest) -> JsonValue:
        name = payload.get("namespace")
        namespace = self._namespaces.get(name) if isinstance(name, str) else None
        if namespace is None:
            shown = str(name)[:_MAX_SHOWN_ID]
            raise UnknownToolError(f"there is no namespace {shown!r}", tool_id=shown)
        resolved = namespace.resolve(payload.get("path"), payload.get("args"))
        entry = self.tools.catalog.by_id(resolved.tool_id)
        if entry is None:
            raise UnknownToolError(
                f"{resolved.tool_id} is not a tool of this run", tool_id=resolved.tool_id
            )
        return await self._execute(entry.tool, resolved.input, request)

    async def _call_mcp(self, payload: JsonObject, request: HostRequest) -> JsonValue:
        tool, given = await self.tools.mcp.tool_to_call(payload)
        return await self._execute(tool, given, request)

    async def _execute(self, tool: Tool, given: object, request: HostRequest) -> JsonValue:
        self._counters.count_call(tool.id)
        site = CallSite(
            call_id=self.call_id_of(request.id),
            parent_id=self.exec_call_id,
            abort=request.abort,
            pause_for_approval=request.asking_person,
            pause_for_client=partial(self._waiting_for_client, request),
            parent_span=self.span,
        )
        return await self.tools.executor.call(tool, given, site=site)

    @contextmanager
    def _waiting_for_client(self, request: HostRequest) -> Generator[None]:
        """Stop the clock of the program as for a person. Only the model sees the difference."""
        self._with_clients.add(request.id)
        try:
            with request.asking_person():
                yield
        finally:
            self._with_clients.discard(request.id)

    def _entry_of(self, tool_id: JsonValue) -> CatalogEntry:
        if not isinstance(tool_id, str):
            raise HostRequestError("a tool is named by its id, as text", name="TypeError")
        entry = self.tools.catalog.resolve(tool_id)
        if entry is None:
            raise self._unknown_tool(tool_id)
        return entry

    def _unknown_tool(self, tool_id: str) -> UnknownToolError:
        shown = tool_id if len(tool_id) <= _MAX_SHOWN_ID else f"{tool_id[:_MAX_SHOWN_ID]}…"
        nearest: list[str] = []
        if self._suggestions_left > 0:
            self._suggestions_left -= 1
            nearest = self.tools.catalog.nearest(tool_id)
        hint = f"; nearest: {', '.join(nearest)}" if nearest else ""
        return UnknownToolError(
            f"no tool has the id {shown!r}{hint}; find tools with tools.search(query)",
            tool_id=shown,
            nearest=nearest,
        )


def _format_path(start: JsonValue, path: JsonValue) -> str:
    """The path is not resolved yet, so it can be anything."""
    segments = path[:_MAX_SHOWN_ID] if isinstance(path, list) else []
    return ".".join(map(str, [start, *segments]))[:_MAX_SHOWN_ID]


def _object_in(payload: JsonValue) -> JsonObject:
    return payload if isinstance(payload, dict) else {}


def _to_host_error(error: ToolError) -> HostRequestError:
    return HostRequestError(
        error.message,
        name=error.name,
        code=error.code,
        data={**error.details, "toolId": error.tool_id},
    )
