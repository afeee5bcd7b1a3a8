"""What a cell gets from the host: the data of its catalog, and the answers to its requests.

Untrusted code may have taken over the worker and can send any payload. So every field is checked
here, and only tools in the catalog of the run can be called.
"""

from __future__ import annotations

import math
from collections import Counter, OrderedDict
from contextlib import contextmanager, nullcontext
from functools import cached_property, partial
from typing import TYPE_CHECKING, Final, cast

import anyio.lowlevel
import anyio.to_thread

from nacre.code_mode.durable_cells import answer_from, can_repeat, outcome_unknown
from nacre.errors import CatalogError, HostRequestError, ToolError, UnknownToolError
from nacre.json_types import encode_json
from nacre.large_json import CheckedJson
from nacre.lazy_dataclasses import dataclass
from nacre.sandbox import SharedData
from nacre.tools import (
    CallSite,
    Catalog,
    NearestNames,
    Tool,
    assign_guest_names,
    build_catalog,
)

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence

    from nacre.code_mode.cell import RunTelemetry
    from nacre.code_mode.durable_cells import CellJournal
    from nacre.code_mode.mcp_servers import McpListing, McpRequests, McpServers
    from nacre.code_mode.namespaces import NamespaceRuntime, RunNamespaces
    from nacre.config import CodeModeConfig
    from nacre.json_types import JsonObject, JsonValue
    from nacre.sandbox import HostRequest
    from nacre.sandbox.results import PendingRequest
    from nacre.telemetry import Span
    from nacre.tools import CatalogEntry, PauseClock, RunIndex, ToolExecutor

    Listings = Mapping[str, McpListing | None]

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
_MAX_SHOWN_TOOLS: Final = 10


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
        journal: CellJournal | None = None,
    ) -> None:
        """`journal` records the calls of a durable cell."""
        self.tools = tools
        self._journal = journal
        self.exec_call_id = exec_call_id
        self.span = span
        """The span of the cell, and the parent of the spans of its calls."""
        self._namespaces = namespaces
        self._counters = tools.telemetry.counters
        self._suggestions_left = _MAX_SUGGESTIONS
        self._with_clients: set[int] = set()
        self._completed: Counter[str] = Counter()
        # Ids of tools by the path that a program called, such as `MCP.git.log`.
        self._tool_ids: dict[str, str] = {}

    async def __call__(self, request: HostRequest) -> JsonValue | CheckedJson:
        try:
            if self._journal is None:
                return await self._answer(request)
            return await self._answer_durably(request, self._journal)
        except ToolError as error:
            raise _to_host_error(error) from error

    async def _answer_durably(
        self, request: HostRequest, journal: CellJournal
    ) -> JsonValue | CheckedJson:
        """Answer a request, or repeat the answer that an earlier process has recorded."""
        begun = journal.find_inherited(request.id)
        if begun is not None and begun.state == "done":
            return answer_from(begun)
        try:
            answer = await self._answer(request)
        except ToolError as error:
            if begun is not None and journal.find_inherited(request.id) is not None:
                # Whatever prevents a repetition, such as a tool that is gone.
                raise outcome_unknown(begun.tool_id) from error
            failure = _to_host_error(error)
            said = {"message": failure.message, "name": failure.name, "code": failure.code}
            recorded = {"error": {**said, "data": dict(failure.data)}}
            await journal.finish_call(request.id, CheckedJson(cast("JsonObject", recorded)))
            raise
        if isinstance(answer, CheckedJson):
            await journal.finish_call(request.id, CheckedJson({"value": answer.value}))
        return answer

    async def _answer(self, request: HostRequest) -> JsonValue | CheckedJson:
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
                return await self._look_up(request, payload)

    def call_id_of(self, request_id: int) -> str:
        """The id of the nested call of a request."""
        return f"{self.exec_call_id}.{request_id}"

    def describe_completed_calls(self) -> str:
        """The tools whose calls succeeded, with the number of calls; empty if there are none."""
        shown = self._completed.most_common(_MAX_SHOWN_TOOLS)
        described = ", ".join(f"{tool_id} ({count})" for tool_id, count in shown)
        left = len(self._completed) - len(shown)
        return f"{described} and {left} more" if left else described

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
            case "namespace" | "mcp.call":
                path = _format_path(payload)
                is_mcp = request.method == "mcp.call"
                known = self.tools.mcp.known_tool(payload) if is_mcp else None
                return known.id if known else self._tool_ids.get(path, path[:_MAX_SHOWN_ID])
            case method:
                return method

    async def _look_up(self, request: HostRequest, payload: JsonObject) -> JsonValue:
        """Answer a request of `MCP` or `API` that calls no tool."""
        pause_clock = request.pause_clock
        match request.method:
            case "mcp.search":
                query, limit = self._query_in(payload)
                await anyio.lowlevel.checkpoint()
                return await self.tools.mcp.search(query, limit, pause_clock)
            case "mcp.api":
                self._counters.describes += 1
                return await self.tools.mcp.header(payload, pause_clock)
            case "api.list":
                return list(await self.tools.files.listing(str(payload.get("prefix") or "")))
            case _:
                return await self.tools.files.read(str(payload.get("path")), pause_clock)

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

    async def _call(self, payload: JsonObject, request: HostRequest) -> CheckedJson:
        entry = self._entry_of(payload.get("id"))
        return await self._execute(entry.tool, payload.get("input"), request)

    async def _call_namespace(self, payload: JsonObject, request: HostRequest) -> CheckedJson:
        name = payload.get("namespace")
        namespace = self._namespaces.get(name) if isinstance(name, str) else None
        if namespace is None:
            shown = str(name)[:_MAX_SHOWN_ID]
            raise UnknownToolError(f"there is no namespace {shown!r}", tool_id=shown)
        resolved = namespace.resolve(payload.get("path"), payload.get("args"))
        self._tool_ids[_format_path(payload)] = resolved.tool_id
        entry = self.tools.catalog.by_id(resolved.tool_id)
        if entry is None:
            raise UnknownToolError(
                f"{resolved.tool_id} is not a tool of this run", tool_id=resolved.tool_id
            )
        return await self._execute(entry.tool, resolved.input, request)

    async def _call_mcp(self, payload: JsonObject, request: HostRequest) -> CheckedJson:
        tool, given = await self.tools.mcp.tool_to_call(payload, request.pause_clock)
        self._tool_ids[_format_path(payload)] = tool.id
        return await self._execute(tool, given, request)

    async def _execute(self, tool: Tool, given: object, request: HostRequest) -> CheckedJson:
        journal = self._journal
        if journal is not None:
            begun = journal.find_inherited(request.id)
            if begun is not None and not can_repeat(tool):
                raise outcome_unknown(tool.id)
        self._counters.count_call(tool.id)
        site = CallSite(
            call_id=self.call_id_of(request.id),
            parent_id=self.exec_call_id,
            abort=request.abort,
            pause_for_approval=request.asking_person,
            pause_for_client=partial(self._waiting_for_client, request),
            before_execute=None if journal is None else partial(journal.start_call, request.id),
            parent_span=self.span,
        )
        result = await self.tools.executor.call(tool, given, site=site)
        self._completed[tool.id] += 1
        return CheckedJson(result)

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


