"""One run of an agent as its caller sees it, and the registry of runs.

queued -> running <-> waiting -> completed | failed | aborted
queued -> aborted | failed
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import anyio

from nacre.agent.approvals import approval_to_json
from nacre.agent.client_tools import (
    ClientCalls,
    PendingClientCall,
)
from nacre.agent.input_requests import InputRequests
from nacre.agent.replies import ReplyEventLog, ReplyMedia, RunMedia, media_to_json
from nacre.agent.transcript import message_size
from nacre.errors import (
    RuntimeUnavailableError,
    SessionError,
    StorageError,
)
from nacre.messages import FinishReason, Usage
from nacre.run_context import AbortController

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Sequence

    from nacre.agent.input_requests import InputEnding, InputRequest
    from nacre.errors import NacreError
    from nacre.json_types import JsonObject, JsonValue
    from nacre.messages import Message
    from nacre.run_context import AbortSignal
    from nacre.storage import MediaRecord, Store, Visibility
    from nacre.tools import ApprovalRequest
    from nacre.trajectory import RunEvent

RunState = Literal["queued", "running", "waiting", "completed", "failed", "aborted", "interrupted"]
RunEnding = Literal["completed", "failed", "aborted"]
RunFinish: TypeAlias = FinishReason | Literal["aborted"]
"""Why the answer ended: the reason of the model, or `aborted`."""

_TRANSITIONS: Final[dict[RunState, frozenset[RunState]]] = {
    "queued": frozenset(("running", "failed", "aborted")),
    "running": frozenset(("waiting", "completed", "failed", "aborted")),
    "waiting": frozenset(("running", "completed", "failed", "aborted")),
    "completed": frozenset(),
    "failed": frozenset(),
    "aborted": frozenset(),
    "interrupted": frozenset(),
}
# How long a turn that continues may take to ask again.
_REOPEN_SECONDS: Final = 5.0
_MAX_ENDED_RUNS: Final = 256
_MAX_ENDED_BYTES: Final = 64 * 1024 * 1024


_BYTES_PER_TOKEN: Final = 4


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolBytes:
    """The size of the definitions of tools in all model requests of a turn, and what all tools
    would have cost if the model saw them directly."""

    sent: int
    direct: int

    def to_json(self) -> JsonObject:
        """With estimates of the tokens."""
        return {
            "sent": self.sent,
            "direct": self.direct,
            "sentTokens": self.sent // _BYTES_PER_TOKEN,
            "directTokens": self.direct // _BYTES_PER_TOKEN,
        }


def tool_bytes_of(data: JsonObject) -> ToolBytes | None:
    """From the data of a turn; None if no model was asked, or by a runtime that does not say."""
    sent = data.get("toolBytes")
    if not isinstance(sent, int) or not data.get("requests"):
        return None
    direct = data.get("directToolBytes", sent)
    return ToolBytes(sent=sent, direct=direct) if isinstance(direct, int) else None


def tool_bytes_from_json(value: JsonValue) -> ToolBytes | None:
    """Parse `ToolBytes.to_json`."""
    match value:
        case {"sent": int(sent), "direct": int(direct)}:
            return ToolBytes(sent=sent, direct=direct)
        case _:
            return None


@dataclass(frozen=True, kw_only=True, slots=True)
class RunResult:
    """The result of a run."""

    text: str = ""
    """The last answer; if the run was cut off, the part that was received. `visibility` says
    whether it is for the user."""
    visibility: Visibility = "visible"
    sent: tuple[str, ...] = ()
    """The texts that were sent to the user during the turn."""
    messages: tuple[Message, ...] = ()
    """The messages that the turn added to its session, the user's first."""
    usage: Usage = field(default_factory=Usage)
    finish_reason: RunFinish = "stop"
    error: str = ""
    """Why the run failed or was aborted; empty if it completed."""
    model: str = ""
    """The model that gave the last answer."""
    media: tuple[MediaRecord, ...] = ()
    """The files of the reply, in the order in which they were added."""
    cause: NacreError | None = None
    """The exception that the run failed with, if there was one."""
    tool_bytes: ToolBytes | None = None

    @property
    def reply(self) -> str:
        """What the user reads at the end: the answer, or if it is not for the user, what was
        sent."""
        return self.text if self.visibility == "visible" else "\n\n".join(self.sent)

    @property
    def error_code(self) -> str:
        """`storage_failed` if the store failed, and `error` says what is not stored.
        `runtime_unavailable` if code mode has no sandbox. Otherwise empty."""
        if isinstance(self.cause, RuntimeUnavailableError):
            return "runtime_unavailable"
        return "storage_failed" if isinstance(self.cause, StorageError) else ""

    @property
    def size(self) -> int:
        """The approximate size in bytes."""
        return len(self.text) + sum(map(message_size, self.messages))

    def to_json(self) -> JsonObject:
        is_visible = self.visibility == "visible"
        wire: JsonObject = {
            "text": self.text if is_visible else "",
            "finishReason": self.finish_reason,
            "usage": self.usage.to_json(),
            "model": self.model,
        }
        if not is_visible:
            wire["visibility"] = self.visibility
        if self.visibility == "private":
            wire["privateText"] = self.text
        if self.sent:
            wire["sent"] = list(self.sent)
        if self.media:
            wire["media"] = [media_to_json(record) for record in self.media]
        if self.tool_bytes is not None:
            wire["toolBytes"] = self.tool_bytes.to_json()
        if self.error:
            wire["error"] = self.error
        if self.error_code:
            wire["errorCode"] = self.error_code
        return wire


