"""Queues the messages of a session: one turn at a time; later messages steer, join or wait.

`steer` puts a message into the running turn, `followup` gives it a turn of its own afterwards,
`collect` joins all that came into one turn, after a moment of quiet.
"""

from __future__ import annotations

import logging
import os
from collections import deque
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final

import anyio

from nacre.agent.run import AgentRun, RunResult
from nacre.agent.transcript import TurnEnd
from nacre.agent.turn import Turn
from nacre.agent.turn_context import open_turn_context
from nacre.code_mode.run_config import code_mode_config_for
from nacre.errors import SessionError
from nacre.messages import TextPart, UserMessage
from nacre.run_context import RunContext

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from anyio.abc import TaskGroup

    from nacre.agent.run import RunRegistry
    from nacre.agent.session_resolution import ResolvedSession
    from nacre.agent.turn_context import ServiceContext
    from nacre.agent.turn_request import TurnRequest
    from nacre.config.agents import AgentConfig
    from nacre.config.queue import QueueConfig, QueueMode


_MAX_SHOWN_CHARACTERS: Final = 200
_MAX_SHOWN_MESSAGES: Final = 10


@dataclass(frozen=True, kw_only=True, slots=True)
class QueuedTurn:
    """A turn that has not begun."""

    run: AgentRun
    request: TurnRequest


@dataclass(frozen=True, kw_only=True, slots=True)
class _QueuedMessage:
    """A message that waits: `run` is the turn that it goes into."""

    mode: QueueMode
    run: AgentRun
    request: TurnRequest