def _format_path(payload: JsonObject) -> str:
    """The path of a call in a program. It is not resolved yet, so it can be anything."""
    start = payload.get("namespace") or f"MCP.{payload.get('server')}"
    path = payload.get("path")
    segments = path[:_MAX_SHOWN_ID] if isinstance(path, list) else []
    return ".".join(map(str, [start, *segments]))


def _object_in(payload: JsonValue) -> JsonObject:
    return payload if isinstance(payload, dict) else {}


def _to_host_error(error: ToolError) -> HostRequestError:
    return HostRequestError(
        error.message,
        name=error.name,
        code=error.code,
        data={**error.details, "toolId": error.tool_id},
    )


# The data that cells find in their worker, the files of `API`, and a cache of catalogs.

INDEX_PATH: Final = "mcp/index.d.ts"
_MCP_FOLDER: Final = "mcp/"
_TOOLS_FOLDER: Final = "tools/"
_ENDING: Final = ".d.ts"
_MAX_SHOWN: Final = 100
# The guest uses the same names (guest/src/catalog.js and others).
_TOOLS: Final = "tools"
_NAMES: Final = "names"
_NAMESPACES: Final = "namespaces"
_GLOBALS: Final = "globals"
_MCP: Final = "mcp"
_FILES: Final = "api"
_COMPLETE_FOLDERS: Final = "apiComplete"
# For one server and for all together, so that no server takes the memory of others or of programs.
_MAX_SERVER_BYTES: Final = 2 << 20
_MAX_LISTED_BYTES: Final = 8 << 20
_MAX_CATALOGS: Final = 8
# With fewer tools, the first search takes a few milliseconds.
_MIN_TOOLS_INDEXED_EARLY: Final = 500


