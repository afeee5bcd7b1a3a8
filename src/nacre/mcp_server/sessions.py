"""One run of code mode per client session: its calls, its servers, and the end of all that."""

from __future__ import annotations

import asyncio
import os
import threading
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

import anyio

from nacre.mcp_client.upstream import MAX_QUESTIONS_PER_CALL
from nacre.mcp_server.progress import NestedCalls
from nacre.mcp_server.served_calls import ServedCall
from nacre.mcp_server.upstream import ClientOfSession
from nacre.run_context import RunContext
from nacre.tools import ApprovalQueue, Tool, ToolServer

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from anyio.abc import TaskGroup, TaskStatus

    from nacre.code_mode import CodeModeRun, Runtime
    from nacre.json_types import JsonObject
    from nacre.mcp_client.upstream import UpstreamRequests
    from nacre.mcp_server.client_channel import ClientFeature
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
