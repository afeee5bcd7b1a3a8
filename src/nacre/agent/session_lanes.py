"""Turns of all sessions: side by side, but one after the other within a session."""

from __future__ import annotations

import logging
import os
from functools import partial
from typing import TYPE_CHECKING, Final

import anyio

from nacre.agent.run import AgentRun, RunResult
from nacre.agent.session_turns import TurnEnd
from nacre.agent.steering import QueuedTurn, SessionQueue
from nacre.agent.turn import Turn
from nacre.agent.turn_parts import open_turn_context
from nacre.code_mode.activation import code_mode_config_for
from nacre.errors import SessionError
from nacre.run_context import RunContext

if TYPE_CHECKING:
    from anyio.abc import TaskGroup

    from nacre.agent.known_runs import RunRegistry
    from nacre.agent.session_places import ResolvedSession
    from nacre.agent.turn_parts import ServiceContext
    from nacre.agent.turn_request import TurnRequest
    from nacre.config.agents import AgentConfig
    from nacre.messages import UserMessage

logger = logging.getLogger(__name__)

_RUN_ID_BYTES: Final = 12
_BROKEN: Final = RunResult(error="the run broke inside of Nacre", finish_reason="error")
_BROKEN_END: Final = TurnEnd(status="failed", error=_BROKEN.error)


class SessionQueues:
    """Of one service. A session has a lane as long as one of its turns runs or waits."""

    def __init__(self, parts: ServiceContext, runs: RunRegistry, tasks: TaskGroup) -> None:
        self.parts = parts
        """For the turns to come; those that have begun keep theirs."""
        self._runs = runs
        self._tasks = tasks
        self._queues: dict[str, SessionQueue] = {}
        self._closing_reason = ""
        self._idle = anyio.Event()

    def take(self, request: TurnRequest, place: ResolvedSession) -> AgentRun:
        """Begin a turn, or hand the message to the one that runs; returns the run that takes it."""
        lane = self._queues.get(place.session_id)
        if lane is None:
            return self._open_queue(request, place)
        mode = request.queue_mode or self.parts.config.queue.mode
        return lane.add(request, mode, partial(self._queued_run, request, place, lane))

    def hurry(self) -> None:
        """No more messages will come: those that wait for others to join them begin now."""
        for lane in self._queues.values():
            lane.hurry()

    def abort_all(self, reason: str) -> None:
        """End what runs, and what would begin after it."""
        self._closing_reason = reason
        for lane in list(self._queues.values()):
            lane.active.request_abort(reason)

    async def until_idle(self) -> None:
        while self._queues:
            await self._idle.wait()

    # The turns of a session.

    def _open_queue(self, request: TurnRequest, place: ResolvedSession) -> AgentRun:
        most = self.parts.config.gateway.max_concurrent_runs
        if len(self._queues) >= most:
            raise SessionError(
                f"{len(self._queues)} runs are going on; `gateway.maxConcurrentRuns` is {most}",
                code="too_many",
            )
        run = self._new_run(request, place)
        lane = SessionQueue(
            QueuedTurn(run=run, request=request),
            self.parts.config.queue,
            on_dropped=self._end_unstarted,
        )
        self._queues[place.session_id] = lane
        self._tasks.start_soon(self._serve, lane, place)
        return run

    async def _serve(self, lane: SessionQueue, place: ResolvedSession) -> None:
        lost = ""
        try:
            while (queued := await lane.next_turn()) is not None:
                await self._run_queued(queued, lane, place)
                if self._closing_reason and _is_store_failure(queued.run):
                    # Were each to be tried, closing would wait for a silent store many times.
                    lost = f"{self._closing_reason}, and the store fails: the message is not kept"
                    break
        finally:
            del self._queues[place.session_id]
            cut_off = lost or self._closing_reason or "the turn before it was cut off"
            for run in lane.queued_runs:
                self._end_unstarted(run, cut_off)
            if not self._queues:
                self._idle.set()
                self._idle = anyio.Event()

    async def _run_queued(
        self, queued: QueuedTurn, lane: SessionQueue, place: ResolvedSession
    ) -> None:
        run = queued.run
        if run.has_ended:
            return
        if self._closing_reason:
            run.request_abort(self._closing_reason)
        try:
            # As it is now: the place was found when the first of these turns was asked for.
            agent = self.parts.config.agents.agent(place.agent.id)
        except SessionError as error:
            self._end_unstarted(run, f"the configuration changed while the turn waited: {error}")
            return
        try:
            await self._run_turn(queued, lane, place, agent)
        except Exception:
            # One turn must not end the turns of all other sessions.
            logger.exception("the turn %s broke", run.id)
            if run.is_stored:
                self.parts.unkept.add(run.id, _BROKEN_END)
        finally:
            if not run.has_ended:
                run.end("failed", _BROKEN)
            self._runs.note_ended(run)

    async def _run_turn(
        self, queued: QueuedTurn, lane: SessionQueue, place: ResolvedSession, agent: AgentConfig
    ) -> None:
        parts, context = self.parts, _make_run_context(queued, agent)
        code_mode = code_mode_config_for(parts.config.document, agent.id)
        queued.run.client_calls.expiry_seconds = code_mode.snapshot_ttl_seconds
        with open_turn_context(parts, agent, context, is_kept=queued.run.is_stored) as held:
            turn = Turn(
                queued,
                context=context,
                held=held,
                parts=parts,
                lane=lane,
                continue_as=partial(self._continue_as, queued.request, lane, place),
            )
            await turn.run()

    def _continue_as(
        self,
        request: TurnRequest,
        lane: SessionQueue,
        place: ResolvedSession,
        messages: list[UserMessage],
    ) -> str:
        run = self._queued_run(request, place, lane)
        lane.put_first(messages, request, run)
        return run.id

    # Their runs.

    def _new_run(self, request: TurnRequest, place: ResolvedSession) -> AgentRun:
        run = AgentRun(
            id=f"run_{os.urandom(_RUN_ID_BYTES).hex()}",
            session_id=place.session_id,
            agent_id=place.agent.id,
            session_key=place.session_key,
            is_stored=place.is_stored,
        )
        # Here, so that whoever asks for a turn is told what is wrong with a tool.
        run.client_calls.as_tools(request.client_tools)
        self._runs.add(run)
        return run

    def _queued_run(
        self, request: TurnRequest, place: ResolvedSession, lane: SessionQueue
    ) -> AgentRun:
        run = self._new_run(request, place)
        run.abort_signal.on_abort(partial(self._end_if_queued, run, lane))
        return run

    def _end_if_queued(self, run: AgentRun, lane: SessionQueue) -> None:
        """Somebody aborts a turn that waits; one that has begun ends itself."""
        if run.state == "queued" and run is not lane.active:
            lane.remove(run)
            self._end_unstarted(run, run.abort_signal.reason)

    def _end_unstarted(self, run: AgentRun, reason: str) -> None:
        run.end("aborted", RunResult(error=reason, finish_reason="aborted"))
        self._runs.note_ended(run)


def _is_store_failure(run: AgentRun) -> bool:
    return run.result is not None and run.result.error_code == "storage_failed"


def _make_run_context(queued: QueuedTurn, agent: AgentConfig) -> RunContext:
    run, request = queued.run, queued.request
    return RunContext(
        agent_id=agent.id,
        session_id=run.session_id,
        session_key=run.session_key,
        run_id=run.id,
        sender=request.sender,
        channel=request.channel,
    )
