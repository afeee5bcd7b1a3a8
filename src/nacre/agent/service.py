"""The door to agents: turns are started, followed, steered and aborted here."""

from __future__ import annotations

import logging
import os
from collections import OrderedDict
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final, Self

import anyio

from nacre.agent.approval_log import ApprovalLog
from nacre.agent.run import AgentRun, RunResult
from nacre.agent.session_places import SessionPlaces
from nacre.agent.session_turns import TurnEnd
from nacre.agent.steering import QueuedTurn, SessionLane
from nacre.agent.surface_choice import SurfaceChoice
from nacre.agent.turn import Turn
from nacre.agent.turn_parts import TurnParts
from nacre.agent.unkept_turns import UnkeptTurns
from nacre.code_mode.activation import code_mode_config_for
from nacre.errors import SessionError
from nacre.hooks import HookRunner
from nacre.run_context import AbortController
from nacre.telemetry import current_trace

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from anyio.abc import TaskGroup

    from nacre.agent.model_step import ProviderSource
    from nacre.agent.session_places import SessionPlace
    from nacre.agent.turn_parts import ServersInUse, ToolSource
    from nacre.agent.turn_request import TurnRequest
    from nacre.code_mode import Runtime
    from nacre.config.system import SystemConfig
    from nacre.hooks import Hooks
    from nacre.messages import UserMessage
    from nacre.storage import Store
    from nacre.tools import ApprovalQueue

logger = logging.getLogger(__name__)