class AgentRun:
    """A run, made by `AgentService.start`. Many callers may use it, also after its end."""

    def __init__(
        self,
        *,
        id: str,
        session_id: str,
        agent_id: str,
        session_key: str = "",
        is_stored: bool = True,
        command: str = "",
        store: Store | None = None,
    ) -> None:
        """`store` takes the media of the reply, if the session is stored."""
        self.id = id
        self.session_id = session_id
        self.agent_id = agent_id
        self.session_key = session_key
        self.is_stored = is_stored
        """Whether its session is stored."""
        self.command = command
        """The name of the chat command that it is; empty for a message to the agent."""
        self.events = ReplyEventLog()
        self.result: RunResult | None = None
        """None until the run has ended."""
        self.on_change: Callable[[], None] = do_nothing
        """Called when an approval, a client call or a question opens or closes; set by the running
        turn."""
        self.is_continued = False
        """Whether another process has begun the run."""
        self.is_detached = False
        """Whether the run is left to another process, which continues it."""
        self.wait_until_approval_stored: Callable[[str], Awaitable[None]] = _do_not_wait
        """Waits until another process could continue the turn with this approval; set by a turn
        that can do so."""
        self.on_detach: Callable[[], Awaitable[bool]] = _refuse
        """Leaves the run to another process; set by a turn that can do so."""
        self.on_drop: Callable[[], None] = do_nothing
        """Stops the run at once, because another process has it; set by its turn."""
        self._store = store if is_stored else None
        self._client_calls: ClientCalls | None = None
        self._input_requests: InputRequests | None = None
        self._media: RunMedia | None = None
        self._announced: set[str] = set()
        self._approvals: dict[str, ApprovalRequest] = {}
        self._state: RunState = "queued"
        self._abort = AbortController()
        self._ended = anyio.Event()
        self._state_change = anyio.Event()

    # State, for callers.

    @property
    def state(self) -> RunState:
        return self._state

    @property
    def has_ended(self) -> bool:
        return self._ended.is_set()

    @property
    def pending_client_calls(self) -> tuple[PendingClientCall, ...]:
        """The calls that wait for the client's result, oldest first."""
        return () if self._client_calls is None else self._client_calls.pending

    @property
    def open_approvals(self) -> tuple[ApprovalRequest, ...]:
        """The open approvals, oldest first, also those that readers do not see yet."""
        return tuple(self._approvals.values())

    @property
    def pending_approvals(self) -> tuple[ApprovalRequest, ...]:
        """The open approvals that readers see. Answer them in the approval queue."""
        shown = self._approvals.values()
        return tuple(it for it in shown if not self.events.is_paused_for(it.id))

    @property
    def pending_input(self) -> InputRequest | None:
        """The question that the next message of the session answers."""
        return None if self._input_requests is None else self._input_requests.pending

    @property
    def media_records(self) -> tuple[MediaRecord, ...]:
        """The files of the reply so far."""
        return () if self._media is None else self._media.records

    @property
    def bytes_held(self) -> int:
        """The approximate memory that the run uses."""
        media = 0 if self._media is None else self._media.bytes_held
        return self.events.bytes_held + media + (self.result.size if self.result else 0)

    # Made at first use: few runs have client calls, questions and files.

    @property
    def client_calls(self) -> ClientCalls:
        """The calls of tools that the client runs."""
        if self._client_calls is None:
            self._client_calls = ClientCalls(
                on_opened=self._client_call_opened, on_closed=self._client_call_closed
            )
        return self._client_calls

    @property
    def input_requests(self) -> InputRequests:
        """The question that the next message of the session answers."""
        if self._input_requests is None:
            self._input_requests = InputRequests(
                on_opened=self._input_opened, on_closed=self._input_closed
            )
        return self._input_requests

    @property
    def media(self) -> RunMedia:
        """The files of the reply."""
        if self._media is None:
            self._media = RunMedia(
                run_id=self.id,
                session_id=self.session_id,
                store=self._store,
                events=self.events,
            )
        return self._media

    async def wait(self) -> RunResult:
        """Wait until the run has ended."""
        await self._ended.wait()
        assert self.result is not None
        return self.result

    async def waiting_or_ended(self) -> RunState:
        """Wait until the run waits for a person or a client and its readers know that, or it has
        ended."""
        while self._state in ("queued", "running") or self.events.is_paused:
            await self._state_change.wait()
        return self._state

    # Actions of callers.

    async def abort(self, reason: str = "the run was aborted") -> bool:
        """Abort the run and wait for its end; False if it had already ended."""
        if self.has_ended:
            return False
        self.request_abort(reason)
        await self._ended.wait()
        return True

    def request_abort(self, reason: str = "the run was aborted") -> None:
        """Abort the run without waiting for its end."""
        self._abort.abort(reason)

    def deliver(self, call_id: str, content: JsonValue, is_error: bool = False) -> None:
        """Deliver the result of a client call. Raises SessionError if the call is not open."""
        if self.has_ended:
            raise SessionError(
                f"the run {self.id} is over ({self._state}); the result was not taken",
                code="ended",
            )
        self.client_calls.deliver(call_id, content, is_error=is_error)

    # Actions of the service.

    @property
    def abort_signal(self) -> AbortSignal:
        """Aborted when the run has to end."""
        return self._abort.signal

    def begin(self, data: JsonObject) -> None:
        """Start the run."""
        self._move_to("running")
        self.events.add("run.started", data)

    def restore(
        self,
        events: Sequence[RunEvent],
        *,
        last_sequence: int,
        sent: Sequence[str],
        media: Sequence[MediaRecord],
    ) -> None:
        """Continue the run of another process, with the events that its readers have seen."""
        self.is_continued = True
        self.events.restore(events, last=last_sequence)
        self.events.sent.extend(sent)
        if media:
            self.media.items.extend(ReplyMedia(record=record) for record in media)
        for event in events:
            if event.kind in ("approval.requested", "client_call.requested"):
                key = "approvalId" if event.kind == "approval.requested" else "callId"
                self._announced.add(str(event.data.get(key)))
            elif event.kind == "client_call.answered":
                self._announced.discard(str(event.data.get("callId")))

    async def wait_for_calls(self, call_ids: Collection[str]) -> None:
        """Wait until a turn that continues has asked its client for these calls again."""
        with anyio.move_on_after(_REOPEN_SECONDS):
            while not self.has_ended and not self._announced.isdisjoint(call_ids):
                await self._state_change.wait()

    def begin_again(self) -> None:
        """Start a run that another process has begun."""
        self._move_to("running")
        self.events.add("run.resumed", {"cause": "restart"})

    async def detach(self) -> bool:
        """Leave the run to the next process, and wait until it has stopped in this one; False if
        only an abort can end it."""
        if self.has_ended or not await self.on_detach():
            return False
        await self._ended.wait()
        return True

    def request_drop(self) -> None:
        """Stop the run in this process without storing anything: another process has it."""
        if not self.has_ended:
            self.begin_detach()
            self.on_drop()

    def begin_detach(self) -> None:
        """From now on, nothing that happens to the run is reported or stored."""
        self.is_detached = True
        self.events.drop_paused()
        self.events.close()

    def end_detached(self) -> None:
        """The run has stopped in this process."""
        error = "the run is going to continue in another process"
        self.result = RunResult(error=error, finish_reason="aborted")
        self._ended.set()
        self._note_state_change()

    def set_waiting(self, is_waiting: bool) -> None:
        """Set whether the run is paused until a person or a client answers."""
        if is_waiting and self._state == "running":
            self._move_to("waiting")
            self.events.add("run.waiting")
        elif not is_waiting and self._state == "waiting":
            self._move_to("running")
            self.events.add("run.resumed")

    def reply(self, text: str) -> None:
        """Report an answer that no model gave."""
        self.events.add(
            "message.completed",
            {
                "model": "",
                "text": text,
                "toolCalls": [],
                "finishReason": "stop",
                "usage": Usage().to_json(),
            },
        )

    def end(self, ending: RunEnding, result: RunResult) -> None:
        """End the run and close its event log."""
        self._move_to(ending)
        self.result = result
        match ending:
            case "completed":
                self.events.add("run.completed", result.to_json())
            case "failed":
                self.events.add("run.failed", result.to_json())
            case "aborted":
                self.events.add("run.aborted", result.to_json())
        self.events.close()
        self._ended.set()

    def approval_opened(self, request: ApprovalRequest, *, is_stored_first: bool = False) -> bool:
        """An approval of a call was requested. With `is_stored_first`, readers do not see it until
        `show_approval`, unless they know it; returns whether that is so."""
        is_new = request.id not in self._announced
        self._approvals[request.id] = request
        if is_new:
            self._announced.add(request.id)
            if is_stored_first:
                self.events.pause(request.id)
            self.events.add("approval.requested", approval_to_json(request))
        self.on_change()
        return is_new and is_stored_first

    def show_approval(self, approval_id: str) -> None:
        """Show readers an approval that is stored, and the events after it."""
        self.events.resume(approval_id)
        self._note_state_change()

    def approval_closed(self, request: ApprovalRequest, answer: JsonObject) -> None:
        """An approval was answered, has expired or was withdrawn."""
        self._approvals.pop(request.id, None)
        told: JsonObject = {"approvalId": request.id, "toolCallId": request.call_id, **answer}
        self.events.add("approval.answered", told)
        self.show_approval(request.id)
        self.on_change()

    def _move_to(self, state: RunState) -> None:
        """Change the state; nothing else does."""
        if state not in _TRANSITIONS[self._state]:
            raise RuntimeError(f"a run cannot go from {self._state} to {state}")
        self._state = state
        self._note_state_change()

    def _note_state_change(self) -> None:
        change, self._state_change = self._state_change, anyio.Event()
        change.set()

    def _client_call_opened(self, call: PendingClientCall) -> None:
        if call.call_id in self._announced:
            self._announced.discard(call.call_id)
            self._note_state_change()
        else:
            self.events.add("client_call.requested", call.to_json())
        self.on_change()

    def _client_call_closed(self, call: PendingClientCall, ending: str) -> None:
        self.events.add("client_call.answered", {"callId": call.call_id, "how": ending})
        self.on_change()

    def _input_opened(self, request: InputRequest) -> None:
        self.events.add("input.requested", request.to_json())
        self.on_change()

    def _input_closed(self, request: InputRequest, ending: InputEnding) -> None:
        told: JsonObject = {"inputId": request.id, "toolCallId": request.call_id, "how": ending}
        self.events.add("input.answered", told)
        self.on_change()


