"""Queues the messages of a session: one turn at a time; later messages steer, join or wait.

`steer` puts a message into the running turn, `followup` gives it a turn of its own afterwards,
`collect` joins all that came into one turn, after a moment of quiet. If the running turn has asked
the person a question, the next message is its answer and nothing else.
"""

from __future__ import annotations

import logging
import os
from collections import deque
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final

import anyio

from nacre.agent.run import AgentRun, RunResult
from nacre.agent.transcript import TurnEnd
from nacre.agent.turn import Turn
from nacre.agent.turn_context import open_turn_context
from nacre.errors import SessionError
from nacre.messages import TextPart, UserMessage

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from anyio.abc import TaskGroup

    from nacre.agent.run import RunRegistry
    from nacre.agent.turn_context import ServiceContext
    from nacre.agent.turn_request import ResolvedSession, TurnRequest
    from nacre.agent.turn_state import StoredTurn
    from nacre.config import AgentConfig, QueueConfig, QueueMode
    from nacre.trajectory import RunEvent


logger = logging.getLogger(__name__)

_RUN_ID_BYTES: Final = 12
_BROKEN: Final = RunResult(error="the run broke inside of Nacre", finish_reason="error")
_BROKEN_END: Final = TurnEnd(status="failed", error=_BROKEN.error)
_MAX_SHOWN_CHARACTERS: Final = 200
_MAX_SHOWN_MESSAGES: Final = 10

_DETACHED: Final = "the gateway stops; the turn before it continues in another process"


