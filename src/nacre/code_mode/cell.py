"""One cell: its program, who may resume it, its legs, its results, its events and telemetry."""

from __future__ import annotations

import math
import time
from collections import Counter
from dataclasses import field
from functools import partial
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias

import anyio

from nacre.json_types import decode_json, encode_json
from nacre.lazy_dataclasses import dataclass
from nacre.sandbox import CellState
from nacre.sandbox import results as cell_results
from nacre.sandbox.cell_leg import SHORT_PERSON_WAIT_SECONDS
from nacre.sandbox.results import PendingRequest, Reason, Usage
from nacre.telemetry import span
from nacre.tools import CatalogCounters

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from nacre.cell_replay import CellRecorder
    from nacre.code_mode.bridge import CellBridge
    from nacre.code_mode.durable_cells import CellJournal
    from nacre.code_mode.mcp_servers import McpServers
    from nacre.config import Language
    from nacre.json_types import JsonObject, JsonValue
    from nacre.run_context import RunContext
    from nacre.sandbox import Cell, CellId, CellResult, Output
    from nacre.tools import Catalog
    from nacre.trajectory import EventKind

_MAX_LISTED_TOOLS: Final = 10
# Cells that end with one of these are counted: the limit is too low, or the model is lost.
_LIMIT_REASONS: Final[frozenset[Reason]] = frozenset(
    {
        "memory_limit_exceeded",
        "output_limit_exceeded",
        "snapshot_limit_exceeded",
        "timeout",
        "too_many_pending_tool_calls",
        "too_many_suspended_runs",
    }
)

State = Literal["running", "waiting", "completed", "failed", "aborted", "expired"]
ResumeCause = Literal["wait", "answer", "person", "restart"]
"""A `wait` of the model, the answer of a person or a client, a person who resumes the cell, or the
restart of its turn in another process."""

