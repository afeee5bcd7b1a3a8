"""One leg of a cell: bursts of the program, and waits for answers or timers between them.

Nothing that a worker says is trusted.

A leg ends when the program ends, when it yields, or when its budget is used up while it only waits;
in the last two cases the VM becomes a snapshot and its worker is free.
"""

import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Final, Literal, TypeVar

import anyio
import anyio.lowlevel
from anyio.abc import TaskGroup

from nacre.errors import SandboxError, WorkerProtocolError
from nacre.ids import CellId, new_cell_id
from nacre.sandbox.cell_vm import (
    CellVm,
    OverranBudget,
    RestoreFailed,
    SandboxRuntime,
    SnapshotTooLarge,
)
from nacre.sandbox.host_requests import HostRequest, HostRequests
from nacre.sandbox.program import (
    NotJavaScript,
    Program,
    ProgramSource,
    TypeScriptTransforms,
    failed_from,
)
from nacre.sandbox.results import (
    MAX_ANSWER_BYTES,
    MAX_REQUEST_BACKLOG,
    CellResult,
    Completed,
    Failed,
    JsonOutput,
    Output,
    TextOutput,
    Usage,
    Waiting,
)
from nacre.sandbox.worker_events import (
    BurstEvent,
    EventReader,
    RequestEvent,
    YieldEvent,
    json_of,
    output_of,
    reason_of,
)
from nacre.sandbox.worker_process import in_thread
from nacre.sandbox.worker_protocol import OUTPUT_ITEM_BYTES, Command, Event, Frame

logger = logging.getLogger(__name__)

_BIG_TAIL_BYTES: Final = 1 << 18
# A program that approves by itself answers at once; a person does not, and nobody should hold the
# line for one when `waiting` can be said instead.
_PATIENCE_WITH_PEOPLE_SECONDS: Final = 0.5

_Result = TypeVar("_Result")


class LegBudget:
    """Seconds that are left to a leg, for its own doings and for waiting for people."""

    def __init__(self, seconds: float, *, is_first_leg: bool) -> None:
        self.seconds_left = seconds
        self._patience_left = seconds
        if is_first_leg:
            self._patience_left = min(seconds, _PATIENCE_WITH_PEOPLE_SECONDS)

    @property
    def is_used_up(self) -> bool:
        return self.seconds_left <= 0 or self._patience_left <= 0

    def left_for_wait(self, *, is_for_people: bool) -> float:
        """How long a wait may last, in seconds."""
        return self._patience_left if is_for_people else self.seconds_left

    def charge_wait(self, seconds: float, *, is_for_people: bool) -> None:
        if is_for_people:
            self._patience_left -= seconds
        else:
            self.seconds_left -= seconds

    async def charge(self, burst: Awaitable[_Result]) -> _Result:
        """Await a burst on the budget."""
        started = time.monotonic()
        try:
            return await burst
        finally:
            self.seconds_left -= time.monotonic() - started


class CellOutput:
    """The output of one cell."""

    def __init__(
        self, *, max_bytes: int, usage: Usage, on_output: Callable[[Output], None] | None
    ) -> None:
        self.bytes_left = max_bytes
        self._usage = usage
        self._on_output = on_output
        self._items: list[Output] = []

    def add(self, frame: Frame) -> None:
        """Take an item from a worker, which is not trusted."""
        kind, content = output_of(frame)
        # The worker counts too; this is for one that no longer does.
        self.bytes_left -= len(content) + OUTPUT_ITEM_BYTES
        if self.bytes_left < 0:
            raise WorkerProtocolError("a worker sent more output than the cell may have")
        item = (
            JsonOutput(value=json_of(content))
            if kind == "json"
            else TextOutput(text=content.decode(errors="replace"))
        )
        self._items.append(item)
        self._usage.output_bytes += len(content)
        self._show(item)

    def take(self) -> tuple[Output, ...]:
        """What came since the last time."""
        items, self._items = self._items, []
        return tuple(items)

    def _show(self, item: Output) -> None:
        if self._on_output is None:
            return
        try:
            self._on_output(item)
        except Exception:
            # The caller's own fault is not the program's: the result has the item all the same.
            logger.exception("the caller's on_output failed")


@dataclass(frozen=True, kw_only=True, slots=True)
class CellContext:
    """A program, where its VM is, what it asked for, what it put out, and what it used."""

    cell_id: CellId
    program: Program
    source: ProgramSource
    vm: CellVm
    requests: HostRequests
    output: CellOutput
    usage: Usage


def build_cell_context(
    program: Program,
    *,
    home: SandboxRuntime,
    typescript: TypeScriptTransforms,
    tasks: TaskGroup,
    wake: Callable[[], None],
) -> CellContext:
    """The parts of a new cell; `wake` is called when a leg that waits has to look around."""
    limits, usage = program.limits, Usage()
    output = CellOutput(max_bytes=limits.max_output_bytes, usage=usage, on_output=program.on_output)
    vm = CellVm(
        home,
        limits,
        owner=program.owner,
        shared=program.shared,
        on_output=output.add,
        on_trouble=wake,
    )
    requests = HostRequests(
        program.handler,
        tasks=tasks,
        most_at_once=limits.max_pending_tool_calls,
        most_bytes=max(limits.memory_limit_bytes, MAX_ANSWER_BYTES),
        wake=wake,
    )
    return CellContext(
        cell_id=new_cell_id(),
        program=program,
        source=ProgramSource(program, typescript),
        vm=vm,
        requests=requests,
        output=output,
        usage=usage,
    )


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
            cell_id=self._parts.cell_id,
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
