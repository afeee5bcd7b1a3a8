"""The bursts of a cell: what a worker is told to do, and what it says came of it.

Nothing that a worker says is trusted.
"""

import time
from functools import partial
from typing import Final

from nacre.errors import WorkerProtocolError
from nacre.sandbox.cell_context import CellContext, LegBudget
from nacre.sandbox.host_requests import HostRequest
from nacre.sandbox.limits import MAX_REQUEST_BACKLOG
from nacre.sandbox.results import Completed, Failed
from nacre.sandbox.threads import in_thread
from nacre.sandbox.worker_events import (
    BurstEvent,
    EventReader,
    RequestEvent,
    YieldEvent,
    reason_of,
)
from nacre.sandbox.worker_protocol import Command, Event, Frame

_BIG_TAIL_BYTES: Final = 1 << 18


class CellBursts:
    """Lets a program run in bursts; knows what it waits for after each."""

    def __init__(self, parts: CellContext) -> None:
        self._parts = parts
        self._vm = parts.vm
        self._requests = parts.requests
        self._limits = parts.program.limits
        methods = frozenset(parts.program.functions)
        if parts.program.shared is not None:
            methods |= parts.program.shared.methods
        self._events = EventReader(methods, max_value_bytes=self._limits.max_output_bytes)
        self.yields: tuple[YieldEvent, ...] = ()
        self._timer_due: float | None = None

    @property
    def has_timer(self) -> bool:
        return self._timer_due is not None

    def seconds_until_timer(self) -> float:
        return float("inf") if self._timer_due is None else self._timer_due - time.time()

    # Each ends with the frame that says how the burst ended.

    async def start(self, budget: LegBudget) -> Frame:
        """The program's first burst."""
        source = self._parts.source
        code = await source.javascript()
        fields = {
            **self._cell_fields(budget),
            "functions": self._parts.program.functions,
            "fileName": source.file_name,
        }
        await self._vm.start(fields, code)
        return await budget.charge(self._vm.finish(budget.seconds_left))

    async def resume(self, budget: LegBudget) -> Frame | None:
        """The first burst of a later leg; None if there is nothing to tell the program yet."""
        for each in self.yields:
            self._requests.answer(each.id)
        self.yields = ()
        return await self.go_on(budget) if self._requests.has_answers else None

    async def go_on(self, budget: LegBudget) -> Frame:
        """Deliver what came in, or fire what is due."""
        if not self._vm.is_live:
            await self._vm.restore(self._cell_fields(budget))
        self._vm.unpark()
        if self._requests.has_answers:
            settled, answers = self._requests.take_answers()
            return await self._run(Command.DELIVER, {"settled": settled}, answers, budget=budget)
        return await self._run(Command.FIRE_TIMERS, {}, b"", budget=budget)

    async def _run(
        self, command: Command, fields: dict[str, object], tail: bytes, *, budget: LegBudget
    ) -> Frame:
        fields = {**fields, **self._burst_fields(budget)}
        return await budget.charge(
            self._vm.run(command, fields, tail, budget_seconds=budget.seconds_left)
        )

    def _cell_fields(self, budget: LegBudget) -> dict[str, object]:
        return {
            "memoryLimitBytes": self._limits.memory_limit_bytes,
            "outputBytesLeft": self._parts.output.bytes_left,
            "maxOutputBytes": self._limits.max_output_bytes,
            **self._burst_fields(budget),
        }

    def _burst_fields(self, budget: LegBudget) -> dict[str, object]:
        return {
            "budgetMs": max(budget.seconds_left, 0.0) * 1000,
            "maxRequests": self._room_for_requests(),
        }

    def _room_for_requests(self) -> int:
        return MAX_REQUEST_BACKLOG - self._requests.pending_count

    # How they ended.

    async def result_of(self, frame: Frame) -> Completed | Failed | None:
        """Note what a burst came to; a result if the program is over."""
        if frame.kind not in (Event.COMPLETED, Event.FAILED, Event.PARKED):
            raise WorkerProtocolError(f"a worker sent an event of kind {frame.kind}")
        burst = await self._read(frame)
        usage = self._parts.usage
        usage.guest_bursts += 1
        usage.worker_ms += burst.busy_ms
        if frame.kind == Event.FAILED:
            failed = self._parts.source.build_failure(reason_of(frame), frame.fields)
            self._vm.leave()
            return failed
        usage.output_bytes += burst.value_bytes
        self._add_requests(burst.requests)
        if frame.kind == Event.COMPLETED:
            self._vm.leave()
            return Completed(value=burst.value)
        self._note_waits(burst)
        return None

    async def _read(self, frame: Frame) -> BurstEvent:
        read = partial(self._events.burst, frame, max_requests=self._room_for_requests())
        # Reading megabytes of JSON on the event loop would hold up everybody else.
        is_big = len(frame.tail) > _BIG_TAIL_BYTES
        return await in_thread(read) if is_big else read()

    def _add_requests(self, requests: tuple[RequestEvent, ...]) -> None:
        for request in requests:
            self._requests.add(
                HostRequest(
                    id=request.id,
                    method=request.method,
                    payload=request.payload,
                    cell_id=self._parts.cell_id,
                    abort=self._requests.abort_signal,
                    asking_person=partial(self._requests.asking_person, request.id),
                )
            )
        self._parts.usage.requests += len(requests)

    def _note_waits(self, burst: BurstEvent) -> None:
        self.yields = burst.yields
        self._timer_due = None if burst.timer_ms is None else time.time() + burst.timer_ms / 1000
        if not self.yields and self._timer_due is None and not self._requests.is_open:
            raise WorkerProtocolError("a worker says that the program waits for nothing")
