"""One run of code mode per client session: its calls, its servers, and the end of all that."""

from __future__ import annotations

import asyncio
import os
import threading
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

import anyio

from nacre.display import is_invisible, visible_lines
from nacre.json_types import encode_json
from nacre.mcp_client.upstream import MAX_QUESTIONS_PER_CALL, METHOD_NOT_FOUND, UpstreamRefusal
from nacre.mcp_server.client_channel import ClientRefusedError
from nacre.mcp_server.progress import NestedCalls
from nacre.mcp_server.served_calls import ServedCall
from nacre.run_context import RunContext
from nacre.tools import ApprovalQueue, Tool, ToolServer

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Sequence

    from anyio.abc import TaskGroup, TaskStatus

    from nacre.code_mode import CodeModeRun, Runtime
    from nacre.json_types import JsonObject, JsonValue
    from nacre.mcp_client.upstream import UpstreamRequests
    from nacre.mcp_server.client_channel import ClientFeature, QuestionMethod
    from nacre.trajectory import TrajectoryEvent

# A client that does not come back with its answers has given up.
_COME_BACK_SECONDS: Final = 600.0
_TICKET_BYTES: Final = 16


class OpenServers(Protocol):
    """Gives a session the upstream servers that it may use, and closes them after it."""

    def __call__(
        self, session_id: str, client: UpstreamRequests, /
    ) -> AbstractAsyncContextManager[Sequence[ToolServer]]: ...


def share_servers(servers: Sequence[ToolServer] = ()) -> OpenServers:
    """These servers for every session; somebody else looks after them."""

    @asynccontextmanager
    async def open_servers(
        _session_id: str, _client: UpstreamRequests
    ) -> AsyncGenerator[Sequence[ToolServer]]:
        yield servers

    return open_servers


@dataclass(frozen=True, kw_only=True, slots=True)
class SessionParts:
    """What every session is made of."""

    runtime: Runtime
    servers: OpenServers = field(default_factory=share_servers)
    tools: Sequence[Tool] = ()
    hooks: Sequence[object] = ()


# Keys of words that are only read; all else is a name or a value, which has to come back as it is.
_WORDS: Final = frozenset(("message", "title", "description", "enumNames"))
# MCP has flat forms.
_MAX_LEVELS: Final = 16
_MAX_BYTES: Final = 64 * 1024


def clean_question(params: JsonObject) -> JsonObject:
    """The parameters of an elicitation, cleaned; raises UpstreamRefusal."""
    size_bytes = len(encode_json(params))
    if size_bytes > _MAX_BYTES:
        raise UpstreamRefusal(f"the question has {size_bytes} bytes; the most is {_MAX_BYTES}")
    return {key: _clean(it, key, _MAX_LEVELS) for key, it in params.items()}


def _clean(value: JsonValue, key: str, levels_left: int) -> JsonValue:
    if levels_left == 0:
        raise UpstreamRefusal(f"the question is nested more than {_MAX_LEVELS} levels deep")
    match value:
        case str() if key in _WORDS:
            return visible_lines(value)
        case str():
            return _exact(value)
        case list():
            return [_clean(it, key, levels_left - 1) for it in value]
        case dict():
            return {_exact(name): _clean(it, name, levels_left - 1) for name, it in value.items()}
        case _:
            return value


def _exact(text: str) -> str:
    if any(is_invisible(it) and it not in "\n\t" for it in text):
        raise UpstreamRefusal(
            "a name or value in the question has characters that cannot be seen: "
            f"{text[:80].encode('ascii', 'backslashreplace').decode()}"
        )
    return text


_WHAT_IS_MISSING: Final[dict[ClientFeature, str]] = {
    "form": "cannot show forms (elicitation)",
    "url": "cannot open pages (elicitation of mode url)",
    "sampling": "has no sampling",
    "sampling-tools": "has no sampling with tools",
    "roots": "has no roots",
}


