"""The requests of a cell, answered: of `tools`, of namespaces, of `MCP` and of `API`.

A worker that hostile code has taken over can send any payload: every field is checked here, and a
tool is found only in the catalog of the run.
"""

from __future__ import annotations

import math
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

import anyio.lowlevel

from nacre.errors import HostRequestError, ToolError, UnknownToolError
from nacre.tools import (
    CallSite,
    Catalog,
    CatalogCounters,
    CatalogEntry,
    RunIndex,
    Tool,
    ToolExecutor,
)

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    from nacre.code_mode.api_files import ApiFiles
    from nacre.code_mode.mcp_servers import McpRequests
    from nacre.code_mode.namespaces import NamespaceRuntime
    from nacre.config import CodeModeConfig
    from nacre.json_types import JsonObject, JsonValue
    from nacre.sandbox import HostRequest
    from nacre.sandbox.results import PendingRequest
    from nacre.telemetry import Span

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
"""What a cell may ask: the names are the guest's as well (guest/src)."""

# Finding the nearest ids costs milliseconds; a program that guesses in a loop gets them no more.
_MAX_SUGGESTIONS: Final = 20
_MAX_SHOWN_ID: Final = 120


@dataclass(frozen=True, kw_only=True, slots=True)
class RunTools:
    """What the cells of one run may use."""

    catalog: Catalog
    executor: ToolExecutor
    namespaces: Mapping[str, NamespaceRuntime]
    mcp: McpRequests
    files: ApiFiles
    index: RunIndex
    counters: CatalogCounters
    config: CodeModeConfig


class CellBridge:
    """Answers the host requests of one cell."""

    def __init__(self, tools: RunTools, *, exec_call_id: str) -> None:
        self._tools = tools
        self._exec_call_id = exec_call_id
        self._suggestions_left = _MAX_SUGGESTIONS
        self._with_clients: set[int] = set()
        self.span: Span | None = None
        """The cell's: its calls are shown below it."""

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
        """The id of the nested call that a request stands for."""
        return f"{self._exec_call_id}.{request_id}"

    def is_with_client(self, request_id: int) -> bool:
        """Whether the request waits for the client whose tool it calls."""
        return request_id in self._with_clients

    def tool_id_of(self, request: PendingRequest) -> str:
        """Which tool a request is for, as far as it can be told before it is served."""
        payload = _object_in(request.payload)
        match request.method:
            case "tools.call" | "tools.describe":
                entry = self._tools.catalog.resolve(str(payload.get("id", "")))
                return entry.id if entry else str(payload.get("id", ""))[:_MAX_SHOWN_ID]
            case "namespace":
                return _format_path(payload.get("namespace"), payload.get("path"))
            case "mcp.call":
                return f"MCP.{_format_path(payload.get('server'), payload.get('path'))}"
            case method:
                return method

    async def _look_up(self, method: str, payload: JsonObject) -> JsonValue:
        """What `MCP` and `API` tell without calling a tool."""
        match method:
            case "mcp.search":
                query, limit = self._query_in(payload)
                await anyio.lowlevel.checkpoint()
                return await self._tools.mcp.search(query, limit)
            case "mcp.api":
                self._tools.counters.describes += 1
                return await self._tools.mcp.header(payload)
            case "api.list":
                return list(await self._tools.files.listing(str(payload.get("prefix") or "")))
            case _:
                return await self._tools.files.read(str(payload.get("path")))

    async def _search(self, payload: JsonObject) -> JsonValue:
        query, limit = self._query_in(payload)
        # Many searches at once must leave the event loop some air.
        await anyio.lowlevel.checkpoint()
        found = await self._tools.index.search(query, limit)
        return [entry.to_json() for entry in found]

    def _query_in(self, payload: JsonObject) -> tuple[str, int]:
        query = payload.get("query")
        if not isinstance(query, str):
            raise HostRequestError("a search needs a query as text", name="TypeError")
        self._tools.counters.searches += 1
        return query, self._limit_from(payload.get("limit"))

    def _limit_from(self, limit: JsonValue) -> int:
        config = self._tools.config
        if limit is None:
            return config.search_default_limit
        if isinstance(limit, bool) or not isinstance(limit, int | float) or math.isnan(limit):
            raise HostRequestError(
                f"a search takes limit as a number from 1 to {config.max_search_limit}",
                name="TypeError",
            )
        return int(max(1, min(limit, config.max_search_limit)))

    def _describe(self, payload: JsonObject) -> JsonValue:
        self._tools.counters.describes += 1
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
        namespace = self._tools.namespaces.get(name) if isinstance(name, str) else None
        if namespace is None:
            shown = str(name)[:_MAX_SHOWN_ID]
            raise UnknownToolError(f"there is no namespace {shown!r}", tool_id=shown)
        resolved = namespace.resolve(payload.get("path"), payload.get("args"))
        entry = self._tools.catalog.by_id(resolved.tool_id)
        if entry is None:
            raise UnknownToolError(
                f"{resolved.tool_id} is not a tool of this run", tool_id=resolved.tool_id
            )
        return await self._execute(entry.tool, resolved.input, request)

    async def _call_mcp(self, payload: JsonObject, request: HostRequest) -> JsonValue:
        tool, given = await self._tools.mcp.tool_to_call(payload)
        return await self._execute(tool, given, request)

    async def _execute(self, tool: Tool, given: object, request: HostRequest) -> JsonValue:
        self._tools.counters.count_call(tool.id)
        site = CallSite(
            call_id=self.call_id_of(request.id),
            parent_id=self._exec_call_id,
            abort=request.abort,
            pause_for_approval=request.asking_person,
            pause_for_client=partial(self._waiting_for_client, request),
            parent_span=self.span,
        )
        return await self._tools.executor.call(tool, given, site=site)

    @contextmanager
    def _waiting_for_client(self, request: HostRequest) -> Generator[None]:
        """For the program's clock a client is a person; only the model is told which it is."""
        self._with_clients.add(request.id)
        try:
            with request.asking_person():
                yield
        finally:
            self._with_clients.discard(request.id)

    def _entry_of(self, tool_id: JsonValue) -> CatalogEntry:
        if not isinstance(tool_id, str):
            raise HostRequestError("a tool is named by its id, as text", name="TypeError")
        entry = self._tools.catalog.resolve(tool_id)
        if entry is None:
            raise self._unknown_tool(tool_id)
        return entry

    def _unknown_tool(self, tool_id: str) -> UnknownToolError:
        shown = tool_id if len(tool_id) <= _MAX_SHOWN_ID else f"{tool_id[:_MAX_SHOWN_ID]}…"
        nearest: list[str] = []
        if self._suggestions_left > 0:
            self._suggestions_left -= 1
            nearest = self._tools.catalog.nearest(tool_id)
        hint = f"; nearest: {', '.join(nearest)}" if nearest else ""
        return UnknownToolError(
            f"no tool has the id {shown!r}{hint}; find tools with tools.search(query)",
            tool_id=shown,
            nearest=nearest,
        )


def _format_path(start: JsonValue, path: JsonValue) -> str:
    """Not resolved yet, so it can be anything."""
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
