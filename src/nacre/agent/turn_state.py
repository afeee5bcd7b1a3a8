"""Turns that survive a restart: stores a turn that waits for people or clients, and reads it.

A turn is stored when only people or clients hold up the calls of an answer. It is deleted when
these calls have ended, before the model is called again. So the next process continues exactly
these calls, and repeats no others.
"""

from __future__ import annotations

import logging
import time
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Final, cast

import anyio

from nacre.agent.turn_request import request_from_json, request_to_json
from nacre.errors import StorageError
from nacre.messages import (
    AssistantMessage,
    ToolMessage,
    Usage,
    UserMessage,
    message_from_json,
    message_to_json,
)
from nacre.storage import MediaRecord, TurnState
from nacre.tools import AllowAlways, AllowOnce, Deny, EarlierApproval, call_fingerprint
from nacre.trajectory import RunEvent

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from nacre.agent.run import AgentRun
    from nacre.agent.turn_context import TurnContext
    from nacre.agent.turn_request import TurnRequest
    from nacre.code_mode import CodeModeRun
    from nacre.json_types import JsonObject
    from nacre.messages import FinishReason, Message
    from nacre.storage import ApprovalRecord, CellStore
    from nacre.tools import ApprovalDecision

logger = logging.getLogger(__name__)

_FORMAT: Final = 1
# The newest events of the run are stored with the turn, up to this size.
_MAX_EVENT_BYTES: Final = 256 * 1024
_EVENT_BYTES: Final = 100
# On a busy machine, it takes seconds until a cell that waits is stored.
_DETACH_SECONDS: Final = 10.0
# A program that does something else may not be suspended for a long time.
_BUSY_SECONDS: Final = 1.0

_NUMBER: Final = (int, float)
_MEMBERS: Final = {
    "agentId": str,
    "sessionKey": str,
    "model": str,
    "text": str,
    "finishReason": str,
    "steps": int,
    "secondsLeft": _NUMBER,
    "lastSequence": int,
    "lastRecorded": int,
    "usage": dict,
    "begun": list,
    "sent": list,
    "events": list,
    "media": list,
    "approvals": list,
}
_APPROVAL_MEMBERS: Final = {
    "id": str,
    "callId": str,
    "fingerprint": str,
    "created": _NUMBER,
    "expires": _NUMBER,
}
_EVENT_MEMBERS: Final = {"sequence": int, "time": _NUMBER, "kind": str, "data": dict}
_MEDIA_MEMBERS: Final = {
    "id": str,
    "session_id": str,
    "run_id": str,
    "name": str,
    "type": str,
    "size": int,
    "created": _NUMBER,
}
_MAX_SHOWN: Final = 80


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredTurn:
    """A turn that another process has stored."""

    run_id: str
    session_id: str
    session_key: str
    agent_id: str
    version: int
    request: TurnRequest
    messages: Sequence[Message]
    model: str
    text: str
    finish_reason: FinishReason
    results: dict[str, ToolMessage]
    """The results of calls of the last answer, by call id."""
    begun: frozenset[str]
    """The calls of the last answer that may have had effects."""
    steered: Sequence[UserMessage]
    items: Sequence[int]
    """The messages in the inbox that are part of this state."""
    steps: int
    usage: Usage
    seconds_left: float
    events: Sequence[RunEvent]
    last_sequence: int
    last_recorded: int
    """The number of the last event of the trajectory."""
    sent: Sequence[str]
    media: Sequence[MediaRecord]
    approvals: Sequence[EarlierApproval]

    @property
    def answer(self) -> AssistantMessage | None:
        """The answer of the model whose calls have not ended."""
        found = [each for each in self.messages if isinstance(each, AssistantMessage)]
        return found[-1] if found else None


def can_be_stored(request: TurnRequest) -> bool:
    """Whether a turn with this request can continue in another process."""
    is_chat = not request.action and request.manual_call is None and request.heartbeat is None
    return is_chat and request.history is None