@dataclass(frozen=True, kw_only=True, slots=True)
class QueuedTurn:
    """A turn that has not started."""

    run: AgentRun
    request: TurnRequest
    continued: StoredTurn | None = None
    """Set if another process has begun it."""
    items: tuple[int, ...] = ()
    """The messages in the inbox of the session that it begins with."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _QueuedMessage:
    """A message in the queue; `run` is the turn that takes it."""

    mode: QueueMode
    run: AgentRun
    request: TurnRequest
    items: tuple[int, ...] = ()
    """Where the message is in the inbox of the session; empty if it is not there."""


class SessionQueue:
    """Runs one turn of a session at a time, and holds the messages for the next ones."""

    def __init__(
        self,
        first: QueuedTurn,
        config: QueueConfig,
        *,
        on_dropped: Callable[[AgentRun, str], None],
        discard: Callable[[Sequence[int]], None],
    ) -> None:
        """`on_dropped` ends the run of a dropped message, for the reason that it is given.
        `discard` deletes messages from the inbox that no turn is going to take."""
        self.active: AgentRun = first.run
        """The running turn, or the next one."""
        self._config = config
        self._on_dropped = on_dropped
        self.discard = discard
        self.begin_items: tuple[int, ...] = first.items
        """The messages in the inbox that the active turn begins with."""
        self._taken_items: list[int] = [] if first.continued is None else [*first.continued.items]
        self._last_taken: tuple[int, ...] = ()
        self._first: QueuedTurn | None = first
        self._items: deque[_QueuedMessage] = deque()
        self._active_request = first.request
        self._takes_steering = True
        self.is_detached = False
        """Whether another process continues the last turn."""
        self._waits_for_quiet = True
        self._last_arrival = 0.0
        self._dropped: deque[str] = deque(maxlen=_MAX_SHOWN_MESSAGES)
        self._dropped_count = 0
        self._change = anyio.Event()

    @property
    def queued_runs(self) -> list[AgentRun]:
        """The runs of turns that have not started."""
        waiting = [item.run for item in self._items if item.mode != "steer"]
        return list(dict.fromkeys(waiting))

    def is_in_inbox(self, run: AgentRun) -> bool:
        """Whether another process would find the messages of a turn that has not started."""
        return all(item.items for item in self._items if item.run is run)

    # Messages that arrive.

    def add(
        self,
        request: TurnRequest,
        mode: QueueMode,
        make_run: Callable[[], AgentRun],
        *,
        items: tuple[int, ...] = (),
    ) -> AgentRun:
        """Queue a message; returns the run that takes it. Raises SessionError if it is full.
        `items` is where the message is in the inbox."""
        if self._answers_question(request):
            self._taken_items += items
            return self.active
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
        self._items.append(_QueuedMessage(mode=mode, run=run, request=request, items=items))
        if mode == "steer":
            run.events.add("steered", {"text": _preview(request)})
        self._notify_change()
        return run

    def _answers_question(self, request: TurnRequest) -> bool:
        """Whether the running turn takes the message as the answer to its question. Options of the
        message do not matter: clients may send them with each request."""
        message, asked = request.user_message, self._active_request
        return (
            message is not None
            and bool(message.text.strip())
            and (request.sender, request.channel) == (asked.sender, asked.channel)
            and not self.active.abort_signal.is_aborted
            and self.active.pending_input is not None
            and self.active.input_requests.answer(message)
        )

    def _choose_mode(self, request: TurnRequest, mode: QueueMode) -> QueueMode:
        """A message gets a turn of its own if it has options of its own or another sender, or if
        the running turn is about to end."""
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
        """Put messages that their turn did not take into a turn of their own, before all others."""
        # Its history is the session's: the turn that did not take them is in it now.
        alone = replace(request, message=_join_messages(messages), history=None)
        items, self._last_taken = self._last_taken, ()
        self._taken_items = [it for it in self._taken_items if it not in items]
        self._items.appendleft(
            _QueuedMessage(
                mode="followup", run=self._announce_queued(run), request=alone, items=items
            )
        )

    # What turns take.

    @property
    def steered(self) -> list[UserMessage]:
        """The messages for the running turn that it has not taken."""
        waiting = [item.request.user_message for item in self._items if item.mode == "steer"]
        return [message for message in waiting if message is not None]

    @property
    def taken_items(self) -> list[int]:
        """The messages in the inbox that the active turn has taken since it began."""
        return [*self._taken_items]

    @property
    def items_of_turn(self) -> list[int]:
        """The same, and those that steer the turn and are not taken yet."""
        waiting = [number for item in self._items if item.mode == "steer" for number in item.items]
        return [*self._taken_items, *waiting]

    def take_steered(self) -> list[UserMessage]:
        """Take the messages for the running turn, in their order."""
        taken = [item for item in self._items if item.mode == "steer"]
        self._last_taken = tuple(number for item in taken for number in item.items)
        self._taken_items += self._last_taken
        self._items = deque(item for item in self._items if item.mode != "steer")
        messages = [item.request.user_message for item in taken]
        return self._add_drop_note([message for message in messages if message is not None])

    async def wait_for_steered(self) -> None:
        """Return when there are messages for the running turn and no more come for a moment."""
        while True:
            left = float("inf")
            if any(item.mode == "steer" for item in self._items):
                debounce = self._config.debounce_ms / 1000 if self._waits_for_quiet else 0
                left = self._last_arrival + debounce - anyio.current_time()
            if left <= 0:
                return
            with anyio.move_on_after(left):
                await self._change.wait()

    def pass_to_running(self) -> None:
        """Pass the queued messages to the running turn, which is going to continue in another
        process. Those that it cannot take stay in the queue."""
        passed: list[AgentRun] = []
        for item in list(self._items):
            if item.mode != "steer" and self._choose_mode(item.request, "steer") == "steer":
                self._items.remove(item)
                self._items.append(replace(item, mode="steer", run=self.active))
                self.active.events.add("steered", {"text": _preview(item.request)})
                passed.append(item.run)
        for run in dict.fromkeys(passed):
            if run not in self.queued_runs:
                self._on_dropped(run, f"the message was passed to the run {self.active.id}")

    def put_back(self, messages: Sequence[UserMessage]) -> None:
        """Put back messages that the running turn could not take; they run after it."""
        for message in reversed(messages):
            request = replace(self._active_request, message=message, history=None)
            self._items.appendleft(_QueuedMessage(mode="steer", run=self.active, request=request))

    def stop_steering(self) -> None:
        """The running turn takes no more messages; later ones get a turn of their own."""
        self._takes_steering = False

    async def next_turn(self) -> QueuedTurn | None:
        """Wait for the turn that may start now; None when the queue is empty."""
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
        self.begin_items, self._taken_items, self._last_taken = turn.items, [], ()
        self._takes_steering = True
        return turn

    def hurry(self) -> None:
        """Start collected messages without waiting for quiet: no more will come."""
        self._waits_for_quiet = False
        self._notify_change()

    def remove(self, run: AgentRun) -> None:
        """Remove a turn that has not started."""
        self.discard([it for item in self._items if item.run is run for it in item.items])
        self._items = deque(item for item in self._items if item.run is not run)
        self._notify_change()

    def _take_next(self) -> QueuedTurn:
        first = self._items[0]
        mine = [item for item in self._items if item.run is first.run]
        self._items = deque(item for item in self._items if item.run is not first.run)
        messages = [item.request.user_message for item in mine]
        joined = self._add_drop_note([message for message in messages if message is not None])
        items = tuple(number for item in mine for number in item.items)
        if not joined:
            return QueuedTurn(run=first.run, request=first.request, items=items)
        # The messages that joined it have no options of their own.
        return QueuedTurn(
            run=first.run,
            request=replace(first.request, message=_join_messages(joined)),
            items=items,
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
        self.discard(dropped.items)
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
        """Add a note about messages that were dropped before them."""
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


class SessionQueues:
    """The queues of a service's sessions. A session has one while a turn of it runs or waits."""

    def __init__(self, context: ServiceContext, runs: RunRegistry, tasks: TaskGroup) -> None:
        self.context = context
        """For new turns; turns that have begun keep theirs."""
        self._runs = runs
        self._tasks = tasks
        self._queues: dict[str, SessionQueue] = {}
        self._closing_reason = ""
        self._idle = anyio.Event()
        self._may_begin = anyio.Event()
        self._may_begin.set()
        self.discard_items: Callable[[Sequence[int]], None] = _ignore_items
        """Deletes messages from the inboxes of sessions; set if there are any."""

    def take(
        self,
        request: TurnRequest,
        session: ResolvedSession,
        *,
        run_id: str = "",
        items: tuple[int, ...] = (),
        seen: Sequence[RunEvent] | None = None,
    ) -> AgentRun:
        """Start a turn, or pass the message to the running one; returns the run that takes it.

        `run_id` is for a new run, and `items` where the message is in the inbox of the session.
        `seen` are the events that readers may have, if another process was to begin the run.
        """
        new_run = partial(self._new_run, request, session, run_id=run_id, seen=seen)
        queue = self._queues.get(session.session_id)
        if queue is None:
            return self._open_queue(request, session, new_run, items=items)
        mode = request.queue_mode or session.queue_mode or self.context.config.queue.mode
        make_run = partial(self._queued_run, queue, new_run)
        return queue.add(request, mode, make_run, items=items)

    def has_queue(self, session_id: str) -> bool:
        """Whether a turn of the session runs or waits."""
        return session_id in self._queues

    def drop(self, session_id: str) -> None:
        """Stop the turns of a session that another process serves now."""
        queue = self._queues.pop(session_id, None)
        if queue is None:
            return
        queue.discard = _ignore_items
        for run in queue.queued_runs:
            self._leave(run, queue)
        queue.active.request_drop()
        self._note_idle()

    def leave_queued(self) -> None:
        """Leave the turns that have not begun to other processes, if they are in an inbox."""
        for queue in self._queues.values():
            queue.discard = _ignore_items
            for run in queue.queued_runs:
                if queue.is_in_inbox(run):
                    self._leave(run, queue)

    def _leave(self, run: AgentRun, queue: SessionQueue) -> None:
        run.begin_detach()
        queue.remove(run)
        run.end_detached()
        self._runs.remove(run)

    def continue_turn(self, stored: StoredTurn, session: ResolvedSession) -> AgentRun:
        """Continue a turn that another process has begun."""
        run = self._new_run(stored.request, session, run_id=stored.run_id)
        run.restore(
            stored.events,
            last_sequence=stored.last_sequence,
            sent=stored.sent,
            media=stored.media,
        )
        self._runs.add(run)
        self._start_queue(QueuedTurn(run=run, request=stored.request, continued=stored), session)
        return run

    @contextmanager
    def hold_turns(self) -> Generator[None]:
        """Turns that would begin during the block begin after it."""
        self._may_begin = anyio.Event()
        try:
            yield
        finally:
            self._may_begin.set()

    def active_run(self, session_id: str) -> AgentRun | None:
        """The turn that runs in the session, or is about to."""
        queue = self._queues.get(session_id)
        return None if queue is None or queue.active.has_ended else queue.active

    def queued_runs(self, session_id: str) -> list[AgentRun]:
        """The turns of the session that wait for the running one."""
        queue = self._queues.get(session_id)
        return [] if queue is None else queue.queued_runs

    async def stop(self, session_id: str, reason: str) -> list[AgentRun]:
        """Abort the running turn of a session and the queued ones, and wait for their end."""
        active = self.active_run(session_id)
        # The queued ones first, or the next one would begin.
        stopped = [*self.queued_runs(session_id), *([] if active is None else [active])]
        for run in stopped:
            run.request_abort(reason)
        for run in stopped:
            await run.wait()
        return stopped[::-1]

    def hurry(self) -> None:
        """Start collected messages now: no more will come."""
        for queue in self._queues.values():
            queue.hurry()

    def abort_all(self, reason: str) -> None:
        """Abort the running turns and the queued ones."""
        self._closing_reason = reason
        for queue in list(self._queues.values()):
            queue.active.request_abort(reason)

    async def until_idle(self) -> None:
        while self._queues:
            await self._idle.wait()

    # The turns of a session.

    def _open_queue(
        self,
        request: TurnRequest,
        session: ResolvedSession,
        new_run: Callable[[], AgentRun],
        *,
        items: tuple[int, ...],
    ) -> AgentRun:
        most = self.context.config.gateway.max_concurrent_runs
        if len(self._queues) >= most:
            raise SessionError(
                f"{len(self._queues)} runs are going on; `gateway.maxConcurrentRuns` is {most}",
                code="too_many",
            )
        run = new_run()
        self._runs.add(run)
        self._start_queue(QueuedTurn(run=run, request=request, items=items), session)
        return run

    def _start_queue(self, first: QueuedTurn, session: ResolvedSession) -> None:
        queue = SessionQueue(
            first,
            self.context.config.queue,
            on_dropped=self._end_unstarted,
            discard=self.discard_items,
        )
        self._queues[session.session_id] = queue
        self._tasks.start_soon(self._serve, queue, session)

    async def _serve(self, queue: SessionQueue, session: ResolvedSession) -> None:
        lost = ""
        try:
            while (queued := await queue.next_turn()) is not None:
                await self._run_queued(queued, queue, session)
                # The next turn must not run before the one that another process continues.
                queue.is_detached |= queued.run.is_detached
                if self._closing_reason and _is_store_failure(queued.run):
                    # Trying every turn would make closing wait for the store many times.
                    lost = f"{self._closing_reason}, and the store fails: the message is not kept"
                    break
        finally:
            if self._queues.get(session.session_id) is queue:
                del self._queues[session.session_id]
            cut_off = lost or self._closing_reason or "the turn before it was cut off"
            for run in queue.queued_runs:
                queue.remove(run)
                self._end_unstarted(run, cut_off)
            self._note_idle()

    def _note_idle(self) -> None:
        if not self._queues:
            self._idle.set()
            self._idle = anyio.Event()

    async def _run_queued(
        self, queued: QueuedTurn, queue: SessionQueue, session: ResolvedSession
    ) -> None:
        run = queued.run
        if run.has_ended:
            return
        if self._closing_reason or queue.is_detached:
            run.request_abort(self._closing_reason or _DETACHED)
        with run.abort_signal.cancelling():
            await self._may_begin.wait()
        try:
            # As it is now: the session was resolved for the first of these turns.
            agent = self.context.config.agents.agent(session.agent.id)
        except SessionError as error:
            self._end_unstarted(run, f"the configuration changed while the turn waited: {error}")
            return
        try:
            await self._run_turn(queued, queue, session, agent)
        except Exception:
            # One turn must not end the turns of all other sessions.
            logger.exception("the turn %s broke", run.id)
            if run.is_stored:
                self.context.failed_writes.add(run.id, _BROKEN_END)
        finally:
            if not run.has_ended:
                run.end("failed", _BROKEN)
            if run.is_detached:
                # Another process has it.
                self._runs.remove(run)
            else:
                self._runs.note_ended(run)

    async def _run_turn(
        self, queued: QueuedTurn, queue: SessionQueue, session: ResolvedSession, agent: AgentConfig
    ) -> None:
        continue_as = partial(self._continue_as, queued.request, queue, session)
        with open_turn_context(self.context, queued, queue, agent) as context:
            await Turn(context, continue_as=continue_as).run()

    def _continue_as(
        self,
        request: TurnRequest,
        queue: SessionQueue,
        session: ResolvedSession,
        messages: list[UserMessage],
    ) -> str:
        run = self._queued_run(queue, partial(self._new_run, request, session))
        queue.put_first(messages, request, run)
        return run.id

    # Their runs.

    def _new_run(
        self,
        request: TurnRequest,
        session: ResolvedSession,
        *,
        run_id: str = "",
        seen: Sequence[RunEvent] | None = None,
    ) -> AgentRun:
        run = AgentRun(
            id=run_id or new_run_id(),
            session_id=session.session_id,
            agent_id=session.agent.id,
            session_key=session.session_key,
            is_stored=session.is_stored,
            command=request.action,
            store=self.context.store,
        )
        if request.client_tools:
            # Here, so that the caller learns what is wrong with a tool.
            run.client_calls.as_tools(request.client_tools)
        if seen is not None:
            run.events.restore(seen, last=seen[-1].sequence if seen else -1)
        return run

    def _queued_run(self, queue: SessionQueue, new_run: Callable[[], AgentRun]) -> AgentRun:
        run = new_run()
        self._runs.add(run)
        run.abort_signal.on_abort(partial(self._end_if_queued, run, queue))
        return run

    def _end_if_queued(self, run: AgentRun, queue: SessionQueue) -> None:
        """End the run of a queued turn that is aborted; one that has begun ends itself."""
        if run.state == "queued" and run is not queue.active:
            queue.remove(run)
            self._end_unstarted(run, run.abort_signal.reason)

    def _end_unstarted(self, run: AgentRun, reason: str) -> None:
        run.end("aborted", RunResult(error=reason, finish_reason="aborted"))
        self._runs.note_ended(run)


def _ignore_items(_numbers: Sequence[int]) -> None:
    pass


def new_run_id() -> str:
    return f"run_{os.urandom(_RUN_ID_BYTES).hex()}"


def _is_store_failure(run: AgentRun) -> bool:
    return run.result is not None and run.result.error_code == "storage_failed"
