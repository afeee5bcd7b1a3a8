"""Starts, follows, steers and aborts the turns of agents; resolves the session of a request."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Literal, Self

import anyio

from nacre.agent.approval_log import ApprovalLog
from nacre.agent.run import RunRegistry
from nacre.agent.session_queue import SessionQueues
from nacre.errors import SessionError
from nacre.messages import UserMessage, user_message
from nacre.providers import ModelSettings
from nacre.telemetry import current_trace

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager
    from types import TracebackType

    from nacre.agent.run import AgentRun, ClientTool
    from nacre.agent.turn_context import ServiceContext
    from nacre.config import AgentConfig, AgentsConfig, QueueMode, SystemConfig
    from nacre.messages import Message
    from nacre.storage import SessionRecord, Store
    from nacre.telemetry import TraceContext

# For the `agent_end` hooks of turns that closing the service has ended.
_END_HOOKS_SECONDS: Final = 2.0
_CLOSED: Final = "the agent service is shutting down"
_CLOSED_WAITING: Final = f"{_CLOSED}; the run waited for an answer of a person or a client"
_SESSION_ID_BYTES: Final = 12
_MAX_SHOWN_ID: Final = 80
_MAX_TITLE_CHARACTERS: Final = 80


class AgentService:
    """Runs the turns of all sessions. An async context manager.

    One turn of a session runs at a time; the queue mode decides about messages that come meanwhile.
    """

    def __init__(self, context: ServiceContext) -> None:
        self._context = context
        self._sessions = SessionResolver(context.config.agents, context.store)
        self._runs = RunRegistry()
        self._tasks = anyio.create_task_group()
        self._queues = SessionQueues(context, self._runs, self._tasks)
        self._approval_log = ApprovalLog(
            context.approvals, store=context.store, run_of=self._runs.get
        )
        self._is_closed = True

    async def __aenter__(self) -> Self:
        await self._tasks.__aenter__()
        self._tasks.start_soon(self._approval_log.write)
        self._tasks.start_soon(self._context.failed_writes.write)
        self._is_closed = False
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with anyio.CancelScope(shield=True):
            await self.aclose()
        if isinstance(error, Exception):
            # All turns have ended; the group would only wrap what our caller raised.
            kind = error = traceback = None
        await self._tasks.__aexit__(kind, error, traceback)

    async def aclose(self, grace_seconds: float = 0.0) -> None:
        """Take no more turns. Running turns have `grace_seconds` to end before they are aborted;
        turns that wait for people or clients are aborted at once. Queued messages are stored in
        their sessions."""
        self._is_closed = True
        self._queues.hurry()
        with anyio.move_on_after(grace_seconds):
            await self._wait_until_idle()
        self._queues.abort_all(_CLOSED)
        with anyio.move_on_after(_END_HOOKS_SECONDS):
            await self._queues.until_idle()
        self._context.end_hooks.abort(_CLOSED)
        await self._queues.until_idle()
        self._context.failed_writes.close()
        self._approval_log.close()

    # What callers do.

    async def start(self, request: TurnRequest) -> AgentRun:
        """Start a turn, or pass the message to the running one; returns the run that takes it.

        Raises SessionError (`not_found`, `invalid`, `too_many`, or `busy` if the queue is full),
        ConfigError for an unknown model, and ToolDefinitionError for an invalid client tool.
        """
        self._check_open()
        if request.model:
            # First, so that no session is created for an invalid turn.
            self._check_model(request.model)
        session = await self._sessions.resolve(request)
        self._check_open()
        # As it is now: the configuration may have changed while the session was resolved.
        agent = self._queues.context.config.agents.agent(session.agent.id)
        self._check_model(request.model or agent.model)
        if request.trace is None:
            # Now: the task that runs the turn may be one that an earlier caller started.
            request = replace(request, trace=current_trace())
        return self._queues.take(request, session)

    def run(self, run_id: str) -> AgentRun | None:
        """A run that is live or has ended recently."""
        return self._runs.get(run_id)

    def runs(self, session_id: str | None = None) -> list[AgentRun]:
        """The live runs and those that ended recently, oldest first."""
        return self._runs.all(session_id)

    async def abort(self, run_id: str, reason: str = "the run was aborted") -> bool:
        """Abort a run and wait for its end; False if there is no such live run."""
        run = self._runs.get(run_id)
        return False if run is None else await run.abort(reason)

    def watch_runs(self, watcher: Callable[[AgentRun], None]) -> Callable[[], None]:
        """Call `watcher` with every new run; call the returned function to stop."""
        return self._runs.watch(watcher)

    def hold_turns(self) -> AbstractContextManager[None]:
        """Delay turns that would begin during the block; they use the configuration after it.
        Use it for changes that are made in several steps."""
        return self._queues.hold_turns()

    def configure(self, config: SystemConfig) -> None:
        """Use another configuration for new turns; turns that have begun keep theirs."""
        self._sessions = SessionResolver(config.agents, self._context.store)
        self._queues.context = replace(self._context, config=config)

    async def _wait_until_idle(self) -> None:
        """Wait for the end of all runs; one that starts to wait for somebody is aborted."""
        async with anyio.create_task_group() as tasks:

            def watch(run: AgentRun) -> None:
                tasks.start_soon(_abort_when_waiting, run)

            stop_watching = self.watch_runs(watch)
            try:
                for run in self._runs.live():
                    watch(run)
                await self._queues.until_idle()
                tasks.cancel_scope.cancel()
            finally:
                stop_watching()

    def _check_model(self, model: str) -> None:
        with self._context.providers() as providers:
            providers.get(model)

    def _check_open(self) -> None:
        if self._is_closed:
            raise SessionError(f"{_CLOSED}, or was never opened", code="ended")


async def _abort_when_waiting(run: AgentRun) -> None:
    if await run.waiting_or_ended() == "waiting":
        run.request_abort(_CLOSED_WAITING)


@dataclass(frozen=True, kw_only=True, slots=True)
class TurnRequest:
    """A request for one turn. Without a session it starts a new one; with only `history`, the
    session is not stored."""

    message: UserMessage | str | None = None
    """The message of the user; None only if `history` ends with a message for the model."""
    agent_id: str = ""
    """Empty for the agent of the session, or the default agent."""
    session_id: str = ""
    """The id of an existing session."""
    session_key: str = ""
    """The caller's name for a session of the agent. It is created if it does not exist."""
    title: str = ""
    """The title of a new session."""
    sender: str = ""
    channel: str = ""
    model: str = ""
    """`provider/model` instead of the agent's model, without fallbacks."""
    client_tools: Sequence[ClientTool] = ()
    history: Sequence[Message] | None = None
    """The earlier messages, if the caller keeps them; None for those of the session."""
    instructions: str = ""
    """Added to the instructions of the agent."""
    settings: ModelSettings = field(default_factory=ModelSettings)
    tools_disabled: bool = False
    queue_mode: QueueMode | Literal[""] = ""
    """How to handle the message while a turn is running; empty as configured."""
    trace: TraceContext | None = field(default=None, repr=False, compare=False)
    """The parent of the turn's span; None for the current span of the caller."""

    @property
    def user_message(self) -> UserMessage | None:
        if isinstance(self.message, str):
            return user_message(self.message)
        return self.message

    def can_join(self, other: TurnRequest) -> bool:
        """Whether the message can become part of the other turn without losing an option."""
        is_plain = (
            self.user_message is not None
            and not self.client_tools
            and self.history is None
            and self.model in ("", other.model)
            and not self.instructions
            and self.settings == ModelSettings()
            and not self.tools_disabled
        )
        return is_plain and (self.sender, self.channel) == (other.sender, other.channel)