class ClientOfSession:
    """The client of one session, for the servers behind it (`UpstreamRequests`)."""

    def __init__(self, calls: Callable[[], Session]) -> None:
        """`calls` is asked for when a server asks: they are made after this."""
        self._calls = calls
        self.features: frozenset[ClientFeature] = frozenset()
        """What the client could be asked when it was last heard of."""

    @property
    def capabilities(self) -> JsonObject:
        """As a client announces them to a server."""
        offered: JsonObject = {}
        modes: JsonObject = {mode: {} for mode in ("form", "url") if mode in self.features}
        if modes:
            offered["elicitation"] = modes
        if "sampling" in self.features:
            offered["sampling"] = {"tools": {}} if "sampling-tools" in self.features else {}
        if "roots" in self.features:
            offered["roots"] = {}
        return offered

    async def elicit(self, server: str, params: JsonObject) -> JsonObject:
        """The person's answer; the question says which server asks."""
        shown = clean_question({key: it for key, it in params.items() if key != "_meta"})
        # The client shows it as a question of ours, and a person has to know whom they tell.
        named: JsonObject = {**shown, "message": f"{server} asks: {shown.get('message', '')}"}
        feature: ClientFeature = "url" if params.get("mode") == "url" else "form"
        return await self._ask(server, "elicitation/create", named, feature)

    async def sample(self, server: str, params: JsonObject) -> JsonObject:
        """What the client's model says."""
        needs_tools = bool(params.get("tools") or params.get("toolChoice"))
        feature: ClientFeature = "sampling-tools" if needs_tools else "sampling"
        return await self._ask(server, "sampling/createMessage", params, feature)

    async def roots(self, server: str, params: JsonObject) -> JsonObject:
        """The client's roots."""
        return await self._ask(server, "roots/list", params, "roots")

    async def _ask(
        self, server: str, method: QuestionMethod, params: JsonObject, feature: ClientFeature
    ) -> JsonObject:
        call = self._calls().call_for(server)
        if call is None:
            raise UpstreamRefusal(f"{method} is only passed on during a call, and none is open")
        if feature not in call.features:
            problem = f"{method} is refused: the MCP client {_WHAT_IS_MISSING[feature]}"
            raise UpstreamRefusal(problem, code=METHOD_NOT_FOUND)
        if method != "roots/list" and not self._calls().may_ask(server, call):
            raise UpstreamRefusal(
                f"{method} is refused: {MAX_QUESTIONS_PER_CALL} questions were asked during this "
                "call already"
            )
        # A progress token and the like belong to the server's own connection.
        own = {key: value for key, value in params.items() if key != "_meta"}
        try:
            return await call.ask(method, own)
        except ClientRefusedError as refusal:
            raise UpstreamRefusal(str(refusal)) from refusal


class _Away:
    """A call whose client was sent away with questions."""

    def __init__(self, call: ServedCall) -> None:
        self.call = call
        self.is_back = anyio.Event()


