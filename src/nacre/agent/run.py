"""One run of an agent as its caller sees it, its client calls, and the registry of runs.

queued -> running <-> waiting -> completed | failed | aborted
queued -> aborted | failed
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, cast

import anyio

from nacre.agent.approval_log import approval_to_json
from nacre.agent.transcript import message_size
from nacre.errors import (
    RuntimeUnavailableError,
    SessionError,
    StorageError,
    ToolAbortedError,
    ToolDefinitionError,
    ToolFailedError,
)
from nacre.json_types import copy_json
from nacre.messages import FinishReason, Usage
from nacre.run_context import AbortController
from nacre.tools import Tool
from nacre.trajectory import RunEventLog

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from nacre.errors import NacreError
    from nacre.json_types import JsonObject, JsonValue
    from nacre.messages import Message
    from nacre.run_context import AbortSignal
    from nacre.tools import ApprovalRequest, ToolCall

RunState = Literal["queued", "running", "waiting", "completed", "failed", "aborted"]
RunEnding = Literal["completed", "failed", "aborted"]
RunFinish: TypeAlias = FinishReason | Literal["aborted"]
"""Why the answer ended: the reason of the model, or `aborted`."""

CLIENT_CALL_SECONDS: Final = 900.0

_TRANSITIONS: Final[dict[RunState, frozenset[RunState]]] = {
    "queued": frozenset(("running", "failed", "aborted")),
    "running": frozenset(("waiting", "completed", "failed", "aborted")),
    "waiting": frozenset(("running", "completed", "failed", "aborted")),
    "completed": frozenset(),
    "failed": frozenset(),
    "aborted": frozenset(),
}
_MAX_ENDED_RUNS: Final = 256
_MAX_ENDED_BYTES: Final = 64 * 1024 * 1024
CLIENT_OWNER: Final = "client"
_MAX_ANSWERED_REMEMBERED: Final = 1024
_MAX_SHOWN_ID: Final = 80


@dataclass(frozen=True, kw_only=True, slots=True)
class RunResult:
    """The result of a run."""

    text: str = ""
    """The last answer; if the run was cut off, the part that was received."""
    messages: tuple[Message, ...] = ()
    """The messages that the turn added to its session, the user's first."""
    usage: Usage = field(default_factory=Usage)
    finish_reason: RunFinish = "stop"
    error: str = ""
    """Why the run failed or was aborted; empty if it completed."""
    model: str = ""
    """The model that gave the last answer."""
    cause: NacreError | None = None
    """The exception that the run failed with, if there was one."""

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
        wire: JsonObject = {
            "text": self.text,
            "finishReason": self.finish_reason,
            "usage": self.usage.to_json(),
            "model": self.model,
        }
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
    ) -> None:
        self.id = id
        self.session_id = session_id
        self.agent_id = agent_id
        self.session_key = session_key
        self.is_stored = is_stored
        """Whether its session is stored."""
        self.events = RunEventLog()
        self.result: RunResult | None = None
        """None until the run has ended."""
        self.on_change: Callable[[], None] = do_nothing
        """Called when an approval or a client call opens or closes; set by the running turn."""
        self.client_calls = ClientCalls(
            expiry_seconds=CLIENT_CALL_SECONDS,
            on_opened=self._client_call_opened,
            on_closed=self._client_call_closed,
        )
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
        return self.client_calls.pending

    @property
    def pending_approvals(self) -> tuple[ApprovalRequest, ...]:
        """The open approvals, oldest first. Answer them in the approval queue."""
        return tuple(self._approvals.values())

    @property
    def bytes_held(self) -> int:
        """The approximate memory that the run uses."""
        return self.events.bytes_held + (self.result.size if self.result else 0)

    async def wait(self) -> RunResult:
        """Wait until the run has ended."""
        await self._ended.wait()
        assert self.result is not None
        return self.result

    async def waiting_or_ended(self) -> RunState:
        """Wait until the run waits for a person or a client, or has ended."""
        while self._state not in ("waiting", "completed", "failed", "aborted"):
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

    def set_waiting(self, is_waiting: bool) -> None:
        """Set whether the run is paused until a person or a client answers."""
        if is_waiting and self._state == "running":
            self._move_to("waiting")
            self.events.add("run.waiting")
        elif not is_waiting and self._state == "waiting":
            self._move_to("running")
            self.events.add("run.resumed")

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

    def approval_opened(self, request: ApprovalRequest) -> None:
        """An approval of a call was requested."""
        self._approvals[request.id] = request
        self.events.add("approval.requested", approval_to_json(request))
        self.on_change()

    def approval_closed(self, request: ApprovalRequest, answer: JsonObject) -> None:
        """An approval was answered, has expired or was withdrawn."""
        self._approvals.pop(request.id, None)
        told: JsonObject = {"approvalId": request.id, "toolCallId": request.call_id, **answer}
        self.events.add("approval.answered", told)
        self.on_change()

    def _move_to(self, state: RunState) -> None:
        """Change the state; nothing else does."""
        if state not in _TRANSITIONS[self._state]:
            raise RuntimeError(f"a run cannot go from {self._state} to {state}")
        self._state = state
        change, self._state_change = self._state_change, anyio.Event()
        change.set()

    def _client_call_opened(self, call: PendingClientCall) -> None:
        self.events.add("client_call.requested", call.to_json())
        self.on_change()

    def _client_call_closed(self, call: PendingClientCall, ending: str) -> None:
        self.events.add("client_call.answered", {"callId": call.call_id, "how": ending})
        self.on_change()


