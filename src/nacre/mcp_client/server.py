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
