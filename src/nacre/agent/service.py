"""Starts, follows, steers and aborts the turns of agents."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, Self

import anyio

from nacre.agent.approval_log import ApprovalLog
from nacre.agent.run import RunRegistry
from nacre.agent.session_queue import SessionQueues
from nacre.agent.turn_request import SessionResolver
from nacre.errors import SessionError
from nacre.telemetry import current_trace

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from nacre.agent.run import AgentRun
    from nacre.agent.turn_context import ServiceContext
    from nacre.agent.turn_request import TurnRequest
    from nacre.config import SystemConfig

# For the `agent_end` hooks of turns that closing the service has ended.
_END_HOOKS_SECONDS: Final = 2.0
_CLOSED: Final = "the agent service is shutting down"
_CLOSED_WAITING: Final = f"{_CLOSED}; the run waited for an answer of a person or a client"


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
