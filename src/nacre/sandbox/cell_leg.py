"""One leg of a cell: a series of bursts, between which the program waits for answers or timers.

A leg ends when the program ends, when it yields, or when its budget is used up while it only waits;
in the last two cases the VM becomes a snapshot and its worker is free.
"""

import logging
import time
from collections.abc import Awaitable, Callable
from typing import Literal

import anyio
import anyio.lowlevel

from nacre.errors import SandboxError
from nacre.sandbox.cell_bursts import CellBursts
from nacre.sandbox.cell_context import CellContext, LegBudget
from nacre.sandbox.cell_vm import OverranBudget, RestoreFailed, SnapshotTooLarge
from nacre.sandbox.failures import failed_from
from nacre.sandbox.program import NotJavaScript
from nacre.sandbox.results import CellResult, Failed, Waiting
from nacre.sandbox.worker_protocol import Frame

logger = logging.getLogger(__name__)

FirstBurst = Callable[[LegBudget], Awaitable[Frame | None]]
"""Starts or continues a program; None if it has nothing to do yet."""


class CellLeg:
    """One `run` or `resume` of a cell."""

    def __init__(self, parts: CellContext, bursts: CellBursts, budget: LegBudget) -> None:
        self._parts = parts
        self._vm = parts.vm
        self._requests = parts.requests
        self._bursts = bursts
        self._budget = budget
        self._scope = anyio.CancelScope()
        self._wake: anyio.Event | None = None
        self.abort_reason = ""
        self.ended = anyio.Event()

    async def run(self, first_burst: FirstBurst) -> CellResult | None:
        """Follow the program to the end of the leg; None if the leg was aborted."""
        with self._scope:
            return await self._run_to_end(first_burst)
        return None

    async def abort(self, reason: str) -> None:
        """Cancel the leg, and wait until its cell has cleaned up after it."""
        self.abort_reason = reason
        self._scope.cancel()
        await self.ended.wait()

    def wake_up(self) -> None:
        """If the leg waits: look around, something has changed."""
        if self._wake is not None:
            self._wake.set()

    async def _run_to_end(self, first_burst: FirstBurst) -> CellResult:
        try:
            result = await self._follow(await first_burst(self._budget))
        except RestoreFailed as error:
            result = self._parts.source.build_failure(
                "snapshot_restore_failed", {"message": str(error)}
            )
        except OverranBudget:
            message = "the program used up its time"
            result = self._parts.source.build_failure("timeout", {"message": message})
        except SandboxError as error:
            result = failed_from(error)
        except NotJavaScript as refusal:
            result = refusal.failed
        except Exception as error:
            # The top of a hostile program: whatever it found is our fault, and ends here.
            logger.exception("a cell ran into a fault of the sandbox")
            result = Failed(error=f"the sandbox has a fault: {error!r}", reason="internal_error")
        if isinstance(result, Failed):
            self._requests.cancel(f"the cell failed: {result.reason}")
            # A worker that still holds the VM of a failed cell is stuck or not to be trusted.
            self._vm.kill()
        return result

    async def _follow(self, frame: Frame | None) -> CellResult:
        """From burst to burst until the leg is over."""
        while True:
            if frame is not None:
                ended = await self._bursts.result_of(frame)
                if ended is not None:
                    return ended
            if self._bursts.yields:
                return await self._suspend("yield")
            if not await self._wait_for_work():
                return await self._suspend("pending_tools" if self._requests.is_open else "yield")
            frame = await self._bursts.go_on(self._budget)

    # Waiting.

    async def _wait_for_work(self) -> bool:
        """Wait for an answer or a timer; False when budget or patience ends before either."""
        # Answers that take no time are there after one turn of the loop: no need to park for them.
        await anyio.lowlevel.checkpoint()
        if not self._requests.has_answers:
            self._vm.park()
        # Checked first: a program that always finds something to do must end its leg as well.
        while not self._budget.is_used_up:
            self._vm.ensure_open()
            if self._requests.has_answers:
                return True
            until_timer = self._bursts.seconds_until_timer()
            if until_timer <= 0:
                return True
            await self._wait(until_timer)
            self._vm.check_alive()
            if self._vm.is_wanted:
                await self._make_room()
        return False

    async def _wait(self, until_timer: float) -> None:
        """Wait for anything that changes, no longer than the budget allows."""
        started = time.monotonic()
        is_for_people = not self._bursts.has_timer and self._requests.only_people_are_left
        left = self._budget.left_for_wait(is_for_people=is_for_people)
        self._wake = anyio.Event()
        with anyio.move_on_after(min(left, until_timer)):
            await self._wake.wait()
        self._budget.charge_wait(time.monotonic() - started, is_for_people=is_for_people)

    # Suspending.

    async def _make_room(self) -> None:
        """Move out of a worker that others need; a VM too large for a snapshot stays."""
        try:
            await self._vm.suspend(self._requests.open_ids())
        except SnapshotTooLarge:
            self._vm.park(can_move=False)

    async def _suspend(self, reason: Literal["pending_tools", "yield"]) -> Waiting | Failed:
        """End the leg, not the program: it waits as a snapshot for the next `resume`."""
        yields = self._bursts.yields
        if self._vm.is_live:
            try:
                open_yields = (each.id for each in yields)
                await self._vm.suspend((*self._requests.open_ids(), *open_yields))
            except SnapshotTooLarge as error:
                await self._vm.drop()
                return self._too_large(error.size)
        self._parts.usage.snapshot_bytes = len(self._vm.sealed or b"")
        return Waiting(
            run_id=self._parts.cell_id,
            reason=reason,
            yield_reason=yields[0].reason if yields else "",
            pending=self._requests.pending,
            has_timer=self._bursts.has_timer,
        )

    def _too_large(self, size: int) -> Failed:
        most = self._parts.program.limits.max_snapshot_bytes
        message = (
            f"the suspended program takes {size} bytes, more than maxSnapshotBytes ({most}); "
            "keep less data alive across a wait"
        )
        return self._parts.source.build_failure("snapshot_limit_exceeded", {"message": message})
