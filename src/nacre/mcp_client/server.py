"""One MCP server of one session: lists its tools on demand and reports its status."""

from __future__ import annotations

import hashlib
import logging
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import anyio
import anyio.to_thread

from nacre.errors import ToolServerError
from nacre.json_types import NotJsonError, encode_json
from nacre.mcp_client.connection import Connection
from nacre.mcp_client.peer_errors import RpcError
from nacre.mcp_client.tools import (
    OPERATION_NAMES,
    ToolListing,
    ToolPermissions,
    build_operations,
    build_tools,
)
from nacre.mcp_client.upstream import METHOD_NOT_FOUND
from nacre.tools import OPERATION_MARK, Tool

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Sequence
    from types import TracebackType
    from typing import Self

    from anyio.abc import TaskGroup

    from nacre.config import McpServerConfig
    from nacre.json_types import JsonObject, JsonValue
    from nacre.mcp_client.handshake import ServerFacts
    from nacre.mcp_client.upstream import UpstreamRequests

    Request: TypeAlias = Callable[[str, JsonObject], Awaitable[JsonObject]]


ServerState = Literal["idle", "starting", "ready", "failed", "closed"]
"""`idle`: starts when it is asked something, for the first time or again; `closed`: for good."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ServerStatus:
    """One server in one session; nothing in it is secret."""

    name: str
    state: ServerState = "idle"
    problem: str = ""
    """Why it failed; of a server that works, what is wrong with single tools."""
    tool_count: int | None = None
    """None as long as it was not asked for its tools."""
    listed_bytes: int = 0
    """What its list of tools takes as compact JSON, once it was asked."""
    version: str = ""
    restarts: int = 0
    """How often it was started again, after a failure or because it had been idle."""
    pid: int | None = None
    session_id: str = ""
    last_output: tuple[str, ...] = ()
    """The last lines of its standard error, and of what it wrote that was no message."""


MAX_TOOLS: Final = 10_000
_MAX_PAGES: Final = 1_000
_MAX_CURSOR_CHARACTERS: Final = 64 * 1024


@dataclass(frozen=True, kw_only=True, slots=True)
class RawListing:
    """Tools as the server sent them, and what was wrong with the list as a whole."""

    tools: Sequence[JsonValue]
    notes: tuple[str, ...] = ()


async def list_raw_tools(request: Request) -> RawListing:
    """Every page of `tools/list`, within bounds; raises what `request` raises."""
    found: list[JsonValue] = []
    cursors: set[str] = set()
    params: JsonObject = {}
    for _ in range(_MAX_PAGES):
        page = await request("tools/list", params)
        tools = page.get("tools")
        if not isinstance(tools, list):
            return RawListing(tools=found, notes=("a page of its list has no tools",))
        found.extend(tools)
        cursor = page.get("nextCursor")
        if cursor is None or cursor == "":
            return _truncate_listing(found)
        if not isinstance(cursor, str) or len(cursor) > _MAX_CURSOR_CHARACTERS:
            return RawListing(tools=found, notes=("its list goes on at what is no cursor",))
        if cursor in cursors:
            return RawListing(tools=found, notes=("its list goes on in a circle",))
        if len(found) >= MAX_TOOLS:
            return _truncate_listing(found, has_more=True)
        cursors.add(cursor)
        params = {"cursor": cursor}
    return RawListing(tools=found, notes=(f"its list has more than {_MAX_PAGES:,} pages",))


def _truncate_listing(found: list[JsonValue], *, has_more: bool = False) -> RawListing:
    if len(found) <= MAX_TOOLS and not has_more:
        return RawListing(tools=found)
    note = f"it lists more than {MAX_TOOLS:,} tools; the others are left out"
    return RawListing(tools=found[:MAX_TOOLS], notes=(note,))


logger = logging.getLogger(__name__)

_MAX_NOTES: Final = 5
# Of sessions beyond these, the oldest that use no server are forgotten; whoever still holds its
# servers may go on with them.
_MAX_SESSIONS: Final = 256


@dataclass(kw_only=True, slots=True)
class _Work:
    """A listing under way: whoever needs it waits, and none of them can cancel it for others."""

    ended: anyio.Event = field(default_factory=anyio.Event)
    problem: str = ""


class McpServer:
    """A `ToolServer`. Made by `McpConnections`."""

    def __init__(
        self,
        config: McpServerConfig,
        *,
        session_id: str,
        tasks: TaskGroup,
        upstream: UpstreamRequests | None,
    ) -> None:
        self._config = config
        self._session_id = session_id
        self._tasks = tasks
        self._connection = Connection(
            config, tasks=tasks, upstream=upstream, on_list_changed=self._list_changed
        )
        self._change_count = 0
        self._listed_at: tuple[int, int] | None = None
        self._listing: ToolListing | None = None
        self._digest = b""
        self._work: _Work | None = None

    @property
    def name(self) -> str:
        return self._config.name

    @property
    def is_running(self) -> bool:
        return self._connection.state in ("starting", "ready")

    @property
    def description(self) -> str:
        facts = self._connection.facts
        return facts.description if facts is not None else ""

    @property
    def known_tools(self) -> Sequence[Tool] | None:
        return self._listing.tools if self._listing is not None else None

    async def tools(self) -> Sequence[Tool]:
        """As last listed if nothing has changed since, else listed now; raises ToolServerError."""
        if self._connection.state == "closed":
            raise ToolServerError(self._problem("is closed"), server=self.name)
        if self._listing is None or self._listed_at != self._version():
            work = self._work or self._start_listing()
            await work.ended.wait()
            if work.problem or self._listing is None:
                raise ToolServerError(work.problem, server=self.name)
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
            version=connection.facts.version if connection.facts is not None else "",
            restarts=max(0, connection.start_count - 1),
            pid=connection.pid,
            session_id=self._session_id,
            last_output=connection.last_output,
        )

    async def aclose(self) -> None:
        """End the connection for good."""
        await self._connection.aclose()

    def _version(self) -> tuple[int, int]:
        return self._connection.start_count, self._change_count

    def _list_changed(self) -> None:
        # Listed again when somebody asks: a server may say this as often as it likes.
        self._change_count += 1

    def _start_listing(self) -> _Work:
        work = self._work = _Work(problem=f"the MCP server {self.name} was closed")
        self._tasks.start_soon(self._list, work)
        return work

    async def _list(self, work: _Work) -> None:
        try:
            facts = await self._connection.start()
            version = self._version()
            with anyio.move_on_after(self._config.startup_seconds) as scope:
                await self._take(await self._raw_listing(facts), facts)
            if scope.cancelled_caught:
                work.problem = self._problem("did not list its tools in time")
                return
            self._listed_at, work.problem = version, ""
        except ToolServerError as error:
            work.problem = error.message
        except RpcError as error:
            work.problem = self._problem(f"cannot list its tools: {error.message}")
        except Exception:
            # Whatever a list does to us, the other servers go on.
            logger.exception("the list of the MCP server %s cannot be used", self.name)
            work.problem = self._problem("has a list of tools that cannot be used")
        finally:
            self._work = None
            work.ended.set()

    async def _raw_listing(self, facts: ServerFacts) -> RawListing:
        if not facts.has("tools") and facts.capabilities:
            return RawListing(tools=())
        try:
            return await list_raw_tools(self._connection.ask)
        except RpcError as error:
            if error.code != METHOD_NOT_FOUND:
                raise
            return RawListing(tools=())

    async def _take(self, raw: RawListing, facts: ServerFacts) -> None:
        """Make tools of what was listed, unless it is what is known already."""
        digest, listing = await anyio.to_thread.run_sync(self._build_listing, raw, facts)
        if listing is not None:
            self._listing, self._digest = listing, digest

    def _build_listing(
        self, raw: RawListing, facts: ServerFacts
    ) -> tuple[bytes, ToolListing | None]:
        """In a thread: thousands of tools would hold up the event loop."""
        digest = _digest_of(raw, facts)
        if digest and digest == self._digest:
            return digest, None
        ask = self._connection.ask
        listing = build_tools(raw.tools, self._config, ask)
        operations = build_operations(facts, self._config, ask)
        return digest, ToolListing(
            tools=(*listing.tools, *operations),
            notes=(*self._pattern_notes(raw), *raw.notes, *listing.notes),
            listed_bytes=_bytes_of(raw),
        )

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


def _bytes_of(raw: RawListing) -> int:
    """What a client would hold of the tools; one that is no JSON counts for nothing."""
    total = 0
    for tool in raw.tools:
        with suppress(NotJsonError):
            total += len(encode_json(tool))
    return total


def _digest_of(raw: RawListing, facts: ServerFacts) -> bytes:
    """Equal for equal listings; empty for what cannot be compared."""
    try:
        compared = encode_json([raw.tools, raw.notes, facts.capabilities])
    except NotJsonError:
        return b""
    return hashlib.sha256(compared).digest()


class McpConnections:
    """Used with `async with`: at its end, every server that was started is stopped.

    Nothing is started before it is asked something, and no server waits for another.
    """

    def __init__(
        self, configs: Sequence[McpServerConfig], *, upstream: UpstreamRequests | None = None
    ) -> None:
        self._configs = tuple(configs)
        self._upstream = upstream
        self._sessions: dict[str, list[McpServer]] = {}
        self._ending: list[McpServer] = []
        self._tasks: TaskGroup | None = None
        self._is_closed = False

    async def __aenter__(self) -> Self:
        if self._tasks is not None:
            raise RuntimeError("McpConnections is opened once; make another one")
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

    def servers(self, session_id: str = "") -> list[McpServer]:
        """The servers as one session sees them; those that are switched off are left out."""
        if self._tasks is None or self._is_closed:
            raise RuntimeError("McpConnections is not open: use it with `async with`")
        found = self._sessions.pop(session_id, None)
        if found is None:
            found = self._new_servers(session_id, self._tasks)
        # Last in the order, as the one used most recently.
        self._sessions[session_id] = found
        self._forget_old_sessions()
        return list(found)

    def end_session(self, session_id: str) -> None:
        """Stop the servers of a session that will not go on; returns before they have ended."""
        servers = self._sessions.pop(session_id, [])
        if self._tasks is None or self._is_closed:
            return
        for server in servers:
            self._ending.append(server)
            self._tasks.start_soon(self._end, server)

    def status(self) -> list[ServerStatus]:
        """Every server in every session that has used it, and those that nobody has used."""
        found = [server.status() for servers in self._sessions.values() for server in servers]
        named = {status.name for status in found}
        return [
            *found,
            *(_unused_status(config) for config in self._configs if config.name not in named),
        ]

    async def aclose(self) -> None:
        """Stop all servers, at the same time; open calls fail. They do not start again."""
        self._is_closed = True
        async with anyio.create_task_group() as tasks:
            for servers in (*self._sessions.values(), self._ending):
                for server in servers:
                    tasks.start_soon(server.aclose)

    async def _end(self, server: McpServer) -> None:
        try:
            await server.aclose()
        except Exception:
            # One that does not end must not end those of other sessions.
            logger.exception("the MCP server %s cannot be stopped", server.name)
        finally:
            self._ending.remove(server)

    def _new_servers(self, session_id: str, tasks: TaskGroup) -> list[McpServer]:
        return [
            McpServer(config, session_id=session_id, tasks=tasks, upstream=self._upstream)
            for config in self._configs
            if not config.is_disabled
        ]

    def _forget_old_sessions(self) -> None:
        for session_id in list(self._sessions)[:-_MAX_SESSIONS]:
            if not any(server.is_running for server in self._sessions[session_id]):
                del self._sessions[session_id]


def _unused_status(config: McpServerConfig) -> ServerStatus:
    if config.is_disabled:
        problem = "switched off in the configuration"
        return ServerStatus(name=config.name, state="closed", problem=problem)
    return ServerStatus(name=config.name)