def do_nothing() -> None:
    """The `on_change` of a run that has no turn."""


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

    def live(self) -> list[AgentRun]:
        return list(self._live.values())

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


def _any_object() -> JsonObject:
    return {"type": "object", "properties": {}}


@dataclass(frozen=True, kw_only=True, slots=True)
class ClientTool:
    """A tool that the caller of a turn runs itself."""

    name: str
    description: str = ""
    parameters: JsonObject = field(default_factory=_any_object)


@dataclass(frozen=True, kw_only=True, slots=True)
class PendingClientCall:
    """A call that waits for the client's result."""

    call_id: str
    parent_id: str
    """The call of `exec` that it is nested in; empty for a call of the model."""
    name: str
    arguments: JsonObject

    def to_json(self) -> JsonObject:
        wire: JsonObject = {
            "callId": self.call_id,
            "name": self.name,
            "arguments": self.arguments,
        }
        if self.parent_id:
            wire["parentToolCallId"] = self.parent_id
        return wire


@dataclass(kw_only=True, slots=True)
class _OpenCall:
    call: PendingClientCall
    is_answered: anyio.Event = field(default_factory=anyio.Event)
    content: JsonValue = None
    is_error: bool = False


class ClientCalls:
    """The open client calls of one run. Each is answered once, or expires."""

    def __init__(
        self,
        *,
        expiry_seconds: float,
        on_opened: Callable[[PendingClientCall], None],
        on_closed: Callable[[PendingClientCall, str], None],
    ) -> None:
        self.expiry_seconds = expiry_seconds
        """For new calls."""
        self._on_opened = on_opened
        self._on_closed = on_closed
        self._open: dict[str, _OpenCall] = {}
        self._closed: dict[str, str] = {}

    @property
    def pending(self) -> tuple[PendingClientCall, ...]:
        """Oldest first."""
        return tuple(each.call for each in self._open.values())

    def deliver(self, call_id: str, content: JsonValue, *, is_error: bool = False) -> None:
        """Answer a call. Raises SessionError if it is not open."""
        waiting = self._open.get(call_id)
        if waiting is None:
            raise self._not_open_error(call_id)
        waiting.content, waiting.is_error = content, is_error
        # Close it now, so that a second answer is refused before the call continues.
        self._close(waiting, "answered")
        waiting.is_answered.set()

    def as_tools(self, tools: Sequence[ClientTool]) -> list[Tool]:
        """Convert client tools. Raises ToolDefinitionError for an invalid one, and a second one
        of a name."""
        names: set[str] = set()
        for tool in tools:
            if tool.name in names:
                raise ToolDefinitionError(f"there are two client tools named {tool.name!r}")
            names.add(tool.name)
        return [self._as_tool(tool) for tool in tools]

    def _as_tool(self, tool: ClientTool) -> Tool:
        async def execute(given: dict[str, Any], call: ToolCall) -> object:
            return await self._wait_for_result(tool.name, cast("JsonObject", given), call)

        return Tool(
            name=tool.name,
            description=tool.description,
            parameters=tool.parameters,
            execute=execute,
            owner=CLIENT_OWNER,
            source="client",
        )

    async def _wait_for_result(self, name: str, given: JsonObject, call: ToolCall) -> JsonValue:
        tool_id = f"client:{CLIENT_OWNER}:{name}"
        if call.id in self._open:
            raise ToolFailedError(
                f"a call of {name} with the id {call.id!r} is open already",
                code="tool_failed",
                tool_id=tool_id,
            )
        waiting = _OpenCall(
            call=PendingClientCall(
                call_id=call.id, parent_id=call.parent_id, name=name, arguments=copy_json(given)
            )
        )
        with call.pause_timeout():
            self._open[call.id] = waiting
            self._closed.pop(call.id, None)
            self._on_opened(waiting.call)
            try:
                with anyio.move_on_after(self.expiry_seconds):
                    await waiting.is_answered.wait()
            finally:
                if call.id in self._open and self._open[call.id] is waiting:
                    ending = "given up" if call.abort.is_aborted else "expired"
                    self._close(waiting, ending)
        return self._result_value(waiting, call, tool_id)

    def _result_value(self, waiting: _OpenCall, call: ToolCall, tool_id: str) -> JsonValue:
        if not waiting.is_answered.is_set():
            if call.abort.is_aborted:
                raise ToolAbortedError(call.abort.reason, tool_id=tool_id)
            raise ToolFailedError(
                f"the client gave no result within {self.expiry_seconds:g} seconds",
                code="tool_failed",
                tool_id=tool_id,
            )
        if waiting.is_error:
            said = waiting.content
            raise ToolFailedError(
                said if isinstance(said, str) and said else "the client's tool failed",
                code="tool_failed",
                tool_id=tool_id,
                details={} if said is None or isinstance(said, str) else {"structured": said},
            )
        return waiting.content

    def _close(self, waiting: _OpenCall, ending: str) -> None:
        call_id = waiting.call.call_id
        del self._open[call_id]
        self._closed[call_id] = ending
        if len(self._closed) > _MAX_ANSWERED_REMEMBERED:
            del self._closed[next(iter(self._closed))]
        self._on_closed(waiting.call, ending)

    def _not_open_error(self, call_id: str) -> SessionError:
        shown = repr(call_id[:_MAX_SHOWN_ID])
        ending = self._closed.get(call_id)
        if ending is None:
            known = ", ".join(call.call_id for call in self.pending) or "none"
            return SessionError(
                f"there is no open client call {shown}; open: {known}", code="not_found"
            )
        return SessionError(
            f"the client call {shown} is over: it was {ending}; the result was not taken",
            code="ended",
        )