class DurableTurn:
    """What is stored of one turn. Before `open`, nothing is."""

    def __init__(self, run: AgentRun, cells: CellStore, *, version: int = 0) -> None:
        """`version` is that of the state from which the turn continues."""
        self._run = run
        self._cells = cells
        self._opened: tuple[TurnContext, CodeModeRun] | None = None
        self._version = version
        self._is_stored = version > 0
        self._last_data: JsonObject | None = None
        self._described_approvals: frozenset[str] = frozenset()
        self._lock = anyio.Lock()
        self._change = anyio.Event()
        self._looked = anyio.Event()
        self._begun: set[str] = set()
        self._results: dict[str, ToolMessage] = {}

    def open(self, turn: TurnContext, surface: CodeModeRun) -> None:
        """Store the turn from now on, whenever it waits."""
        self._opened = (turn, surface)

    def begin_calls(self, results: dict[str, ToolMessage], begun: frozenset[str]) -> None:
        """The calls of an answer run; their results are going to be added to `results`."""
        self._results, self._begun = results, set(begun)

    def describe(self, cell_id: str = "") -> TurnState | None:
        """The turn as it is now, to be stored together with this cell; None if that is not
        necessary."""
        # `detach` may wait for this cell.
        self._wake_detach()
        if self._opened is None or not (self._is_stored or self._can_continue(cell_id)):
            if cell_id:
                # Two cells may be stored at once, and each of them waits for the other.
                self._change.set()
            return None
        data = _describe_turn(self._opened[0], results=self._results, begun=self._begun)
        if self._is_stored and data == self._last_data:
            return None
        # Whoever gets it is going to store it.
        self._is_stored, self._last_data = True, data
        self._described_approvals = frozenset(asked.id for asked in self._run.open_approvals)
        self._version += 1
        # Clocks of processes differ, and jump. The store knows how old the state is.
        data = {**data, "now": time.time()}
        return TurnState(
            run_id=self._run.id,
            session_id=self._run.session_id,
            version=self._version,
            data=data,
        )

    async def note_begun(self, call_id: str) -> None:
        """A call is about to have effects. Raises StorageError."""
        self._begun.add(call_id)
        if self._is_stored:
            await self._put()

    def receive(self, event: RunEvent) -> None:
        """A listener of the run's events."""
        if event.kind == "steered":
            self.note_change()

    def note_result(self) -> None:
        """A call has a result, which is stored while other calls wait."""
        if self._is_stored:
            self._change.set()

    def note_change(self) -> None:
        """Something has changed; `watch` stores it if that is necessary."""
        self._change.set()
        self._wake_detach()

    def _wake_detach(self) -> None:
        looked, self._looked = self._looked, anyio.Event()
        looked.set()

    async def watch(self) -> None:
        """Store changes of the turn while it waits; run this as a task."""
        while True:
            await self._change.wait()
            self._change = anyio.Event()
            try:
                await self._put()
            except StorageError as error:
                # The turn goes on. It is interrupted if the process ends now.
                logger.error("the turn %s is not stored: %s", self._run.id, error)

    async def end_calls(self) -> None:
        """The calls have ended, so the stored state is obsolete. Raises StorageError."""
        async with self._lock:
            self._results, self._begun = {}, set()
            if self._is_stored:
                await self._cells.delete_turn_state(self._run.id)
                self._is_stored = False

    async def wait_until_approval_stored(self, approval_id: str) -> None:
        """Wait until the turn is stored with this approval; not for long if it does something else
        meanwhile."""
        if self._opened is None:
            return
        with anyio.move_on_after(_BUSY_SECONDS):
            await self._wait_until_described(approval_id)
            return
        if self._run.state == "waiting":
            await self._wait_until_described(approval_id)

    async def _wait_until_described(self, approval_id: str) -> None:
        assert self._opened is not None
        while True:
            looked = self._looked
            await self._opened[1].settle()
            async with self._lock:
                # What was described is stored now, or cannot be.
                if approval_id in self._described_approvals and self._can_continue():
                    return
            await looked.wait()

    async def detach(self) -> bool:
        """Leave the turn and its cells to the next process; False if that is not possible."""
        if self._opened is None:
            return False
        surface = self._opened[1]
        try:
            with anyio.move_on_after(_DETACH_SECONDS):
                # A cell that waits is stored within a moment.
                while True:
                    # Taken first: another cell may begin to be stored while one is awaited.
                    looked = self._looked
                    await surface.settle()
                    if self._run.state != "waiting" or self._can_continue():
                        break
                    await looked.wait()
            if self._can_continue():
                self._opened[0].queue.pass_to_running()
                await self._put()
        except StorageError:
            return False
        # An answer may have come meanwhile.
        if not self._can_continue():
            return False
        surface.detach()
        return True

    def drop(self) -> None:
        """Another process has taken over the turn and its cells."""
        if self._opened is not None:
            self._opened[1].detach()

    def _can_continue(self, cell_id: str = "") -> bool:
        """Whether the turn waits, and all its cells are stored or this one."""
        if self._opened is None or self._run.state != "waiting":
            return False
        return self._opened[1].are_cells_stored(besides=cell_id)

    async def _put(self) -> None:
        if self._opened is not None:
            # Without its cell, the next process could not continue a call.
            await self._opened[1].settle()
        async with self._lock:
            state = self.describe()
            if state is None:
                return
            try:
                await self._cells.put_turn_state(state)
            except StorageError:
                self._last_data = None
                raise