class Session:
    """A client, its run, and the calls that it waits for. Made by `Sessions`."""

    def __init__(
        self, run: CodeModeRun, queue: ApprovalQueue, client: ClientOfSession, tasks: TaskGroup
    ) -> None:
        self.run = run
        self._queue = queue
        self._client = client
        self._tasks = tasks
        self._calls: dict[str, ServedCall] = {}
        self._away: dict[str, _Away] = {}
        self._cells: dict[str, str] = {}
        self._nested = NestedCalls()
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._stop_listening = run.trajectory.subscribe(self._hear)
        self.closing = anyio.Event()

    def note_client(self, features: frozenset[ClientFeature]) -> None:
        self._client.features = features

    def start_call(
        self, name: str, arguments: JsonObject, features: frozenset[ClientFeature]
    ) -> ServedCall:
        """A call that runs until it is over, or is aborted, whatever becomes of its request."""
        call = ServedCall(self.run, self._queue, name=name, arguments=arguments)
        call.root_id = self._cells.get(str(arguments.get("runId")), call.id)
        call.attach(features)
        self._calls[call.id] = call
        self._tasks.start_soon(self._run_call, call)
        return call

    def send_away(self, call: ServedCall) -> str:
        """Its request ends with questions, and the call goes on; returns the client's ticket."""
        call.rounds += 1
        # Long enough that nobody guesses it: who has it answers the call's questions.
        ticket = os.urandom(_TICKET_BYTES).hex()
        self._away[ticket] = _Away(call)
        self._tasks.start_soon(self._abort_if_nobody_comes, ticket, self._away[ticket])
        return ticket

    def take_back(self, ticket: str, features: frozenset[ClientFeature]) -> ServedCall | None:
        """The call that the client comes back for; a ticket is good for once."""
        away = self._away.pop(ticket, None)
        if away is None:
            return None
        away.is_back.set()
        away.call.attach(features)
        return away.call

    def call_for(self, server: str) -> ServedCall | None:
        """The call that made a server ask something: one that uses it, else the latest."""
        latest = list(reversed(self._calls.values()))
        using = (c for c in latest if self._nested.is_running(server, parent_id=c.root_id))
        return next(using, latest[0] if latest else None)

    def may_ask(self, server: str, call: ServedCall) -> bool:
        """Whether the server may ask a person or a model once more; counts as asked if so."""
        if self._nested.is_running(server, parent_id=call.root_id):
            return self._nested.may_ask(server, parent_id=call.root_id)
        call.stray_question_count += 1
        return call.stray_question_count <= MAX_QUESTIONS_PER_CALL

    async def aclose(self) -> None:
        self._stop_listening()
        await self.run.abort("the session is over")

    async def _run_call(self, call: ServedCall) -> None:
        try:
            await call.run()
        finally:
            del self._calls[call.id]

    async def _abort_if_nobody_comes(self, ticket: str, away: _Away) -> None:
        with anyio.move_on_after(_COME_BACK_SECONDS):
            await away.is_back.wait()
            return
        del self._away[ticket]
        await away.call.abort()

    def _hear(self, event: TrajectoryEvent) -> None:
        # A tool may report its progress from a thread of its own.
        if threading.get_ident() != self._thread:
            self._loop.call_soon_threadsafe(self._follow, event)
        else:
            self._follow(event)

    def _follow(self, event: TrajectoryEvent) -> None:
        if event.kind == "cell.started":
            self._cells[str(event.data["runId"])] = event.call_id
        elif event.kind == "cell.ended":
            self._cells.pop(str(event.data["runId"]), None)
        words = self._nested.words_for(event)
        if words is None:
            return
        for call in self._calls.values():
            if call.root_id == event.parent_id:
                call.feed.add(words)


class Sessions:
    """The sessions of one server. An async context manager.

    Clients without a session of the transport share one: a process on stdio has one client, and
    requests of 2026-07-28 stand for themselves. They all have proved that they may call.
    """

    def __init__(self, parts: SessionParts) -> None:
        self._parts = parts
        self._sessions: dict[str, Session] = {}
        self._opening = anyio.Lock()
        self._tasks = anyio.create_task_group()

    async def __aenter__(self) -> Sessions:
        await self._tasks.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        for session in self._sessions.values():
            session.closing.set()
        self._tasks.cancel_scope.cancel()
        await self._tasks.__aexit__(None, None, None)

    async def get(self, transport_id: str) -> tuple[Session, bool]:
        """The session of a client, and whether it is a new one."""
        async with self._opening:
            if transport_id in self._sessions:
                return self._sessions[transport_id], False
            session: Session = await self._tasks.start(self._live, transport_id)
            self._sessions[transport_id] = session
            return session, True

    def close(self, transport_id: str) -> None:
        """End a session whose client is gone."""
        session = self._sessions.pop(transport_id, None)
        if session is not None:
            session.closing.set()

    async def _live(self, transport_id: str, *, task_status: TaskStatus[Session]) -> None:
        context = RunContext(channel="mcp")
        queue = ApprovalQueue()
        sessions: list[Session] = []
        client = ClientOfSession(lambda: sessions[0])
        opened = self._parts.servers(context.session_id, client)
        async with opened as servers, anyio.create_task_group() as tasks:
            run = self._parts.runtime.run(
                tools=self._parts.tools,
                mcp=servers,
                context=context,
                hooks=self._parts.hooks,
                approvals=queue,
            )
            session = Session(run, queue, client, tasks)
            sessions.append(session)
            task_status.started(session)
            try:
                await session.closing.wait()
            finally:
                with anyio.CancelScope(shield=True):
                    await session.aclose()
                tasks.cancel_scope.cancel()
