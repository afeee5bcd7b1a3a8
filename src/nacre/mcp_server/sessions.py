"""Client sessions: each has a code mode run, its calls and its upstream servers."""

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
from nacre.mcp_server.served_calls import NestedCalls, ServedCall
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

# How long a suspended call waits for the answers of its client.
_ANSWER_SECONDS: Final = 600.0
_TICKET_BYTES: Final = 16


class OpenServers(Protocol):
    """Opens the upstream servers of a session, and closes them afterwards."""

    def __call__(
        self, session_id: str, client: UpstreamRequests, /
    ) -> AbstractAsyncContextManager[Sequence[ToolServer]]: ...


def share_servers(servers: Sequence[ToolServer] = ()) -> OpenServers:
    """Use the same servers for all sessions. The caller opens and closes them."""

    @asynccontextmanager
    async def open_servers(
        _session_id: str, _client: UpstreamRequests
    ) -> AsyncGenerator[Sequence[ToolServer]]:
        yield servers

    return open_servers


@dataclass(frozen=True, kw_only=True, slots=True)
class SessionOptions:
    """The runtime, servers, tools and hooks of all sessions."""

    runtime: Runtime
    servers: OpenServers = field(default_factory=share_servers)
    tools: Sequence[Tool] = ()
    hooks: Sequence[object] = ()
    is_sandboxed: bool = False
    """Whether `tools.sandbox.tools` applies."""


# Keys of texts that are only displayed. Other texts are names or values, which must not change.
_DISPLAYED_KEYS: Final = frozenset(("message", "title", "description", "enumNames"))
# Forms of MCP are flat.
_MAX_LEVELS: Final = 16
_MAX_BYTES: Final = 64 * 1024


def clean_question(params: JsonObject) -> JsonObject:
    """Make the parameters of an elicitation safe to display. Raises UpstreamRefusal."""
    size_bytes = len(encode_json(params))
    if size_bytes > _MAX_BYTES:
        raise UpstreamRefusal(f"the question has {size_bytes} bytes; the limit is {_MAX_BYTES}")
    return {key: _clean(it, key, _MAX_LEVELS) for key, it in params.items()}


def _clean(value: JsonValue, key: str, levels_left: int) -> JsonValue:
    if levels_left == 0:
        raise UpstreamRefusal(f"the question is nested more than {_MAX_LEVELS} levels deep")
    match value:
        case str() if key in _DISPLAYED_KEYS:
            return visible_lines(value)
        case str():
            return _check_visible(value)
        case list():
            return [_clean(it, key, levels_left - 1) for it in value]
        case dict():
            return {
                _check_visible(name): _clean(it, name, levels_left - 1)
                for name, it in value.items()
            }
        case _:
            return value


def _check_visible(text: str) -> str:
    if any(is_invisible(it) and it not in "\n\t" for it in text):
        raise UpstreamRefusal(
            "a name or value in the question has invisible characters: "
            f"{text[:80].encode('ascii', 'backslashreplace').decode()}"
        )
    return text


_MISSING_FEATURES: Final[dict[ClientFeature, str]] = {
    "form": "cannot show forms (elicitation)",
    "url": "cannot open pages (elicitation of mode url)",
    "sampling": "has no sampling",
    "sampling-tools": "has no sampling with tools",
    "roots": "has no roots",
}


class SessionClient:
    """Forwards requests of upstream servers to the client of a session (`UpstreamRequests`)."""

    def __init__(self, get_session: Callable[[], Session]) -> None:
        """`get_session` is called later, because the session is created after this."""
        self._get_session = get_session
        self.features: frozenset[ClientFeature] = frozenset()
        """The features of the client in its last request."""

    @property
    def capabilities(self) -> JsonObject:
        """The capabilities to announce to a server."""
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
        """Ask the person. The question names the server."""
        shown = clean_question({key: it for key, it in params.items() if key != "_meta"})
        # The client displays it as a question of this server, so add the name of the origin.
        named: JsonObject = {**shown, "message": f"{server} asks: {shown.get('message', '')}"}
        feature: ClientFeature = "url" if params.get("mode") == "url" else "form"
        return await self._ask(server, "elicitation/create", named, feature)

    async def sample(self, server: str, params: JsonObject) -> JsonObject:
        """Ask the model of the client."""
        needs_tools = bool(params.get("tools") or params.get("toolChoice"))
        feature: ClientFeature = "sampling-tools" if needs_tools else "sampling"
        return await self._ask(server, "sampling/createMessage", params, feature)

    async def roots(self, server: str, params: JsonObject) -> JsonObject:
        """Return the roots of the client."""
        return await self._ask(server, "roots/list", params, "roots")

    async def _ask(
        self, server: str, method: QuestionMethod, params: JsonObject, feature: ClientFeature
    ) -> JsonObject:
        call = self._get_session().call_for(server)
        if call is None:
            raise UpstreamRefusal(f"{method} is only allowed during a call, and none is running")
        if feature not in call.features:
            problem = f"{method} is refused: the MCP client {_MISSING_FEATURES[feature]}"
            raise UpstreamRefusal(problem, code=METHOD_NOT_FOUND)
        if method != "roots/list" and not self._get_session().may_ask(server, call):
            raise UpstreamRefusal(
                f"{method} is refused: the limit of {MAX_QUESTIONS_PER_CALL} questions in one call "
                "is reached"
            )
        # `_meta`, with a progress token for example, belongs to the connection of the server.
        own = {key: value for key, value in params.items() if key != "_meta"}
        try:
            return await call.ask(method, own)
        except ClientRefusedError as refusal:
            raise UpstreamRefusal(str(refusal)) from refusal


