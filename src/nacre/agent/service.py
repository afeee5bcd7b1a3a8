"""The door to agents: turns are started, followed, steered and aborted here."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, Self

import anyio

from nacre.agent.approval_log import ApprovalLog
from nacre.agent.run import RunRegistry
from nacre.agent.session_queue import SessionQueues
from nacre.agent.session_resolution import SessionResolver
from nacre.agent.surfaces import SurfaceFactory
from nacre.agent.transcript import FailedTurnWrites
from nacre.agent.turn_context import ServiceContext
from nacre.errors import SessionError
from nacre.hooks import HookRunner
from nacre.run_context import AbortController
from nacre.telemetry import current_trace

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from nacre.agent.run import AgentRun
    from nacre.agent.turn_context import ProvidersInUse, ServersInUse, ToolSource
    from nacre.agent.turn_request import TurnRequest
    from nacre.code_mode import Runtime
    from nacre.config.system import SystemConfig
    from nacre.hooks import Hooks
    from nacre.storage import Store
    from nacre.tools import ApprovalQueue

# For hooks that are told of turns that closing the service has ended.
_END_HOOKS_SECONDS: Final = 2.0
_CLOSED: Final = "the agent service is shutting down"
_CLOSED_WAITING: Final = f"{_CLOSED}; the run waited for an answer of a person or a client"


class AgentService:
    """Runs the turns of all sessions. An async context manager.

    One turn of a session runs at a time; a message that arrives meanwhile goes by the queue mode.
    """

    def __init__(
        self,
        *,
        config: SystemConfig,
        store: Store,
        runtime: Runtime,
        providers: ProvidersInUse,
        tools: ToolSource,
        hooks: Hooks,
        approvals: ApprovalQueue,
        servers: ServersInUse,
    ) -> None:
        hook_runner = HookRunner(hooks)
        self._hooks_cutoff = AbortController()
        self._store = store
        self._approvals = approvals
        self._providers = providers
        self._sessions = SessionResolver(config.agents, store)
        self._failed_writes = FailedTurnWrites(store)
        self._runs = RunRegistry()
        self._tasks = anyio.create_task_group()
        parts = ServiceContext(
            config=config,
            store=store,
            unkept=self._failed_writes,
            providers=providers,
            tools=tools,
            servers=servers,
            surfaces=SurfaceFactory(
                runtime=runtime, hooks=hooks, hook_runner=hook_runner, approvals=approvals
            ),
            hooks=hook_runner,
            farewell=self._hooks_cutoff.signal,
        )
        self._queues = SessionQueues(parts, self._runs, self._tasks)
        self._approval_log: ApprovalLog | None = None
        self._is_closed = True

    async def __aenter__(self) -> Self:
        await self._tasks.__aenter__()
        # Not before: it listens from then on, and has a stream to close.
        self._approval_log = ApprovalLog(self._approvals, store=self._store, run_of=self.run)
        self._tasks.start_soon(self._approval_log.write)
        self._tasks.start_soon(self._failed_writes.write)
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
        """Take no more turns; those that run have so long to end, then they are aborted. Those that
        wait for people or clients are aborted at once. Messages that still wait are kept in their
        sessions."""
        self._is_closed = True
        self._queues.hurry()
        with anyio.move_on_after(grace_seconds):
            await self._wait_until_idle()
        self._queues.abort_all(_CLOSED)
        with anyio.move_on_after(_END_HOOKS_SECONDS):
            await self._queues.until_idle()
        self._hooks_cutoff.abort(_CLOSED)
        await self._queues.until_idle()
        self._failed_writes.close()
        if self._approval_log is not None:
            self._approval_log.close()

    # What callers do.

    async def start(self, request: TurnRequest) -> AgentRun:
        """Begin a turn, or hand the message to the one that runs; returns the run that takes it.

        Raises SessionError (`not_found`, `invalid`, `too_many`, and `busy` where the queue is
        full), ConfigError for a model that is not there, ToolDefinitionError for a client tool.
        """
        self._check_open()
        if request.model:
            # First, so that no session is begun for a turn that cannot be.
            self._check_model(request.model)
        place = await self._sessions.resolve(request)
        self._check_open()
        # As it is now: the place was looked for under the configuration of a moment ago.
        agent = self._queues.parts.config.agents.agent(place.agent.id)
        self._check_model(request.model or agent.model)
        if request.trace is None:
            # Now: the task that takes the turn may be one that an earlier caller began.
            request = replace(request, trace=current_trace())
        return self._queues.take(request, place)

    def run(self, run_id: str) -> AgentRun | None:
        """A run that is live, or has ended lately."""
        return self._runs.get(run_id)

    def runs(self, session_id: str | None = None) -> list[AgentRun]:
        """Those that ended lately, and those that are live; oldest first."""
        return self._runs.all(session_id)

    async def abort(self, run_id: str, reason: str = "the run was aborted") -> bool:
        """End a run, and return when it has ended; False if there is none that could be ended."""
        run = self._runs.get(run_id)
        return False if run is None else await run.abort(reason)

    def watch_runs(self, watcher: Callable[[AgentRun], None]) -> Callable[[], None]:
        """Have every run told as it is made; call what is returned to stop."""
        return self._runs.watch(watcher)

    def configure(self, config: SystemConfig) -> None:
        """Use another configuration for the turns to come; those that have begun keep theirs."""
        self._sessions = SessionResolver(config.agents, self._store)
        self._queues.parts = replace(self._queues.parts, config=config)

    async def _wait_until_idle(self) -> None:
        """Runs that work come to their end; one that begins to wait is aborted."""
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
        with self._providers() as providers:
            providers.get(model)

    def _check_open(self) -> None:
        if self._is_closed:
            raise SessionError(f"{_CLOSED}, or was never opened", code="ended")


async def _abort_when_waiting(run: AgentRun) -> None:
    if await run.waiting_or_ended() == "waiting":
        run.request_abort(_CLOSED_WAITING)