def known_files(listings: Mapping[str, McpListing | None]) -> dict[str, str]:
    """The files that are known without starting a server: the index and those of listed servers."""
    if not listings:
        return {}
    # Imported on first use, as elsewhere in this module: most programs declare nothing.
    from nacre.tools import DeclaredServer, mcp_index_file

    servers = [
        listing.declared_server() if listing is not None else DeclaredServer(name=name)
        for name, listing in listings.items()
    ]
    files = {listing.file_path: listing.declarations for listing in listings.values() if listing}
    return {INDEX_PATH: mcp_index_file(servers), **files}


class ApiFiles:
    """The files of one run that are not in its worker."""

    def __init__(self, catalog: Catalog, servers: McpServers) -> None:
        self._catalog = catalog
        self._servers = servers

    async def listing(self, prefix: str) -> list[JsonObject]:
        """List the files below a prefix; without a size if the file is not made yet."""
        known = known_files(await self._servers.listings())
        sizes: dict[str, int | None] = {path: len(text) for path, text in known.items()}
        for name in self._servers.names:
            sizes.setdefault(f"{_MCP_FOLDER}{name}{_ENDING}", None)
        for name in self._owners():
            sizes[f"{_TOOLS_FOLDER}{name}{_ENDING}"] = None
        return [_file(path, size) for path, size in sizes.items() if _is_below(path, prefix)]

    async def read(self, path: str, pause_clock: PauseClock = nullcontext) -> str:
        """Return the text of a file, and start its server if needed. Raises ToolError."""
        if path == INDEX_PATH and self._servers.names:
            return known_files(await self._servers.listings())[path]
        server = _name_in(path, _MCP_FOLDER)
        if server in self._servers.names:
            return (await self._servers.listing(server, pause_clock)).declarations
        owner = self._owners().get(_name_in(path, _TOOLS_FOLDER))
        if owner is not None:
            return await anyio.to_thread.run_sync(self._tools_file, owner)
        near = self._nearest_path(path)
        hint = f"did you mean {near!r}? " if near else ""
        raise UnknownToolError(
            f"API.read: there is no {path[:_MAX_SHOWN]!r}; {hint}API.list() names all paths",
            tool_id="api",
            nearest=[near] if near else [],
        )

    def _nearest_path(self, path: str) -> str:
        """The file with the most similar name in the same folder; empty if there is none."""
        folders = {_MCP_FOLDER: self._servers.names, _TOOLS_FOLDER: tuple(self._owners())}
        for folder, names in folders.items():
            if path.startswith(folder):
                wanted = path[len(folder) :][:_MAX_SHOWN].removesuffix(_ENDING)
                for name in NearestNames(names).nearest(wanted, 1):
                    return f"{folder}{name}{_ENDING}"
        return ""

    def _owners(self) -> dict[str, str]:
        """The owners of ordinary tools, by the names of their files."""
        owners = dict.fromkeys(entry.tool.owner for entry in self._catalog.guest_entries)
        return {guest: owner for owner, guest in assign_guest_names(list(owners)).items()}

    def _tools_file(self, owner: str) -> str:
        from nacre.code_mode.mcp_servers import declared_tool
        from nacre.tools import tools_file

        names = {tool_id: name for name, tool_id in self._catalog.names.items()}
        return tools_file(
            owner,
            [
                declared_tool(names[entry.id], entry.tool)
                for entry in self._catalog.guest_entries
                if entry.tool.owner == owner and entry.id in names
            ],
        )