class _SuspendedCall:
    """A call whose client got questions as the result."""

    def __init__(self, call: ServedCall) -> None:
        self.call = call
        self.is_resumed = anyio.Event()


class Session:
    """A client, its code mode run and its running calls. Created by `Sessions`."""

    def __init__(
        self, run: CodeModeRun, queue: ApprovalQueue, client: SessionClient, tasks: TaskGroup
    ) -> None:
        self.run = run
        self._queue = queue
        self._client = client
        self._tasks = tasks
        self._calls: dict[str, ServedCall] = {}
        self._suspended: dict[str, _SuspendedCall] = {}
        self._cells: dict[str, str] = {}
        self._nested = NestedCalls()
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._stop_listening = run.trajectory.subscribe(self._on_event)
        self.closing = anyio.Event()

    def set_client_features(self, features: frozenset[ClientFeature]) -> None:
        self._client.features = features

    def start_call(
        self, name: str, arguments: JsonObject, features: frozenset[ClientFeature]
    ) -> ServedCall:
        """Start a call. It runs until it ends or is aborted, independently of its request."""
        call = ServedCall(self.run, self._queue, name=name, arguments=arguments)
        call.root_id = self._cells.get(str(arguments.get("runId")), call.id)
        call.attach(features)
        self._calls[call.id] = call
        self._tasks.start_soon(self._run_call, call)
        return call

    def suspend_call(self, call: ServedCall) -> str:
        """Return a ticket for the client, which gets questions as the result of its request."""
        call.rounds += 1
        # Not guessable, because the ticket allows to answer the questions.
        ticket = os.urandom(_TICKET_BYTES).hex()
        self._suspended[ticket] = _SuspendedCall(call)
        self._tasks.start_soon(self._abort_after_timeout, ticket, self._suspended[ticket])
        return ticket

    def resume_call(self, ticket: str, features: frozenset[ClientFeature]) -> ServedCall | None:
        """Return the call of a ticket, which can be used once."""
        suspended = self._suspended.pop(ticket, None)
        if suspended is None:
            return None
        suspended.is_resumed.set()
        suspended.call.attach(features)
        return suspended.call

    def call_for(self, server: str) -> ServedCall | None:
        """Return the call for a request of a server: the latest that uses it, else the latest."""
        latest = list(reversed(self._calls.values()))
        using = (c for c in latest if self._nested.is_running(server, parent_id=c.root_id))
        return next(using, latest[0] if latest else None)

    def may_ask(self, server: str, call: ServedCall) -> bool:
        """Count a question of the server. Returns False if the limit is reached."""
        if self._nested.is_running(server, parent_id=call.root_id):
            return self._nested.may_ask(server, parent_id=call.root_id)
        call.unrelated_question_count += 1
        return call.unrelated_question_count <= MAX_QUESTIONS_PER_CALL

    async def aclose(self) -> None:
        self._stop_listening()
        await self.run.abort("the session is over")

    async def _run_call(self, call: ServedCall) -> None:
        try:
            await call.run()
        finally:
            del self._calls[call.id]

    async def _abort_after_timeout(self, ticket: str, suspended: _SuspendedCall) -> None:
        with anyio.move_on_after(_ANSWER_SECONDS):
            await suspended.is_resumed.wait()
            return
        del self._suspended[ticket]
        await suspended.call.abort()

    def _on_event(self, event: TrajectoryEvent) -> None:
        # A tool may report progress from another thread.
        if threading.get_ident() != self._thread:
            self._loop.call_soon_threadsafe(self._handle_event, event)
        else:
            self._handle_event(event)

    def _handle_event(self, event: TrajectoryEvent) -> None:
        if event.kind == "cell.started":
            self._cells[str(event.data["runId"])] = event.call_id
        elif event.kind == "cell.ended":
            self._cells.pop(str(event.data["runId"]), None)
        message = self._nested.describe_event(event)
        if message is None:
            return
        for call in self._calls.values():
            if call.root_id == event.parent_id:
                call.feed.add(message)


class Sessions:
    """The sessions of one server. An async context manager.

    Clients without a transport session share one session: on stdio there is one client, and
    requests of 2026-07-28 are independent. All of them are authorized to call tools.
    """

    def __init__(self, options: SessionOptions) -> None:
        self._options = options
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
        """Return the session of a client, and whether it is new."""
        async with self._opening:
            if transport_id in self._sessions:
                return self._sessions[transport_id], False
            session: Session = await self._tasks.start(self._run_session, transport_id)
            self._sessions[transport_id] = session
            return session, True

    def close(self, transport_id: str) -> None:
        """Close the session of a client that has disconnected."""
        session = self._sessions.pop(transport_id, None)
        if session is not None:
            session.closing.set()

    async def _run_session(self, transport_id: str, *, task_status: TaskStatus[Session]) -> None:
        context = RunContext(channel="mcp", is_sandboxed=self._options.is_sandboxed)
        queue = ApprovalQueue()
        sessions: list[Session] = []
        client = SessionClient(lambda: sessions[0])
        opened = self._options.servers(context.session_id, client)
        async with opened as servers, anyio.create_task_group() as tasks:
            run = self._options.runtime.run(
                tools=self._options.tools,
                mcp=servers,
                context=context,
                hooks=self._options.hooks,
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