def _describe_turn(
    turn: TurnContext, *, results: dict[str, ToolMessage], begun: set[str]
) -> JsonObject:
    run, request, output = turn.run, turn.request, turn.output
    # The next process has them for its readers. Those of other gateways read events from the
    # database, so there the next process adds them anew.
    paused = run.events.paused_events if turn.service.store.cluster is None else ()
    events = _newest_events((*run.events.events, *paused))
    data: dict[str, Any] = {
        "format": _FORMAT,
        "agentId": turn.agent.id,
        "sessionKey": run.session_key,
        "request": request_to_json(request),
        "messages": [message_to_json(each) for each in output.messages],
        "model": output.model,
        "text": output.text,
        "finishReason": output.finish_reason,
        "results": [message_to_json(result) for result in results.values()],
        "begun": sorted(begun),
        "steered": [message_to_json(each) for each in turn.queue.steered],
        "items": turn.queue.items_of_turn,
        "steps": turn.budget.steps,
        "usage": asdict(turn.budget.usage),
        "secondsLeft": turn.budget.seconds_left(),
        "events": [event.to_json() for event in events],
        "lastSequence": run.events.last_sequence + len(paused),
        "lastRecorded": turn.trajectory.last_sequence,
        "sent": run.events.sent,
        "media": [asdict(record) for record in run.media_records],
        "approvals": [
            {
                "id": asked.id,
                "callId": asked.call_id,
                "fingerprint": call_fingerprint(asked.tool_id, asked.input, asked.context),
                "created": asked.created,
                "expires": asked.expires,
            }
            for asked in run.open_approvals
        ],
    }
    return cast("JsonObject", data)


def _newest_events(events: Sequence[RunEvent]) -> list[RunEvent]:
    found: list[RunEvent] = []
    left = _MAX_EVENT_BYTES
    for event in reversed(events):
        left -= _EVENT_BYTES + len(str(event.data))
        if left < 0:
            break
        found.append(event)
    return found[::-1]


def read_turn_state(state: TurnState) -> StoredTurn:
    """Parse a stored turn. Raises ValueError if it is damaged or of another version."""
    data = cast("dict[str, Any]", state.data)
    if data.get("format") != _FORMAT:
        raise ValueError(f"its format is {data.get('format')!r}, this version reads {_FORMAT}")
    try:
        return _read(state, data)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"it is damaged ({type(error).__name__}: {error})") from error


def _read(state: TurnState, data: dict[str, Any]) -> StoredTurn:
    _check_types(data)
    results = [message_from_json(each) for each in data["results"]]
    written: float = data.get("now", time.time())
    return StoredTurn(
        run_id=state.run_id,
        session_id=state.session_id,
        session_key=data["sessionKey"],
        agent_id=data["agentId"],
        version=state.version,
        request=request_from_json(data["request"], session_id=state.session_id),
        messages=[message_from_json(each) for each in data["messages"]],
        model=data["model"],
        text=data["text"],
        finish_reason=data["finishReason"],
        results={each.call_id: each for each in results if isinstance(each, ToolMessage)},
        begun=frozenset(data["begun"]),
        steered=_user_messages(data["steered"]),
        items=data.get("items", []),
        steps=data["steps"],
        usage=Usage(**data["usage"]),
        seconds_left=data["secondsLeft"],
        events=[RunEvent(**event) for event in data["events"]],
        last_sequence=data["lastSequence"],
        last_recorded=data["lastRecorded"],
        sent=data["sent"],
        media=[MediaRecord(**record) for record in data["media"]],
        approvals=[
            EarlierApproval(
                id=asked["id"],
                run_id=state.run_id,
                call_id=asked["callId"],
                fingerprint=asked["fingerprint"],
                created=asked["created"],
                expires=asked["expires"],
                seconds_left=max(0.0, asked["expires"] - written - state.age_seconds),
            )
            for asked in data["approvals"]
        ],
    )


def _check_types(data: dict[str, Any]) -> None:
    """A value of a wrong type would break the turn later, or the service with all turns."""
    _check_members(data, _MEMBERS)
    _check_members(data["usage"], dict.fromkeys(data["usage"], int))
    for asked in data["approvals"]:
        _check_members(asked, _APPROVAL_MEMBERS)
        if not asked["id"]:
            raise TypeError("the id of an approval is empty")
    for event in data["events"]:
        _check_members(event, _EVENT_MEMBERS)
    for record in data["media"]:
        _check_members(record, _MEDIA_MEMBERS)
    for key, kind in (("begun", str), ("sent", str), ("items", int)):
        for number, each in enumerate(data.get(key, [])):
            _check_members({f"{key}[{number}]": each}, {f"{key}[{number}]": kind})


def _check_members(found: dict[str, Any], types: Mapping[str, type | tuple[type, ...]]) -> None:
    for key, kind in types.items():
        value = found[key]
        if not isinstance(value, kind) or isinstance(value, bool):
            raise TypeError(f"{key} is {str(value)[:_MAX_SHOWN]!r}")


def _user_messages(values: list[Any]) -> list[UserMessage]:
    found = [message_from_json(value) for value in values]
    return [each for each in found if isinstance(each, UserMessage)]


def add_decision(earlier: EarlierApproval, record: ApprovalRecord | None) -> EarlierApproval | None:
    """Add the decision that is stored; None if the request is closed without a known decision.

    An edited input is stored without its secrets, so that a person has to edit it again.
    """
    if record is None or record.state == "open":
        return earlier
    decision: ApprovalDecision
    match record.state, record.answer.get("how"):
        case "allowed", "once":
            decision = AllowOnce()
        case "allowed", "always":
            decision = AllowAlways()
        case "denied", _:
            decision = Deny(str(record.answer.get("reason", "")))
        case _:
            return None
    return replace(earlier, decision=decision)
