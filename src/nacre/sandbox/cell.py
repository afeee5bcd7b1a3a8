"""One program and its states: `run` starts it, `resume` continues it, `abort` ends it.

new -> running -> waiting -> running -> completed | failed | aborted

A leg is one `run` or `resume`. At most one is under way, and the cell's state says whether one is.
"""

import time
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

import anyio
from anyio.abc import TaskGroup

from nacre.errors import CellStateError
from nacre.ids import CellId
from nacre.sandbox.cell_leg import CellBursts, CellLeg, FirstBurst, LegBudget, build_cell_context
from nacre.sandbox.cell_vm import SandboxRuntime
from nacre.sandbox.program import Program, TypeScriptTransforms
from nacre.sandbox.results import CellResult, Completed, Failed, PendingRequest, Waiting


class CellState(Enum):
    """Where a cell is in its life."""

    NEW = "new"
    RUNNING = "running"
    WAITING = "waiting"
    COMPLETED = "completed"
    FAILED = "failed"
    ABORTED = "aborted"


_MOVES: Final[dict[CellState, frozenset[CellState]]] = {
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


def check_move(before: CellState, after: CellState) -> None:
    """Raises CellStateError for a move that no cell makes."""
    if after not in _MOVES[before]:
        raise CellStateError(f"a cell cannot go from {before.value} to {after.value}")


def state_after(result: CellResult | None) -> CellState:
    """The state that a leg leaves behind; a leg without a result was aborted."""
    return CellState.ABORTED if result is None else _STATE_AFTER[type(result)]


@dataclass(frozen=True, kw_only=True, slots=True)
class CellServices:
    """What a cell needs of the sandbox it runs in."""

    home: SandboxRuntime
    typescript: TypeScriptTransforms
    tasks: TaskGroup
    running: "set[Cell]"


class Cell:
    """A program in the sandbox; created by `Sandbox.cell`."""

    def __init__(self, program: Program, services: CellServices) -> None:
        self.state = CellState.NEW
        self._limits = program.limits
        self._running_cells = services.running
        self._parts = build_cell_context(
            program,
            home=services.home,
            typescript=services.typescript,
            tasks=services.tasks,
            wake=self.wake_up,
        )
        self._vm = self._parts.vm
        self._requests = self._parts.requests
        self._bursts = CellBursts(self._parts)
        self._leg: CellLeg | None = None

    @property
    def cell_id(self) -> CellId:
        return self._parts.cell_id

    async def run(self) -> CellResult:
        """Start the program; the result of its first leg."""
        return await self._run_leg(CellState.NEW, self._bursts.start)

    async def resume(self) -> CellResult:
        """Continue a waiting program; the result of its next leg."""
        return await self._run_leg(CellState.WAITING, self._bursts.resume)

    async def abort(self, reason: str = "the run was aborted") -> None:
        """End the program now, wherever it is; harmless after its end.

        Calls that a completed program left behind are given up as well.
        """
        self.give_up_requests(reason)
        if self._leg is not None:
            await self._leg.abort(reason)
        # Also a leg that came to wait just before the abort reached it.
        if self.state in (CellState.NEW, CellState.WAITING):
            self._move_to(CellState.ABORTED)
            await self._vm.drop()

    def give_up_requests(self, reason: str) -> None:
        """Cancel what is not answered yet; the first step of an abort."""
        self._requests.cancel(reason)

    def wake_up(self) -> None:
        """Have a leg that waits look around: something has changed."""
        if self._leg is not None:
            self._leg.wake_up()

    @property
    def pending(self) -> tuple[PendingRequest, ...]:
        """The requests that are not answered yet, also after the program's end."""
        return self._requests.pending

    @property
    def snapshot(self) -> bytes | None:
        """The sealed snapshot while the cell waits."""
        return self._vm.sealed

    async def _run_leg(self, expected: CellState, first_burst: FirstBurst) -> CellResult:
        if self.state is not expected:
            raise CellStateError(f"the cell is {self.state.value}, not {expected.value}")
        self._move_to(CellState.RUNNING)
        leg = self._leg = CellLeg(self._parts, self._bursts, self._budget(expected))
        started = time.monotonic()
        result: CellResult | None = None
        self._running_cells.add(self)
        try:
            result = await leg.run(first_burst)
        finally:
            # Reached by abort, by the caller's own cancellation, and by faults of ours alike.
            if result is None:
                self._requests.cancel(leg.abort_reason or "the run was cancelled")
                with anyio.CancelScope(shield=True):
                    await self._vm.drop()
            self._move_to(state_after(result))
            self._requests.let_go()
            self._running_cells.discard(self)
            self._leg = None
            leg.ended.set()
        return self._add_usage(
            result or Failed(error=leg.abort_reason, reason="aborted"), started=started
        )

    def _budget(self, state: CellState) -> LegBudget:
        return LegBudget(self._limits.timeout_ms / 1000, is_first_leg=state is CellState.NEW)

    def _add_usage(self, result: CellResult, *, started: float) -> CellResult:
        """A leg's result with what the program put out in it and has used so far."""
        usage = self._parts.usage
        usage.wall_ms += (time.monotonic() - started) * 1000
        usage.unfinished_requests = self._requests.pending_count
        return replace(result, output=self._parts.output.take(), usage=replace(usage))

    def _move_to(self, state: CellState) -> None:
        """The one place that changes the state."""
        check_move(self.state, state)
        self.state = state
