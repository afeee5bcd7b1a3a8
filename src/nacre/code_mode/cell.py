"""One cell of a run: the sandbox's cell, and what the run has to know about it.

running -> waiting -> running -> completed | failed
running | waiting -> aborted,  waiting -> expired
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

import anyio

from nacre.code_mode.results import (
    CodeModeResult,
    Completed,
    Failed,
    PendingToolCall,
    Telemetry,
    Waiting,
)
from nacre.sandbox import CellState
from nacre.sandbox import results as cell_results
from nacre.telemetry.spans import span

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from nacre.code_mode.bridge import CellBridge
    from nacre.code_mode.run_telemetry import SnapshotCounts
    from nacre.ids import CellId
    from nacre.json_types import JsonObject
    from nacre.run_context import RunContext
    from nacre.sandbox import Cell, CellResult, Usage
    from nacre.trajectory import EventKind, TrajectoryRecorder

State = Literal["running", "waiting", "completed", "failed", "aborted", "expired"]

_STATES: Final[dict[CellState, State]] = {
    CellState.NEW: "running",
    CellState.RUNNING: "running",
    CellState.WAITING: "waiting",
    CellState.COMPLETED: "completed",
    CellState.FAILED: "failed",
    CellState.ABORTED: "aborted",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class CellInfo:
    """A live or suspended cell, for people who look after a runtime."""

    run_id: CellId
    state: State
    age_seconds: float
    snapshot_bytes: int
    pending: tuple[PendingToolCall, ...]
    context: RunContext
    call_id: str
    """The call of `exec` that started it."""


class CodeModeCell:
    """A cell with its parent call, its bridge and its place in the record."""

    def __init__(
        self,
        cell: Cell,
        *,
        bridge: CellBridge,
        context: RunContext,
        call_id: str,
        ttl_seconds: int,
        recorder: TrajectoryRecorder,
        counts: SnapshotCounts,
    ) -> None:
        self._cell = cell
        self._bridge = bridge
        self.recorder = recorder
        self._counts = counts
        self._started = time.monotonic()
        self._is_expired = False
        self._is_ended = False
        self.context = context
        self.call_id = call_id
        self.ttl_seconds = ttl_seconds
        self.abort_reason: str | None = None
        """Why it is to end, once an abort is wanted."""
        self.on_end: Callable[[], None] | None = None
        """Called when the program is over, however that came."""
        self._span = span("nacre.cell", {"nacre.call.id": call_id, "nacre.cell.id": cell.cell_id})
        bridge.span = self._span

    @property
    def cell_id(self) -> CellId:
        return self._cell.cell_id

    @property
    def state(self) -> State:
        return "expired" if self._is_expired else _STATES[self._cell.state]

    @property
    def is_over(self) -> bool:
        """Whether nothing of it runs any more, calls that it left behind included."""
        # Only a program that completed leaves calls behind: in all other ends they are cancelled,
        # and never answered.
        if self.state == "completed":
            return not self._cell.pending
        return self.state not in ("running", "waiting")

    async def run(self) -> CellResult:
        """The first leg."""
        self._record("cell.started", {})
        return await self._run_leg(self._cell.run)

    async def resume(self) -> CellResult:
        """The next leg."""
        self._counts.restored += 1
        self._record("cell.resumed", {})
        with span("nacre.resume", {"nacre.cell.id": self.cell_id}, parent=self._span):
            return await self._run_leg(self._cell.resume)

    def request_abort(self, reason: str) -> None:
        """Say at once that an abort is coming: nobody suspends or resumes it any more, and none of
        its calls begins."""
        if self.abort_reason is None:
            self.abort_reason = reason
        self._cell.give_up_requests(reason)

    async def abort(self, reason: str) -> None:
        """End it wherever it is, calls that it left behind included."""
        self.request_abort(reason)
        if self.state == "waiting":
            self._counts.dropped += 1
        await self._cell.abort(reason)
        self._record_end({"status": "aborted", "reason": reason})

    async def expire(self) -> None:
        """Its time to be resumed is over."""
        self._is_expired = True
        self._counts.expired += 1
        await self._cell.abort("the suspended run expired")
        self._record_end({"status": "expired"})

    def info(self) -> CellInfo:
        return CellInfo(
            run_id=self.cell_id,
            state=self.state,
            age_seconds=time.monotonic() - self._started,
            snapshot_bytes=len(self._cell.snapshot or b""),
            pending=self._pending(self._cell.pending),
            context=self.context,
            call_id=self.call_id,
        )

    def to_result(
        self, result: CellResult, telemetry: Callable[[Usage], Telemetry]
    ) -> CodeModeResult:
        """The sandbox's result in the shape of the contract."""
        known = telemetry(result.usage)
        match result:
            case cell_results.Completed():
                return Completed(value=result.value, output=result.output, telemetry=known)
            case cell_results.Waiting():
                return Waiting(
                    run_id=result.run_id,
                    reason=result.reason,
                    yield_reason=result.yield_reason,
                    pending=self._pending(result.pending),
                    has_timer=result.has_timer,
                    output=result.output,
                    telemetry=known,
                )
            case cell_results.Failed():
                return Failed(
                    error=result.error,
                    reason=result.reason,
                    position=result.position,
                    output=result.output,
                    telemetry=known,
                )

    def _pending(
        self, requests: tuple[cell_results.PendingRequest, ...]
    ) -> tuple[PendingToolCall, ...]:
        return tuple(
            PendingToolCall(
                id=self._bridge.call_id_of(request.id),
                tool_id=self._bridge.tool_id_of(request),
                is_awaiting_approval=request.is_with_person
                and not self._bridge.is_with_client(request.id),
                is_awaiting_client=self._bridge.is_with_client(request.id),
            )
            for request in requests
        )

    async def _run_leg(self, leg: Callable[[], Awaitable[CellResult]]) -> CellResult:
        try:
            result = await leg()
        except anyio.get_cancelled_exc_class():
            self._record_end({"status": "aborted", "reason": "the caller was cancelled"})
            raise
        self._record_result(result)
        return result

    def _record_result(self, result: CellResult) -> None:
        for item in result.output:
            match item:
                case cell_results.TextOutput():
                    self._record("cell.output", {"text": item.text})
                case cell_results.JsonOutput():
                    self._record("cell.output", {"result": item.value})
        match result:
            case cell_results.Waiting():
                self._record_suspension(result)
            case cell_results.Completed():
                left = result.usage.unfinished_requests
                self._record_end({"status": "completed", "unfinishedCalls": left})
            case cell_results.Failed(reason="aborted"):
                self._record_end({"status": "aborted", "reason": result.error})
            case cell_results.Failed():
                self._record_end({"status": "failed", "reason": result.reason})

    def _record_suspension(self, result: cell_results.Waiting) -> None:
        self._counts.taken += 1
        size = result.usage.snapshot_bytes
        attributes = {"nacre.cell.id": self.cell_id, "nacre.snapshot.bytes": size}
        span("nacre.suspend", attributes, parent=self._span).end()
        self._record("cell.suspended", {"reason": result.reason, "snapshotBytes": size})

    def _record_end(self, data: JsonObject) -> None:
        """Note the end, once: an abort and the leg that it ends both come here."""
        if self._is_ended:
            return
        self._is_ended = True
        self._record("cell.ended", data)
        self._span.set("nacre.cell.status", str(data["status"]))
        self._span.end()
        if self.on_end is not None:
            self.on_end()

    def _record(self, kind: EventKind, data: JsonObject) -> None:
        self.recorder.record(kind, call_id=self.call_id, data={"runId": self.cell_id, **data})
