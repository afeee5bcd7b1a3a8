"""What becomes of messages that arrive while a turn of their session runs.

`steer` puts a message into the running turn, `followup` gives it a turn of its own afterwards,
`collect` joins all that came into one turn, after a moment of quiet.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import anyio

from nacre.errors import SessionError
from nacre.messages import TextPart, UserMessage

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from nacre.agent.run import AgentRun
    from nacre.agent.turn_request import TurnRequest
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