_RUN_ID_BYTES: Final = 12
_MOST_ENDED_RUNS: Final = 256
_MOST_ENDED_BYTES: Final = 64 * 1024 * 1024
# For hooks that are told of turns that closing the service has ended.
_FAREWELL_SECONDS: Final = 2.0
_CLOSED: Final = "the agent service is shutting down"
_CLOSED_WAITING: Final = f"{_CLOSED}; the run waited for an answer of a person or a client"
_BROKEN: Final = RunResult(error="the run broke inside of Nacre", finish_reason="error")
_BROKEN_END: Final = TurnEnd(status="failed", error=_BROKEN.error)


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
        providers: ProviderSource,
        tools: ToolSource,
        hooks: Hooks,
        approvals: ApprovalQueue,
        servers: ServersInUse,
    ) -> None:
        hook_runner = HookRunner(hooks)
        self._farewell = AbortController()
        self._config = config
        self._store = store
        self._approvals = approvals
        self._providers = providers
        self._places = SessionPlaces(config.agents, store)
        self._unkept = UnkeptTurns(store)
        self._parts = TurnParts(
            config=config,
            store=store,
            unkept=self._unkept,
            providers=providers,
            tools=tools,
            servers=servers,
            surfaces=SurfaceChoice(
                runtime=runtime, hooks=hooks, hook_runner=hook_runner, approvals=approvals
            ),
            hooks=hook_runner,
            farewell=self._farewell.signal,
        )
        self._lanes: dict[str, SessionLane] = {}
        self._live: dict[str, AgentRun] = {}
        self._ended: OrderedDict[str, AgentRun] = OrderedDict()
        self._ended_bytes = 0
        self._tasks: TaskGroup | None = None
        self._log: ApprovalLog | None = None
        self._closing_reason = ""
        self._is_closed = True
        self._idle = anyio.Event()
        self._watchers: dict[Callable[[AgentRun], None], None] = {}

    async def __aenter__(self) -> Self:
        self._tasks = await anyio.create_task_group().__aenter__()
        self._log = ApprovalLog(self._approvals, store=self._store, run_of=self.run)
        self._tasks.start_soon(self._log.write)
        self._tasks.start_soon(self._unkept.write)
        self._is_closed = False
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._tasks is not None
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
        with anyio.move_on_after(grace_seconds):
            await self._until_idle_or_waiting()
        self._closing_reason = _CLOSED
        for lane in list(self._lanes.values()):
            lane.active.request_abort(_CLOSED)
        with anyio.move_on_after(_FAREWELL_SECONDS):
            await self._until_idle()
        self._farewell.abort(_CLOSED)
        await self._until_idle()
        self._unkept.close()
        if self._log is not None:
            self._log.close()

    # What callers do.

    async def start(self, request: TurnRequest) -> AgentRun:
        """Begin a turn, or hand the message to the one that runs; returns the run that takes it.

        Raises SessionError (`not_found`, `invalid`, `too_many`, and `busy` where the queue is
        full), ConfigError for a model that is not there, ToolDefinitionError for a client tool.
        """
        self._refuse_if_closed()
        if request.model:
            # First, so that no session is begun for a turn that cannot be.
            self._providers.get(request.model)
        place = await self._places.place_of(request)
        self._refuse_if_closed()
        self._providers.get(request.model or place.agent.model)
        if request.trace is None:
            # Now: the task that takes the turn may be one that an earlier caller began.
            request = replace(request, trace=current_trace())
        lane = self._lanes.get(place.session_id)
        if lane is None:
            return self._begin_lane(request, place)
        mode = request.queue_mode or self._config.queue.mode
        return lane.add(request, mode, partial(self._queued_run, request, place, lane))

    def run(self, run_id: str) -> AgentRun | None:
        """A run that is live, or has ended lately."""
        return self._live.get(run_id) or self._ended.get(run_id)

    def runs(self, session_id: str | None = None) -> list[AgentRun]:
        """Those that ended lately, and those that are live; oldest first."""
        known = [*self._ended.values(), *self._live.values()]
        return [run for run in known if session_id in (None, run.session_id)]

    async def abort(self, run_id: str, reason: str = "the run was aborted") -> bool:
        """End a run, and return when it has ended; False if there is none that could be ended."""
        run = self._live.get(run_id)
        return False if run is None else await run.abort(reason)

    def watch_runs(self, watcher: Callable[[AgentRun], None]) -> Callable[[], None]:
        """Have every run told as it is made; call what is returned to stop."""
        self._watchers[watcher] = None
        return lambda: self._watchers.pop(watcher, None)

    def configure(self, config: SystemConfig) -> None:
        """Use another configuration for the turns to come; those that have begun keep theirs."""
        self._config = config
        self._places = SessionPlaces(config.agents, self._store)
        self._parts = replace(self._parts, config=config)

    # The turns of a session.

    def _begin_lane(self, request: TurnRequest, place: SessionPlace) -> AgentRun:
        most = self._config.gateway.max_concurrent_runs
        if len(self._lanes) >= most:
            raise SessionError(
                f"{len(self._lanes)} runs are going on; `gateway.maxConcurrentRuns` is {most}",
                code="too_many",
            )
        run = self._new_run(request, place)
        lane = SessionLane(
            QueuedTurn(run=run, request=request),
            self._config.queue,
            on_dropped=self._end_unstarted,
        )
        self._lanes[place.session_id] = lane
        assert self._tasks is not None
        self._tasks.start_soon(self._serve, lane, place)
        return run

    async def _serve(self, lane: SessionLane, place: SessionPlace) -> None:
        try:
            while (queued := await lane.next_turn()) is not None:
                await self._serve_one(queued, lane, place)
        finally:
            del self._lanes[place.session_id]
            for run in lane.queued_runs:
                self._end_unstarted(run, _CLOSED)
            if not self._lanes:
                self._idle.set()
                self._idle = anyio.Event()

    async def _serve_one(self, queued: QueuedTurn, lane: SessionLane, place: SessionPlace) -> None:
        if queued.run.has_ended:
            return
        if self._closing_reason:
            queued.run.request_abort(self._closing_reason)
        turn = Turn(
            queued,
            agent=place.agent,
            parts=self._parts,
            lane=lane,
            continue_as=partial(self._continue_as, queued.request, lane, place),
        )
        try:
            await turn.run()
        except Exception:
            # One turn must not end the turns of all other sessions.
            logger.exception("the turn %s broke", queued.run.id)
            if queued.run.is_stored:
                self._unkept.add(queued.run.id, _BROKEN_END)
        finally:
            if not queued.run.has_ended:
                queued.run.end("failed", _BROKEN)
            self._note_ended(queued.run)

    def _continue_as(
        self,
        request: TurnRequest,
        lane: SessionLane,
        place: SessionPlace,
        messages: list[UserMessage],
    ) -> str:
        run = self._queued_run(request, place, lane)
        lane.put_first(messages, request, run)
        return run.id

    # Runs.

    def _new_run(self, request: TurnRequest, place: SessionPlace) -> AgentRun:
        code_mode = code_mode_config_for(self._config.document, place.agent.id)
        run = AgentRun(
            id=f"run_{os.urandom(_RUN_ID_BYTES).hex()}",
            session_id=place.session_id,
            agent_id=place.agent.id,
            session_key=place.session_key,
            is_stored=place.is_stored,
            client_call_seconds=code_mode.snapshot_ttl_seconds,
        )
        # Here, so that whoever asks for a turn is told what is wrong with a tool.
        run.client_calls.as_tools(request.client_tools)
        self._live[run.id] = run
        for watcher in list(self._watchers):
            watcher(run)
        return run

    def _queued_run(self, request: TurnRequest, place: SessionPlace, lane: SessionLane) -> AgentRun:
        run = self._new_run(request, place)
        run.abort_signal.on_abort(partial(self._end_unwanted, run, lane))
        return run

    def _end_unwanted(self, run: AgentRun, lane: SessionLane) -> None:
        """Somebody aborts a turn that waits; one that has begun ends itself."""
        if run.state == "queued" and run is not lane.active:
            lane.remove(run)
            self._end_unstarted(run, run.abort_signal.reason)

    def _end_unstarted(self, run: AgentRun, reason: str) -> None:
        run.end("aborted", RunResult(error=reason, finish_reason="aborted"))
        self._note_ended(run)

    def _note_ended(self, run: AgentRun) -> None:
        self._live.pop(run.id, None)
        self._ended[run.id] = run
        self._ended_bytes += run.bytes_held
        while len(self._ended) > _MOST_ENDED_RUNS or (
            self._ended_bytes > _MOST_ENDED_BYTES and len(self._ended) > 1
        ):
            self._ended_bytes -= self._ended.popitem(last=False)[1].bytes_held

    async def _until_idle_or_waiting(self) -> None:
        """Runs that work come to their end; one that begins to wait is aborted."""
        async with anyio.create_task_group() as tasks:

            def watch(run: AgentRun) -> None:
                tasks.start_soon(_abort_when_waiting, run)

            stop_watching = self.watch_runs(watch)
            try:
                for run in list(self._live.values()):
                    watch(run)
                await self._until_idle()
                tasks.cancel_scope.cancel()
            finally:
                stop_watching()

    async def _until_idle(self) -> None:
        while self._lanes:
            await self._idle.wait()

    def _refuse_if_closed(self) -> None:
        if self._is_closed:
            raise SessionError(f"{_CLOSED}, or was never opened", code="ended")


async def _abort_when_waiting(run: AgentRun) -> None:
    if await run.waiting_or_ended() == "waiting":
        run.request_abort(_CLOSED_WAITING)