async def _refuse() -> bool:
    return False


async def _do_not_wait(_approval_id: str) -> None:
    pass


def do_nothing() -> None:
    """The `on_change` and `on_drop` of a run that has no turn."""


class RunRegistry:
    """The runs of a service. Of those that have ended it keeps the last ones, up to a size."""

    def __init__(self) -> None:
        self._live: dict[str, AgentRun] = {}
        self._ended: OrderedDict[str, AgentRun] = OrderedDict()
        self._ended_bytes = 0
        self._watchers: dict[Callable[[AgentRun], None], None] = {}

    def get(self, run_id: str) -> AgentRun | None:
        return self._live.get(run_id) or self._ended.get(run_id)

    def all(self, session_id: str | None = None) -> list[AgentRun]:
        """Oldest first."""
        known = [*self._ended.values(), *self._live.values()]
        return [run for run in known if session_id in (None, run.session_id)]

    def live(self, session_id: str | None = None) -> list[AgentRun]:
        """Oldest first."""
        return [run for run in self._live.values() if session_id in (None, run.session_id)]

    def forget(self, session_id: str) -> None:
        """Forget the runs of a session that have ended."""
        for run in [run for run in self._ended.values() if run.session_id == session_id]:
            self._ended_bytes -= self._ended.pop(run.id).bytes_held

    def remove(self, run: AgentRun) -> None:
        """Forget a run that goes on in another process."""
        self._live.pop(run.id, None)

    def watch(self, watcher: Callable[[AgentRun], None]) -> Callable[[], None]:
        """Call `watcher` with every new run; call the returned function to stop."""
        self._watchers[watcher] = None
        return lambda: self._watchers.pop(watcher, None)

    def add(self, run: AgentRun) -> None:
        self._live[run.id] = run
        for watcher in list(self._watchers):
            watcher(run)

    def note_ended(self, run: AgentRun) -> None:
        self._live.pop(run.id, None)
        self._ended[run.id] = run
        self._ended_bytes += run.bytes_held
        while len(self._ended) > _MAX_ENDED_RUNS or (
            self._ended_bytes > _MAX_ENDED_BYTES and len(self._ended) > 1
        ):
            self._ended_bytes -= self._ended.popitem(last=False)[1].bytes_held