class SessionQueue:
    """One turn of a session at a time, and the messages that wait for theirs."""

    def __init__(
        self,
        first: QueuedTurn,
        config: QueueConfig,
        *,
        on_dropped: Callable[[AgentRun, str], None],
    ) -> None:
        """`on_dropped` ends the run of a message that had to make room, and is told why."""
        self.active: AgentRun = first.run
        """The turn that runs, or is the next to run."""
        self._config = config
        self._on_dropped = on_dropped
        self._first: QueuedTurn | None = first
        self._items: deque[_QueuedMessage] = deque()
        self._active_request = first.request
        self._takes_steering = True
        self._waits_for_quiet = True
        self._last_arrival = 0.0
        self._dropped: deque[str] = deque(maxlen=_MAX_SHOWN_MESSAGES)
        self._dropped_count = 0
        self._change = anyio.Event()

    @property
    def queued_runs(self) -> list[AgentRun]:
        """The turns that wait for theirs."""
        waiting = [item.run for item in self._items if item.mode != "steer"]
        return list(dict.fromkeys(waiting))

    # Messages that arrive.

    def add(
        self, request: TurnRequest, mode: QueueMode, make_run: Callable[[], AgentRun]
    ) -> AgentRun:
        """The run that takes the message; raises SessionError where the queue is full."""
        mode = self._choose_mode(request, mode)
        self._make_room()
        self._last_arrival = anyio.current_time()
        match mode:
            case "steer":
                run = self.active
            case "followup":
                run = self._announce_queued(make_run())
            case "collect":
                run = self._find_collecting_run() or self._announce_queued(make_run())
        self._items.append(_QueuedMessage(mode=mode, run=run, request=request))
        if mode == "steer":
            run.events.add("steered", {"text": _preview(request)})
        self._notify_change()
        return run

    def _choose_mode(self, request: TurnRequest, mode: QueueMode) -> QueueMode:
        """A message that brings more than words, or is somebody else's, has a turn of its own; so
        has one that comes when the running turn ends anyway."""
        if mode == "steer":
            is_ending = not self._takes_steering or self.active.abort_signal.is_aborted
            return "followup" if is_ending or not request.can_join(self._active_request) else mode
        collected = next((item for item in self._items if item.mode == "collect"), None)
        if mode == "collect" and not request.can_join(
            self._active_request if collected is None else collected.request
        ):
            return "followup"
        return mode

    def put_first(
        self, messages: Sequence[UserMessage], request: TurnRequest, run: AgentRun
    ) -> None:
        """Messages that no turn took become a turn of their own, before all others."""
        # Its history is the session's: the turn that did not take them is in it now.
        alone = replace(request, message=_join_messages(messages), history=None)
        self._items.appendleft(
            _QueuedMessage(mode="followup", run=self._announce_queued(run), request=alone)
        )

    # What turns take.

    def take_steered(self) -> list[UserMessage]:
        """Messages for the running turn, in their order."""
        taken = [item for item in self._items if item.mode == "steer"]
        self._items = deque(item for item in self._items if item.mode != "steer")
        messages = [item.request.user_message for item in taken]
        return self._add_drop_note([message for message in messages if message is not None])

    def stop_steering(self) -> None:
        """The running turn takes no more; what comes now has a turn of its own."""
        self._takes_steering = False

    async def next_turn(self) -> QueuedTurn | None:
        """The turn that may begin now; None when nothing waits."""
        if self._first is not None:
            turn, self._first = self._first, None
            return turn
        while self._waits_for_quiet and self._items and self._items[0].mode == "collect":
            quiet = self._last_arrival + self._config.debounce_ms / 1000 - anyio.current_time()
            if quiet <= 0:
                break
            with anyio.move_on_after(quiet):
                await self._change.wait()
        if not self._items:
            return None
        turn = self._take_next()
        self.active, self._active_request = turn.run, turn.request
        self._takes_steering = True
        return turn

    def hurry(self) -> None:
        """Nothing more will come: messages that are collected need not wait for quiet."""
        self._waits_for_quiet = False
        self._notify_change()

    def remove(self, run: AgentRun) -> None:
        """A turn that has not begun is not wanted any more."""
        self._items = deque(item for item in self._items if item.run is not run)
        self._notify_change()

    def _take_next(self) -> QueuedTurn:
        first = self._items[0]
        mine = [item for item in self._items if item.run is first.run]
        self._items = deque(item for item in self._items if item.run is not first.run)
        messages = [item.request.user_message for item in mine]
        joined = self._add_drop_note([message for message in messages if message is not None])
        if not joined:
            return QueuedTurn(run=first.run, request=first.request)
        # Those that joined it bring nothing that the first has not.
        return QueuedTurn(
            run=first.run, request=replace(first.request, message=_join_messages(joined))
        )

    # A queue that is full.

    def _make_room(self) -> None:
        if len(self._items) < self._config.cap:
            return
        if self._config.drop == "new":
            raise SessionError(
                f"{len(self._items)} messages wait already; `messages.queue.cap` is "
                f"{self._config.cap}, and the message was not taken",
                code="busy",
            )
        dropped = self._items.popleft()
        if self._config.drop == "summarize":
            self._dropped.append(_preview(dropped.request))
            self._dropped_count += 1
        reason = (
            f"the message was dropped for newer ones; `messages.queue.cap` is {self._config.cap}"
        )
        is_shared = any(item.run is dropped.run for item in self._items)
        if dropped.mode == "steer" or is_shared:
            dropped.run.events.add(
                "steered", {"text": _preview(dropped.request), "dropped": reason}
            )
        else:
            self._on_dropped(dropped.run, reason)

    def _add_drop_note(self, messages: list[UserMessage]) -> list[UserMessage]:
        """With a word about those that were dropped before them."""
        if not messages or not self._dropped:
            return messages
        shown = "\n".join(f"- {text}" for text in self._dropped)
        note = TextPart(
            text=f"[{self._dropped_count} earlier messages were dropped; the last began:\n{shown}]"
        )
        self._dropped.clear()
        self._dropped_count = 0
        return [UserMessage(parts=(note, *messages[0].parts)), *messages[1:]]

    def _find_collecting_run(self) -> AgentRun | None:
        return next((item.run for item in self._items if item.mode == "collect"), None)

    def _announce_queued(self, run: AgentRun) -> AgentRun:
        run.events.add("run.queued", {"after": self.active.id})
        return run

    def _notify_change(self) -> None:
        change, self._change = self._change, anyio.Event()
        change.set()


def _join_messages(messages: Sequence[UserMessage]) -> UserMessage:
    return UserMessage(parts=tuple(part for message in messages for part in message.parts))


def _preview(request: TurnRequest) -> str:
    message = request.user_message
    text = message.text if message else ""
    return text if len(text) <= _MAX_SHOWN_CHARACTERS else f"{text[:_MAX_SHOWN_CHARACTERS]}…"


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