def _name_in(path: str, folder: str) -> str:
    """The name of a declaration file of this folder; empty for any other path."""
    is_file = path.startswith(folder) and path.endswith(_ENDING)
    return path[len(folder) : -len(_ENDING)] if is_file else ""


def _file(path: str, size: int | None) -> JsonObject:
    return {"path": path} if size is None else {"path": path, "size": size}


def _is_below(path: str, prefix: str) -> bool:
    folder = prefix.strip("/")
    return not folder or path == folder or path.startswith(f"{folder}/")


class GuestViews:
    """The data of cells with one catalog; made again when namespaces or servers change."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._made_of: tuple[bytes, Listings] = (b"", {})
        self._view: SharedData | None = None

    def view(self, namespaces: Mapping[str, NamespaceRuntime], listings: Listings) -> SharedData:
        """Return the data. Raises CatalogError if it is too large for a worker."""
        # Compared as text: to Python, 1 and true are equal.
        descriptors = encode_json({name: each.descriptor for name, each in namespaces.items()})
        if self._view is None or self._made_of != (descriptors, listings):
            self._view = _guest_view(self._catalog, descriptors, list(namespaces), listings)
            self._made_of = (descriptors, dict(listings))
        return self._view


def _guest_view(
    catalog: Catalog, descriptors: bytes, global_names: list[str], listings: Listings
) -> SharedData:
    carried = _select_listings(listings)
    servers: JsonObject = {
        name: {"tools": None if listing is None else list(listing.tools)}
        for name, listing in carried.items()
    }
    left_out = {
        f"{_MCP_FOLDER}{name}{_ENDING}" for name, listing in carried.items() if listing is None
    }
    files: JsonObject = {
        path: text for path, text in known_files(listings).items() if path not in left_out
    }
    # Files of ordinary tools are made when they are read: there may be thousands of tools.
    complete: JsonObject = {"mcp": None not in carried.values()}
    parts = {
        _TOOLS: catalog.index_json,
        _NAMES: catalog.names_json,
        _NAMESPACES: descriptors,
        _GLOBALS: encode_json(global_names),
        _MCP: encode_json(servers),
        _FILES: encode_json(files),
        _COMPLETE_FOLDERS: encode_json(complete),
    }
    try:
        return SharedData(parts, methods=METHODS)
    except ValueError as error:
        raise CatalogError(f"the catalog is too large for a program: {error}") from error


def _select_listings(listings: Listings) -> dict[str, McpListing | None]:
    """Select the listings for a worker. A listing that is too large is left out: then programs may
    call anything on the server, and the host resolves it."""
    left = _MAX_LISTED_BYTES
    carried: dict[str, McpListing | None] = {}
    for name, listing in listings.items():
        fits = listing is not None and listing.size_bytes <= min(left, _MAX_SERVER_BYTES)
        carried[name] = listing if fits else None
        left -= listing.size_bytes if listing is not None and fits else 0
    return carried


class PreparedCatalog:
    """A catalog with its search index and the data of its cells, all made on demand."""

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog
        self.views = GuestViews(catalog)
        if catalog.size >= _MIN_TOOLS_INDEXED_EARLY:
            self.index.build_in_background()

    @cached_property
    def index(self) -> RunIndex:
        from nacre.tools import RunIndex

        return RunIndex(self.catalog)


class PreparedCatalogs:
    """Caches the last few catalogs of a runtime."""

    def __init__(self) -> None:
        self._catalogs: OrderedDict[tuple[int, ...], PreparedCatalog] = OrderedDict()

    def prepare(self, tools: Sequence[Tool]) -> PreparedCatalog:
        """Return the catalog of these tools. Raises CatalogError if they do not fit together."""
        # By identity: the cached catalog holds the tools, so their ids stay unique.
        key = tuple(map(id, tools))
        prepared = self._catalogs.pop(key, None) or PreparedCatalog(build_catalog(tools))
        self._catalogs[key] = prepared
        if len(self._catalogs) > _MAX_CATALOGS:
            self._catalogs.popitem(last=False)
        return prepared
