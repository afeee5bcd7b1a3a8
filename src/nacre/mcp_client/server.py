"""The MCP servers of a configuration: one per session, each with its tools and status."""

from __future__ import annotations

import logging
import time
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Final, Literal

import anyio
import anyio.to_thread

from nacre.errors import ToolServerError
from nacre.json_types import NotJsonError, encode_json
from nacre.mcp_client.connection import Connection
from nacre.mcp_client.listings import ListingCache, RawListing, list_raw_tools
from nacre.mcp_client.tools import (
    OPERATION_NAMES,
    ToolListing,
    ToolPermissions,
    build_operations,
    build_tools,
)
from nacre.mcp_client.upstream import METHOD_NOT_FOUND, RpcError
from nacre.tools import OPERATION_MARK, Tool

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path
    from types import TracebackType
    from typing import Self

    from anyio.abc import TaskGroup

    from nacre.config import McpServerConfig
    from nacre.json_types import JsonObject
    from nacre.mcp_client.handshake import ServerFacts
    from nacre.mcp_client.upstream import UpstreamRequests

logger = logging.getLogger(__name__)


ServerState = Literal["idle", "starting", "ready", "failed", "closed"]
"""`idle`: the next request starts it. `closed`: it does not start again."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ServerStatus:
    """The status of one server in one session. It contains no secrets."""

    name: str
    state: ServerState = "idle"
    problem: str = ""
    """Why it failed. For a working server, the problems of single tools."""
    tool_count: int | None = None
    """None if its tools were not listed yet."""
    listed_bytes: int = 0
    """The size of its tool list as compact JSON, if it was listed."""
    version: str = ""
    restarts: int = 0
    """How often it was started again, after a failure or after it was stopped as idle."""
    pid: int | None = None
    session_id: str = ""
    last_output: tuple[str, ...] = ()
    """The last lines of its standard error, and of output that was not a message."""
    listed: float | None = None
    """When it last listed its tools, in seconds since the epoch."""


_MAX_NOTES: Final = 5
# Beyond this limit, the least recently used sessions without a running server are removed. Callers
# that still have their servers can continue to use them.
_MAX_SESSIONS: Final = 256
# A longer cached list is built in a thread. Building one tool takes about 20 us.
_MAX_TOOLS_ON_EVENT_LOOP: Final = 500


@dataclass(kw_only=True, slots=True)
class _ListingTask:
    """A running listing. Callers wait for it, and a cancelled caller does not cancel it."""

    ended: anyio.Event = field(default_factory=anyio.Event)
    problem: str = ""


class _SharedListings:
    """The last known listings of all servers, for new sessions and for the next process."""

    def __init__(self, cache: ListingCache) -> None:
        self._cache = cache
        self._known: dict[str, RawListing] = {}
        self._stored_digests: dict[str, bytes] = {}

    async def load(self, configs: Sequence[McpServerConfig]) -> None:
        if configs:
            self._known = await anyio.to_thread.run_sync(self._cache.load_all, configs)

    def find(self, config: McpServerConfig) -> RawListing | None:
        return self._known.get(config.name)

    async def add(
        self,
        config: McpServerConfig,
        raw: RawListing,
        digest: bytes,
        *,
        has_secret: Callable[[str], bool],
    ) -> None:
        self._known[config.name] = raw
        if self._stored_digests.get(config.name) != digest:
            self._stored_digests[config.name] = digest
            store = partial(self._cache.store, config, raw, has_secret=has_secret)
            await anyio.to_thread.run_sync(store)


class McpServer:
    """A `ToolServer` for one MCP server in one session. Created by `McpConnections`."""

    def __init__(
        self,
        config: McpServerConfig,
        *,
        session_id: str,
        tasks: TaskGroup,
        upstream: UpstreamRequests | None,
        listings: _SharedListings,
    ) -> None:
        self._config = config
        self._session_id = session_id
        self._tasks = tasks
        self._connection = Connection(
            config, tasks=tasks, upstream=upstream, on_list_changed=self._list_changed
        )
        self._change_count = 0
        self._listed_at: tuple[int, int] | None = None
        self._listed_time: float | None = None
        self._listing: ToolListing | None = None
        self._digest = b""
        self._listing_task: _ListingTask | None = None
        self._listings = listings
        self._raw: RawListing | None = None
        cached = listings.find(config)
        if cached is not None and len(cached.tools) <= _MAX_TOOLS_ON_EVENT_LOOP:
            self._use_cached(cached)
        elif cached is not None:
            tasks.start_soon(anyio.to_thread.run_sync, self._use_cached, cached)

    @property
    def name(self) -> str:
        return self._config.name

    @property
    def is_running(self) -> bool:
        return self._connection.state in ("starting", "ready")

    @property
    def is_emptied(self) -> bool:
        """Whether its own `allow` and `deny` exclude all its tools, as far as they are known."""
        if self._config.excludes_all_tools:
            return True
        is_outdated = self._listed_at not in (None, self._version())
        if self._listing is None or self._raw is None or is_outdated:
            return False
        return bool(self._raw.tools) and not self._listing.tools and not self._listing.left_out

    @property
    def description(self) -> str:
        return self._raw.description if self._raw is not None else ""

    @property
    def known_tools(self) -> Sequence[Tool] | None:
        """The tools as last listed, by this process or an earlier one; None before that."""
        return self._listing.tools if self._listing is not None else None

    @property
    def left_out(self) -> Sequence[str]:
        """Notes on tools that cannot be called, for example because of their names."""
        return self._listing.left_out if self._listing is not None else ()

    async def tools(self) -> Sequence[Tool]:
        """Return the tools. They are listed again if they may have changed.

        Raises ToolServerError.
        """
        if self._connection.state == "closed":
            raise ToolServerError(self._problem("is closed"), server=self.name)
        if self._listing is None or self._listed_at != self._version():
            listing_task = self._listing_task or self._start_listing()
            await listing_task.ended.wait()
            if listing_task.problem or self._listing is None:
                raise ToolServerError(listing_task.problem, server=self.name)
        return self._listing.tools

    def status(self) -> ServerStatus:
        connection = self._connection
        is_working = connection.state in ("ready", "idle")
        return ServerStatus(
            name=self.name,
            state=connection.state,
            problem=self._notes() if is_working else connection.problem,
            tool_count=self._tool_count(),
            listed_bytes=self._listing.listed_bytes if self._listing is not None else 0,
            version=self._raw.version if self._raw is not None else "",
            restarts=max(0, connection.start_count - 1),
            pid=connection.pid,
            session_id=self._session_id,
            last_output=connection.last_output,
            listed=self._listed_time,
        )

    async def restart(self) -> None:
        """Stop the server, start it again and list its tools. Raises ToolServerError."""
        await self._connection.stop()
        self._listed_at = None
        await self.tools()

    async def aclose(self) -> None:
        """Close the connection permanently."""
        await self._connection.aclose()

    def _version(self) -> tuple[int, int]:
        return self._connection.start_count, self._change_count

    def _list_changed(self) -> None:
        # The list is read again on the next use: a server may send many notifications.
        self._change_count += 1

    def _start_listing(self) -> _ListingTask:
        listing_task = _ListingTask(problem=self._problem("was closed"))
        self._listing_task = listing_task
        self._tasks.start_soon(self._list, listing_task)
        return listing_task

    async def _list(self, listing_task: _ListingTask) -> None:
        try:
            facts = await self._connection.start()
            version = self._version()
            with anyio.move_on_after(self._config.startup_seconds) as scope:
                await self._take(await self._raw_listing(facts))
            if scope.cancelled_caught:
                listing_task.problem = self._problem("did not list its tools in time")
                return
            self._listed_at, listing_task.problem = version, ""
            self._listed_time = time.time()
            await self._share_listing()
        except ToolServerError as error:
            listing_task.problem = error.message
        except RpcError as error:
            listing_task.problem = self._problem(f"cannot list its tools: {error.message}")
        except Exception:
            # A bad list must not affect the other servers.
            logger.exception("the list of the MCP server %s cannot be used", self.name)
            listing_task.problem = self._problem("has a list of tools that cannot be used")
        finally:
            self._listing_task = None
            listing_task.ended.set()

    async def _raw_listing(self, facts: ServerFacts) -> RawListing:
        raw = RawListing(tools=())
        if facts.has("tools") or not facts.capabilities:
            try:
                raw = await list_raw_tools(self._connection.request)
            except RpcError as error:
                if error.code != METHOD_NOT_FOUND:
                    raise
        return replace(
            raw,
            capabilities=facts.capabilities,
            description=facts.description,
            version=facts.version,
        )

    async def _take(self, raw: RawListing) -> None:
        """Build tools from a listing, unless it has not changed."""
        digest, listing = await anyio.to_thread.run_sync(self._build_listing, raw)
        self._use(raw, digest, listing)

    async def _share_listing(self) -> None:
        if self._raw is not None:
            has_secret = self._connection.has_secret
            await self._listings.add(self._config, self._raw, self._digest, has_secret=has_secret)

    def _use_cached(self, cached: RawListing) -> None:
        try:
            digest, listing = self._build_listing(cached)
        except Exception:
            # As for a list that a server sends: a bad one must not affect other servers.
            logger.exception("the cached list of the MCP server %s cannot be used", self.name)
            return
        # The server may have sent a newer list meanwhile.
        if self._listing is None:
            self._use(cached, digest, listing)

    def _use(self, raw: RawListing, digest: bytes, listing: ToolListing | None) -> None:
        self._raw = raw
        if listing is not None:
            self._listing, self._digest = listing, digest

    def _build_listing(self, raw: RawListing) -> tuple[bytes, ToolListing | None]:
        # Runs in a thread, because thousands of tools would block the event loop.
        digest = raw.compute_digest()
        if digest and digest == self._digest:
            return digest, None
        listing = build_tools(raw.tools, self._config, self._send)
        operations = build_operations(raw.capabilities, self._config, self._send)
        return digest, replace(
            listing,
            tools=(*listing.tools, *operations),
            notes=(*self._pattern_notes(raw), *raw.notes, *listing.notes),
            listed_bytes=_measure_listing(raw),
        )

    async def _send(
        self,
        method: str,
        params: JsonObject,
        *,
        on_progress: Callable[[JsonObject], None] | None = None,
    ) -> JsonObject:
        # The first call of a tool that is known from the cache refreshes the list.
        if self._listed_at is None and self._listing_task is None:
            self._start_listing()
        return await self._connection.request(method, params, on_progress=on_progress)

    def _pattern_notes(self, raw: RawListing) -> Iterator[str]:
        names = [
            item["name"]
            for item in raw.tools
            if isinstance(item, dict) and isinstance(item.get("name"), str)
        ]
        return ToolPermissions(self._config).notes([*map(str, names), *OPERATION_NAMES])

    def _tool_count(self) -> int | None:
        if self._listing is None:
            return None
        return sum(not tool.name.startswith(OPERATION_MARK) for tool in self._listing.tools)

    def _notes(self) -> str:
        notes = self._listing.notes if self._listing is not None else ()
        shown = "; ".join(notes[:_MAX_NOTES])
        more = len(notes) - _MAX_NOTES
        clean = self._connection.clean(shown)
        return f"{clean}; and {more:,} more" if more > 0 else clean

    def _problem(self, problem: str) -> str:
        return f"the MCP server {self.name} {problem}"


def _measure_listing(raw: RawListing) -> int:
    """Return the size of the listed tools as JSON. A tool that is not JSON counts as zero."""
    total = 0
    for tool in raw.tools:
        with suppress(NotJsonError):
            total += len(encode_json(tool))
    return total


class McpConnections:
    """All MCP servers of a configuration. Exiting the `async with` block stops them.

    A server is started by its first request. Servers are independent of each other.
    """

    def __init__(
        self,
        configs: Sequence[McpServerConfig],
        *,
        upstream: UpstreamRequests | None = None,
        cache_directory: Path | None = None,
    ) -> None:
        """`cache_directory` stores the tool lists; by default, it is Nacre's cache directory."""
        self._configs = tuple(configs)
        self._listings = _SharedListings(ListingCache(cache_directory))
        self._upstream = upstream
        self._sessions: dict[str, list[McpServer]] = {}
        self._ending: list[McpServer] = []
        self._tasks: TaskGroup | None = None
        self._is_closed = False

    async def __aenter__(self) -> Self:
        if self._tasks is not None:
            raise RuntimeError("McpConnections can be opened only once; create another one")
        await self._listings.load([config for config in self._configs if not config.is_disabled])
        tasks = anyio.create_task_group()
        await tasks.__aenter__()
        self._tasks = tasks
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        tasks = self._tasks
        assert tasks is not None
        try:
            with anyio.CancelScope(shield=True):
                await self.aclose()
        finally:
            tasks.cancel_scope.cancel()
            await tasks.__aexit__(None, None, None)

    def servers(self, session_id: str = "", *, with_emptied: bool = False) -> list[McpServer]:
        """Return the enabled servers of a session, except those that their entries empty."""
        if self._tasks is None or self._is_closed:
            raise RuntimeError("McpConnections is not open: use it with `async with`")
        found = self._sessions.pop(session_id, None)
        if found is None:
            found = self._new_servers(session_id, self._tasks)
        # At the end, as the most recently used session.
        self._sessions[session_id] = found
        self._remove_old_sessions()
        return [server for server in found if with_emptied or not server.is_emptied]

    def end_session(self, session_id: str) -> None:
        """Stop the servers of a session, without waiting for them."""
        servers = self._sessions.pop(session_id, [])
        if self._tasks is None or self._is_closed:
            return
        for server in servers:
            self._ending.append(server)
            self._tasks.start_soon(self._end, server)

    def status(self) -> list[ServerStatus]:
        """Return the status of each server in each session, and of unused servers."""
        found = [server.status() for servers in self._sessions.values() for server in servers]
        used_names = {status.name for status in found}
        return [
            *found,
            *(_unused_status(config) for config in self._configs if config.name not in used_names),
        ]

    async def restart(self, name: str) -> bool:
        """Restart a server in every session that has used it, or start it without a session.

        False if there is no such server, or it is disabled. A server that does not start has its
        problem in its status.
        """
        if not any(config.name == name and not config.is_disabled for config in self._configs):
            return False
        used = [server for servers in self._sessions.values() for server in servers]
        used = [server for server in used if server.name == name]
        if not used:
            used = [it for it in self.servers(with_emptied=True) if it.name == name]

        async def restart(server: McpServer) -> None:
            with suppress(ToolServerError):
                await server.restart()

        async with anyio.create_task_group() as tasks:
            for server in used:
                tasks.start_soon(restart, server)
        return True

    async def aclose(self) -> None:
        """Stop all servers permanently, in parallel. Open calls fail."""
        self._is_closed = True
        async with anyio.create_task_group() as tasks:
            for servers in (*self._sessions.values(), self._ending):
                for server in servers:
                    tasks.start_soon(server.aclose)

    async def _end(self, server: McpServer) -> None:
        try:
            await server.aclose()
        except Exception:
            # The error must not stop the servers of other sessions.
            logger.exception("the MCP server %s cannot be stopped", server.name)
        finally:
            self._ending.remove(server)

    def _new_servers(self, session_id: str, tasks: TaskGroup) -> list[McpServer]:
        return [
            McpServer(
                config,
                session_id=session_id,
                tasks=tasks,
                upstream=self._upstream,
                listings=self._listings,
            )
            for config in self._configs
            if not config.is_disabled
        ]

    def _remove_old_sessions(self) -> None:
        for session_id in list(self._sessions)[:-_MAX_SESSIONS]:
            if not any(server.is_running for server in self._sessions[session_id]):
                del self._sessions[session_id]


def _unused_status(config: McpServerConfig) -> ServerStatus:
    if config.is_disabled:
        problem = "disabled in the configuration"
        return ServerStatus(name=config.name, state="closed", problem=problem)
    return ServerStatus(name=config.name)