@dataclass(frozen=True, kw_only=True, slots=True)
class ResolvedSession:
    """The session and the agent of a turn."""

    agent: AgentConfig
    session_id: str
    session_key: str = ""
    is_stored: bool = True


class SessionResolver:
    """Finds the session of a request, or creates it."""

    def __init__(self, agents: AgentsConfig, store: Store) -> None:
        self._agents = agents
        self._store = store

    async def resolve(self, request: TurnRequest) -> ResolvedSession:
        """Return the session. Raises SessionError (`not_found` or `invalid`)."""
        if request.user_message is None and not request.history:
            raise SessionError("there is no message and no history to answer", code="invalid")
        if request.session_id and request.session_key:
            raise SessionError(
                "a request names its session by its id or by its key, not by both", code="invalid"
            )
        if request.session_id:
            return await self._resolve_by_id(request)
        agent = self._agents.agent(request.agent_id or self._agents.default_id)
        if request.history is not None and not request.session_key:
            return ResolvedSession(agent=agent, session_id=_new_session_id(), is_stored=False)
        found: SessionRecord | None = None
        if request.session_key:
            found = await self._store.session_by_key(agent.id, request.session_key)
        return _resolve_record(agent, found or await self._create_session(request, agent))

    async def _resolve_by_id(self, request: TurnRequest) -> ResolvedSession:
        found = await self._store.session(request.session_id)
        if found is None:
            shown = request.session_id[:_MAX_SHOWN_ID]
            raise SessionError(f"there is no session {shown!r}", code="not_found")
        agent = self._agents.agent(found.agent_id)
        if request.agent_id and self._agents.agent(request.agent_id) is not agent:
            raise SessionError(
                f"the session {found.id} is one of the agent {agent.id}, not of {request.agent_id}",
                code="invalid",
            )
        return _resolve_record(agent, found)

    async def _create_session(self, request: TurnRequest, agent: AgentConfig) -> SessionRecord:
        return await self._store.add_session(
            id=_new_session_id(),
            agent_id=agent.id,
            key=request.session_key,
            channel=request.channel,
            sender=request.sender,
            title=request.title or _make_title(request),
        )


def _resolve_record(agent: AgentConfig, found: SessionRecord) -> ResolvedSession:
    return ResolvedSession(agent=agent, session_id=found.id, session_key=found.key)


def _make_title(request: TurnRequest) -> str:
    message = request.user_message
    first_line = message.text.strip().partition("\n")[0] if message else ""
    return first_line[:_MAX_TITLE_CHARACTERS]


def _new_session_id() -> str:
    return f"session_{os.urandom(_SESSION_ID_BYTES).hex()}"
