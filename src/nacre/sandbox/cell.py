"""A cell: one program in the sandbox, and its states.

new -> running -> waiting -> running -> completed | failed | aborted

`run` starts the program, `resume` continues it and `abort` ends it. A leg is one `run` or `resume`.
At most one leg runs at a time, while the state is `running`.
"""

import time
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

import anyio
from anyio.abc import TaskGroup

from nacre.errors import CellStateError
from nacre.ids import CellId
from nacre.json_types import JsonValue
from nacre.sandbox.cell_leg import CellBursts, CellLeg, FirstBurst, LegBudget, build_cell_context
from nacre.sandbox.cell_vm import SandboxRuntime
from nacre.sandbox.program import Program, TypeScriptTransforms
from nacre.sandbox.results import CellResult, Completed, Failed, PendingRequest, Waiting


class CellState(Enum):
    """The state of a cell."""

    NEW = "new"
    RUNNING = "running"
    WAITING = "waiting"
    COMPLETED = "completed"
    FAILED = "failed"
    ABORTED = "aborted"


_TRANSITIONS: Final[dict[CellState, frozenset[CellState]]] = {
    CellState.NEW: frozenset({CellState.RUNNING, CellState.ABORTED}),
    CellState.RUNNING: frozenset(
        {CellState.WAITING, CellState.COMPLETED, CellState.FAILED, CellState.ABORTED}
    ),
    CellState.WAITING: frozenset({CellState.RUNNING, CellState.ABORTED}),
    CellState.COMPLETED: frozenset(),
    CellState.FAILED: frozenset(),
    CellState.ABORTED: frozenset(),
}
_STATE_AFTER: Final[dict[type[CellResult], CellState]] = {
    Completed: CellState.COMPLETED,
    Failed: CellState.FAILED,
    Waiting: CellState.WAITING,
}


def check_transition(before: CellState, after: CellState) -> None:
    """Raise CellStateError unless a cell can change between these states."""
    if after not in _TRANSITIONS[before]:
        raise CellStateError(f"a cell cannot go from {before.value} to {after.value}")


def state_after_leg(result: CellResult | None) -> CellState:
    """Return the state after a leg with this result. Without a result, the leg was aborted."""
    return CellState.ABORTED if result is None else _STATE_AFTER[type(result)]


@dataclass(frozen=True, kw_only=True, slots=True)
class CellServices:
    """The parts of a sandbox that its cells use."""

    runtime: SandboxRuntime
    typescript: TypeScriptTransforms
    tasks: TaskGroup
    running: "set[Cell]"


class Cell:
    """A program in the sandbox. Create it with `Sandbox.cell`."""

    def __init__(self, program: Program, services: CellServices) -> None:
        self.state = CellState.NEW
        self._limits = program.limits
        self._running_cells = services.running
        self._context = build_cell_context(
            program,
            runtime=services.runtime,
            typescript=services.typescript,
            tasks=services.tasks,
            wake=self.wake,
        )
        self._vm = self._context.vm
        self._requests = self._context.requests
        self._bursts = CellBursts(self._context)
        self._leg: CellLeg | None = None

    @property
    def cell_id(self) -> CellId:
        return self._context.cell_id

    async def run(self) -> CellResult:
        """Start the program and return the result of its first leg."""
        return await self._run_leg(CellState.NEW, self._bursts.start)

    async def resume(self) -> CellResult:
        """Continue a waiting program and return the result of its next leg."""
        return await self._run_leg(CellState.WAITING, self._bursts.resume)

    async def abort(self, reason: str = "the run was aborted") -> None:
        """End the program now, in any state. Has no effect after its end."""
        self.cancel_requests(reason)
        if self._leg is not None:
            await self._leg.abort(reason)
        # A running leg may have ended in `waiting` just before the abort reached it.
        if self.state in (CellState.NEW, CellState.WAITING):
            self._move_to(CellState.ABORTED)
            await self._vm.drop()

    def cancel_requests(self, reason: str) -> None:
        """Cancel all unanswered requests, which is the first step of an abort."""
        self._requests.cancel(reason)

    def wake(self) -> None:
        """Make a waiting leg check again for answers, its worker and the sandbox."""
        if self._leg is not None:
            self._leg.wake()

    @property
    def pending(self) -> tuple[PendingRequest, ...]:
        """The unanswered requests."""
        return self._requests.pending

    @property
    def has_returned(self) -> bool:
        """Whether the program has returned. Its calls and timers may not be done yet."""
        return self._bursts.has_returned

    @property
    def value(self) -> JsonValue:
        """The value that the program returned."""
        return self._bursts.value

    @property
    def cancelled(self) -> tuple[PendingRequest, ...]:
        """The requests that were cancelled while their handlers were running."""
        return self._requests.cancelled

    @property
    def snapshot(self) -> bytes | None:
        """The sealed snapshot, while the cell is suspended."""
        return self._vm.sealed

    async def _run_leg(self, expected: CellState, first_burst: FirstBurst) -> CellResult:
        if self.state is not expected:
            raise CellStateError(f"the cell is {self.state.value}, not {expected.value}")
        self._move_to(CellState.RUNNING)
        leg = self._leg = CellLeg(self._context, self._bursts, self._budget(expected))
        started = time.monotonic()
        result: CellResult | None = None
        self._running_cells.add(self)
        try:
            result = await leg.run(first_burst)
        finally:
            # The result is missing after an abort, a cancellation of the caller, or a bug.
            if result is None:
                self._requests.cancel(leg.abort_reason or "the run was cancelled")
                with anyio.CancelScope(shield=True):
                    await self._vm.drop()
            self._move_to(state_after_leg(result))
            self._requests.wake_idle_server()
            self._running_cells.discard(self)
            self._leg = None
            leg.ended.set()
        return self._add_usage(
            result or Failed(error=leg.abort_reason, reason="aborted"), started=started
        )

    def _budget(self, state: CellState) -> LegBudget:
        return LegBudget(self._limits.timeout_ms / 1000, is_first_leg=state is CellState.NEW)

    def _add_usage(self, result: CellResult, *, started: float) -> CellResult:
        """Return the result with the output of its leg and the usage of the cell so far."""
        usage = self._context.usage
        usage.wall_ms += (time.monotonic() - started) * 1000
        usage.unfinished_requests = self._requests.pending_count
        if isinstance(result, Failed):
            result = replace(result, cancelled=self._requests.cancelled)
        return replace(result, output=self._context.output.take(), usage=replace(usage))

    def _move_to(self, state: CellState) -> None:
        # All state changes go through here.
        check_transition(self.state, state)
        self.state = state