_STATES: Final[dict[CellState, State]] = {
    CellState.NEW: "running",
    CellState.RUNNING: "running",
    CellState.WAITING: "waiting",
    CellState.COMPLETED: "completed",
    CellState.FAILED: "failed",
    CellState.ABORTED: "aborted",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class PendingToolCall(PendingRequest):
    """A nested call without a result. Its input is not part of the JSON for the model."""

    call_id: str
    tool_id: str
    is_awaiting_client: bool = False

    @property
    def is_awaiting_approval(self) -> bool:
        return self.is_with_person and not self.is_awaiting_client

    @property
    def is_awaiting_somebody(self) -> bool:
        """Whether the call continues only when a person or a client has answered."""
        return self.is_with_person or self.is_awaiting_client

    def to_json(self) -> JsonObject:
        wire: JsonObject = {"id": self.call_id, "toolId": self.tool_id}
        if self.is_awaiting_approval:
            wire["awaitingApproval"] = True
        if self.is_awaiting_client:
            wire["awaitingClient"] = True
        return wire


@dataclass(frozen=True, kw_only=True, slots=True)
class Telemetry:
    """The catalog of a run, and how it was used so far."""

    catalog_size: int = 0
    sources: Mapping[str, int] = field(default_factory=dict[str, int])
    visible_tools: tuple[str, ...] = ()
    exec_count: int = 0
    wait_count: int = 0
    search_count: int = 0
    describe_count: int = 0
    call_count: int = 0
    called_tools: Mapping[str, int] = field(default_factory=dict[str, int])
    """The number of calls of each tool of the catalog, by id."""
    snapshots: Mapping[str, int] = field(default_factory=dict[str, int])
    """The number of snapshots that were taken, restored, dropped and expired."""
    limit_failures: Mapping[str, int] = field(default_factory=dict[str, int])
    """The number of cells that ended at a limit, by reason."""

    def to_json(self, usage: Usage | None = None) -> JsonObject:
        """`usage` is the usage of a cell."""
        wire: JsonObject = {
            "catalogSize": self.catalog_size,
            "sources": dict(self.sources),
            "visibleTools": list(self.visible_tools),
            "execCount": self.exec_count,
            "waitCount": self.wait_count,
            "searchCount": self.search_count,
            "describeCount": self.describe_count,
            "callCount": self.call_count,
        }
        # Empty members are left out: results are stored with every call.
        for key, counts in (
            ("calledTools", _select_most_called(self.called_tools)),
            ("snapshots", self.snapshots),
            ("limitFailures", self.limit_failures),
        ):
            if counts:
                wire[key] = dict(counts)
        return {**wire, **(usage or Usage()).to_json()}


def _select_most_called(counts: Mapping[str, int]) -> dict[str, int]:
    """The most called tools, and the rest as `other`: a run may call hundreds of tools."""
    ordered = sorted(counts.items(), key=lambda item: -item[1])
    listed = dict(ordered[:_MAX_LISTED_TOOLS])
    others = sum(count for _, count in ordered[_MAX_LISTED_TOOLS:])
    return {**listed, "other": listed.get("other", 0) + others} if others else listed


# The results of the sandbox, with the telemetry of the run. The sandbox cannot add it: it knows
# nothing of runs and tools.


@dataclass(frozen=True, kw_only=True, slots=True)
class Completed(cell_results.Completed):
    """The program returned, and all its calls and timers are done."""

    telemetry: Telemetry = field(default_factory=Telemetry)

    def telemetry_json(self) -> JsonObject:
        return self.telemetry.to_json(self.usage)


@dataclass(frozen=True, kw_only=True, slots=True)
class Waiting(cell_results.Waiting):
    """The program is suspended. Continue it with `wait` and its `cell_id`."""

    pending: tuple[PendingToolCall, ...] = ()
    telemetry: Telemetry = field(default_factory=Telemetry)

    def telemetry_json(self) -> JsonObject:
        return self.telemetry.to_json(self.usage)


@dataclass(frozen=True, kw_only=True, slots=True)
class Failed(cell_results.Failed):
    """There is no value. `error` says what happened and what to do."""

    telemetry: Telemetry = field(default_factory=Telemetry)

    def telemetry_json(self) -> JsonObject:
        return self.telemetry.to_json(self.usage)


CodeModeResult: TypeAlias = Completed | Waiting | Failed


# The counts of a run.


@dataclass(kw_only=True, slots=True)
class SnapshotCounts:
    """Counts the snapshots of a run's cells."""

    taken: int = 0
    restored: int = 0
    dropped: int = 0
    expired: int = 0

    def to_json(self) -> dict[str, int]:
        """The counts that are not zero."""
        counts = {
            "taken": self.taken,
            "restored": self.restored,
            "dropped": self.dropped,
            "expired": self.expired,
        }
        return {name: count for name, count in counts.items() if count}


@dataclass(kw_only=True, slots=True)
class RunTelemetry:
    """Counts the use of a run. Each result has a copy of the counts."""

    catalog: Catalog
    mcp: McpServers
    visible_tools: tuple[str, ...]
    counters: CatalogCounters = field(default_factory=CatalogCounters)
    snapshots: SnapshotCounts = field(default_factory=SnapshotCounts)
    limit_failures: Counter[str] = field(default_factory=Counter[str])
    exec_count: int = 0
    wait_count: int = 0

    def count_failure(self, reason: Reason) -> None:
        if reason in _LIMIT_REASONS:
            self.limit_failures[reason] += 1

    def report(self) -> Telemetry:
        """The counts as they are now."""
        # The tools of a server are known when it has listed them, and only if policy permits them.
        sources = {**self.catalog.source_counts, "mcp": self.mcp.tool_count}
        return Telemetry(
            catalog_size=sum(sources.values()),
            sources=sources,
            visible_tools=self.visible_tools,
            exec_count=self.exec_count,
            wait_count=self.wait_count,
            search_count=self.counters.searches,
            describe_count=self.counters.describes,
            call_count=self.counters.calls,
            called_tools=dict(self.counters.called),
            snapshots=self.snapshots.to_json(),
            limit_failures=dict(self.limit_failures),
        )


class CellRefused(Exception):
    """A cell cannot be started, resumed or suspended, or the input of `exec` or `wait` is invalid.

    Becomes a `failed` result; the message is for the model.
    """

    def __init__(self, message: str, reason: Reason) -> None:
        super().__init__(message)
        self.message = message
        self.reason: Reason = reason


@dataclass(frozen=True, kw_only=True, slots=True)
class ExecInput:
    """A program and its language."""

    code: str
    language: Language


class CellScope(NamedTuple):
    """Who may resume a cell: only the same agent, session, sender and agent run."""

    session_id: str
    session_key: str
    agent_id: str
    sender: str
    agent_run_id: str

    @classmethod
    def of(cls, context: RunContext) -> CellScope:
        return cls(
            session_id=context.session_id,
            session_key=context.session_key,
            agent_id=context.agent_id,
            sender=context.sender,
            agent_run_id=context.run_id,
        )

    @classmethod
    def from_text(cls, text: str) -> CellScope:
        """Parse what `to_text` has returned. Raises ValueError."""
        fields = decode_json(text.encode())
        if not isinstance(fields, list) or len(fields) != len(cls._fields):
            raise ValueError("this is not the scope of a cell")
        return cls(*map(str, fields))

    def to_text(self) -> str:
        """As text that snapshots are bound to."""
        return encode_json(list(self)).decode()


@dataclass(frozen=True, kw_only=True, slots=True)
class CellInfo:
    """A live or suspended cell, for the operator of a runtime."""

    cell_id: CellId
    state: State
    age_seconds: float
    snapshot_bytes: int
    pending: tuple[PendingToolCall, ...]
    context: RunContext
    call_id: str
    """The call of `exec` that started the cell."""
    language: Language
    code: str
    reason: str
    """Why a waiting cell was suspended; empty for a running one."""
    expires_in_seconds: float | None
    """When a waiting cell is aborted if nobody resumes it; None for a running one."""
    can_be_resumed: bool
    """Whether `Runtime.resume_cell` resumes it."""
    is_stored: bool = False
    """Whether another process can continue it."""


class CodeModeCell:
    """A cell with its bridge, its span and its events in the trajectory."""

    def __init__(
        self,
        cell: Cell,
        bridge: CellBridge,
        *,
        program: ExecInput,
        record: CellRecorder,
        on_end: Callable[[CodeModeCell], None],
        journal: CellJournal | None = None,
        output: tuple[Output, ...] = (),
    ) -> None:
        """`on_end` is called once, when the program has ended. `journal` stores a durable cell;
        `output` is what another process has stored of it."""
        tools = bridge.tools
        self._cell = cell
        self._bridge = bridge
        self._program = program
        self._replay_record = record
        record.cell_id = cell.cell_id
        self._wait_reason = ""
        self._counts = tools.telemetry.snapshots
        self._on_end = on_end
        self._journal = journal
        self._person_seconds = (
            SHORT_PERSON_WAIT_SECONDS if journal is None else journal.person_seconds
        )
        self.unseen_output = output
        """The output of earlier legs that the model has not seen, because only people or clients
        held up the program; recorded for durable cells only."""
        self._started = time.monotonic()
        self._is_expired = False
        self._is_ended = False
        self.recorder = tools.executor.recorder
        self.context = tools.executor.context
        self.call_id = bridge.exec_call_id
        self.ttl_seconds = tools.config.snapshot_ttl_seconds
        self.abort_reason: str | None = None
        """The reason of an abort that has been requested."""
        self.is_awaited = False
        """Whether a call of the model resumes the suspended cell when somebody has answered."""
        self.resumed_by_person = anyio.Event()
        """Set when a person has resumed the cell, or it has ended. Made anew at each suspension."""
        self._span = bridge.span
        self._span.set("nacre.cell.id", cell.cell_id)

    @property
    def cell_id(self) -> CellId:
        return self._cell.cell_id

    @property
    def state(self) -> State:
        return "expired" if self._is_expired else _STATES[self._cell.state]

    async def run(self) -> CellResult:
        """Run the first leg."""
        self._record("cell.started", {})
        return await self._run_leg(partial(self._cell.run, person_seconds=self._person_seconds))

    async def resume(self, cause: ResumeCause) -> CellResult:
        """Run the next leg."""
        if cause == "wait":
            # The model has the id of the cell from the result that contains it.
            self.unseen_output = ()
        self._counts.restored += 1
        self._record("cell.resumed", {"cause": cause})
        with span("nacre.resume", {"nacre.cell.id": self.cell_id}, parent=self._span):
            # The sooner a durable cell is suspended, the sooner it is stored.
            is_patient = cause == "wait" or self._journal is None
            person_seconds = math.inf if is_patient else self._person_seconds
            return await self._run_leg(partial(self._cell.resume, person_seconds=person_seconds))

    async def store(self, *, max_per_session: int) -> bool:
        """Store the waiting cell if it is durable; False if its session has too many cells.

        Raises StorageError.
        """
        if self._journal is None:
            return True
        # First: another process continues the record of the program where the cell ends.
        await self.recorder.wait_until_stored()
        is_stored = await self._journal.suspend(
            self._cell.to_stored(),
            self._program,
            self.unseen_output,
            recorded_bursts=self._replay_record.count,
            ttl_seconds=self.ttl_seconds,
            max_per_session=max_per_session,
        )
        if is_stored and self._is_ended:
            # It was aborted meanwhile.
            await self._journal.delete()
        return is_stored

    @property
    def is_stored(self) -> bool:
        """Whether another process can continue it."""
        return self._journal is not None and self._journal.is_stored

    async def settle(self) -> None:
        """Wait until a write to the store that has begun has ended."""
        if self._journal is not None:
            await self._journal.settle()

    def detach(self) -> None:
        """Leave a stored cell to the next process."""
        if self._journal is not None:
            self._journal.detach()

    async def forget(self) -> None:
        """Delete a durable cell that has ended from the store."""
        if self._journal is not None:
            await self._journal.delete()

    def request_abort(self, reason: str) -> None:
        """Announce an abort: the cell is not suspended or resumed any more, and starts no call."""
        if self.abort_reason is None:
            self.abort_reason = reason
        self._cell.cancel_requests(reason)

    async def abort(self, reason: str) -> None:
        """Abort the cell in any state, with its calls."""
        self.request_abort(reason)
        if self.state == "waiting":
            self._counts.dropped += 1
        await self._cell.abort(reason)
        self._record_end({"status": "aborted", "reason": reason})
        await self.forget()

    async def expire(self) -> None:
        """Abort the cell because it was not resumed in time."""
        self._is_expired = True
        self._counts.expired += 1
        await self._cell.abort("the suspended run expired")
        self._record_end({"status": "expired"})
        await self.forget()

    def info(self, *, expires: float | None = None) -> CellInfo:
        """`expires` is a time of the monotonic clock, for a suspended cell."""
        is_waiting = self.state == "waiting"
        return CellInfo(
            cell_id=self.cell_id,
            state=self.state,
            age_seconds=time.monotonic() - self._started,
            snapshot_bytes=len(self._cell.snapshot or b""),
            pending=self._name_calls(self._cell.pending),
            context=self.context,
            call_id=self.call_id,
            language=self._program.language,
            code=self._program.code,
            reason=self._wait_reason if is_waiting else "",
            expires_in_seconds=None if expires is None else max(0.0, expires - time.monotonic()),
            can_be_resumed=is_waiting and expires is not None and not self.is_awaited,
            is_stored=is_waiting and self.is_stored,
        )

    def to_result(self, result: CellResult, telemetry: RunTelemetry) -> CodeModeResult:
        """Add the telemetry of the run to a result of the sandbox, and name its pending calls."""
        known = telemetry.report()
        match result:
            case cell_results.Completed():
                return Completed(
                    value=result.value, output=result.output, usage=result.usage, telemetry=known
                )
            case cell_results.Waiting():
                return Waiting(
                    cell_id=result.cell_id,
                    reason=result.reason,
                    yield_reason=result.yield_reason,
                    pending=self._name_calls(result.pending),
                    next_timer_ms=result.next_timer_ms,
                    has_returned=result.has_returned,
                    value=result.value,
                    output=result.output,
                    usage=result.usage,
                    telemetry=known,
                )
            case cell_results.Failed():
                return Failed(
                    error=self._describe_failure(result),
                    reason=result.reason,
                    position=result.position,
                    cancelled=self._name_calls(result.cancelled),
                    output=result.output,
                    usage=result.usage,
                    telemetry=known,
                )

    def _describe_failure(self, result: cell_results.Failed) -> str:
        """The error. If the program did all its work and only the output does not fit, it also
        names the calls, so that the model does not repeat them."""
        calls = self._bridge.describe_completed_calls()
        if result.reason != "output_limit_exceeded" or not calls:
            return result.error
        return f"{result.error}; completed calls: {calls}"

    def _name_calls(
        self, requests: tuple[cell_results.PendingRequest, ...]
    ) -> tuple[PendingToolCall, ...]:
        return tuple(
            PendingToolCall(
                id=request.id,
                method=request.method,
                is_with_person=request.is_with_person,
                call_id=self._bridge.call_id_of(request.id),
                tool_id=self._bridge.tool_id_of(request),
                is_awaiting_client=self._bridge.is_with_client(request.id),
            )
            for request in requests
        )

    async def _run_leg(self, leg: Callable[[], Awaitable[CellResult]]) -> CellResult:
        try:
            result = await leg()
        except anyio.get_cancelled_exc_class():
            self._record_end({"status": "aborted", "reason": "the caller was cancelled"})
            await self.forget()
            raise
        if self._journal is not None:
            self.unseen_output = (*self.unseen_output, *result.output)
        self._record_result(result)
        if not isinstance(result, cell_results.Waiting):
            await self.forget()
        return result

    def _record_result(self, result: CellResult) -> None:
        self._replay_record.write(result)
        for item in result.output:
            match item:
                case cell_results.TextOutput():
                    self._record("cell.output", {"text": item.text})
                case cell_results.JsonOutput():
                    self._record("cell.output", {"result": item.value})
                case cell_results.ImageOutput():
                    self._record("cell.output", {"result": item.to_json()})
        match result:
            case cell_results.Waiting():
                self._record_suspension(result)
            case cell_results.Completed():
                self._record_end({"status": "completed"})
            case cell_results.Failed(reason="aborted"):
                self._record_end({"status": "aborted", "reason": result.error})
            case cell_results.Failed():
                self._record_end({"status": "failed", "reason": result.reason})

    def _record_suspension(self, result: cell_results.Waiting) -> None:
        self._counts.taken += 1
        self._wait_reason = result.reason
        self.resumed_by_person = anyio.Event()
        size = result.usage.snapshot_bytes
        attributes = {"nacre.cell.id": self.cell_id, "nacre.snapshot.bytes": size}
        span("nacre.suspend", attributes, parent=self._span).end()
        # A cell that cannot be stored is aborted.
        durable: JsonObject = {} if self._journal is None else {"isDurable": True}
        self._record("cell.suspended", {"reason": result.reason, "snapshotBytes": size, **durable})

    def _record_end(self, data: JsonObject) -> None:
        """Record the end once: both an abort and the leg that it ends call this."""
        if self._is_ended:
            return
        self._is_ended = True
        self.resumed_by_person.set()
        self._replay_record.write()
        aborted: list[JsonValue] = [
            self._bridge.tool_id_of(request) for request in self._cell.cancelled
        ]
        self._record("cell.ended", {**data, "abortedCalls": aborted} if aborted else data)
        self._span.set("nacre.cell.status", str(data["status"]))
        self._span.end()
        self._on_end(self)

    def _record(self, kind: EventKind, data: JsonObject) -> None:
        self.recorder.record(kind, call_id=self.call_id, data={"runId": self.cell_id, **data})
