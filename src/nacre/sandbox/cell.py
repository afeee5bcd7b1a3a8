"""One program and its life: `run` starts it, `resume` continues it, `abort` ends it.

    new -> running -> waiting -> running -> completed | failed | aborted

A leg is one `run` or `resume`. It is a series of bursts in a worker, between which the program
waits for answers or timers. A leg ends when the program ends, when it yields, or when its time
budget is used up while it only waits; in the last two cases the VM becomes a snapshot and its
worker is free. The budget counts bursts and waits, not the time in the queue for a worker, nor
suspending, nor the time in which nothing moves until a person answers: for that a first leg waits
only a moment, and a later one as long as its budget is.
"""

import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import partial
from typing import Any, Final, Literal

import anyio
import anyio.lowlevel
from anyio.abc import TaskGroup

from nacre.config.code_mode import LANGUAGES, Language
from nacre.errors import (
    CellStateError,
    RuntimeUnavailableError,
    SandboxError,
    WorkerProtocolError,
)
from nacre.ids import RunId, new_run_id
from nacre.sandbox.byte_columns import ByteColumns
from nacre.sandbox.cell_vm import CellVm, OverranBudget, RestoreFailed, SnapshotTooLarge, VmHome
from nacre.sandbox.failures import MapPosition, failed_from, failed_from_worker
from nacre.sandbox.host_requests import HostRequest, HostRequestHandler, HostRequests
from nacre.sandbox.limits import (
    MAX_ANSWER_BYTES,
    MAX_REQUEST_BACKLOG,
    OUTPUT_ITEM_BYTES,
    Limits,
)
from nacre.sandbox.results import (
    CellResult,
    Completed,
    Failed,
    JsonOutput,
    Output,
    PendingRequest,
    Reason,
    TextOutput,
    Usage,
    Waiting,
)
from nacre.sandbox.shared_data import SharedData
from nacre.sandbox.threads import in_thread
from nacre.sandbox.transforms import TypeScriptTransforms
from nacre.sandbox.worker_events import (
    BurstEvent,
    EventReader,
    RequestEvent,
    YieldEvent,
    json_of,
    output_of,
    reason_of,
)
from nacre.sandbox.worker_protocol import Command, Event, Frame

logger = logging.getLogger(__name__)

_BIG_TAIL_BYTES: Final = 1 << 18
# A program that approves by itself answers at once; a person does not, and nobody should hold the
# line for one when `waiting` can be said instead.
_PATIENCE_WITH_PEOPLE_SECONDS: Final = 0.5


@dataclass(frozen=True, kw_only=True, slots=True)
class Program:
    """What to run, with what, and on whose behalf."""

    code: str
    language: Language = "javascript"
    limits: Limits = field(default_factory=Limits)
    functions: tuple[str, ...] = ()
    shared: SharedData | None = None
    handler: HostRequestHandler | None = None
    on_output: Callable[[Output], None] | None = None
    owner: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class CellServices:
    """What a cell needs of the sandbox it runs in."""

    home: VmHome
    typescript: TypeScriptTransforms
    tasks: TaskGroup
    running: "set[Cell]"


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


class Cell:
    """A program in the sandbox; created by `Sandbox.cell`."""

    def __init__(self, program: Program, services: CellServices) -> None:
        self.run_id: RunId = new_run_id()
        self.state = CellState.NEW
        self._program = program
        self._limits = program.limits
        self._home = services.home
        self._running_cells = services.running
        self._typescript = services.typescript
        self._vm = CellVm(
            services.home,
            program.limits,
            owner=program.owner,
            shared=program.shared,
            on_output=self._take_output,
            on_trouble=self.wake_up,
        )
        self._requests = HostRequests(
            program.handler,
            tasks=services.tasks,
            most_at_once=program.limits.max_pending_tool_calls,
            most_bytes=max(program.limits.memory_limit_bytes, MAX_ANSWER_BYTES),
            wake=self.wake_up,
        )
        methods = frozenset(program.functions)
        if program.shared is not None:
            methods |= program.shared.methods
        self._events = EventReader(methods, max_value_bytes=program.limits.max_output_bytes)
        self._wake = anyio.Event()
        self._map_position: MapPosition | None = None
        self._output: list[Output] = []
        self._output_left = program.limits.max_output_bytes
        self._yields: tuple[YieldEvent, ...] = ()
        self._timer_due: float | None = None
        self._budget_left = 0.0
        self._patience_left = 0.0
        self._leg: anyio.CancelScope | None = None
        self._leg_ended = anyio.Event()
        self._abort_reason = ""
        self._usage = Usage()

    async def run(self) -> CellResult:
        """Start the program; the result of its first leg."""
        return await self._run_leg(CellState.NEW, self._start)

    async def resume(self) -> CellResult:
        """Continue a waiting program; the result of its next leg."""
        return await self._run_leg(CellState.WAITING, self._continue)

    async def abort(self, reason: str = "the run was aborted") -> None:
        """End the program now, wherever it is; harmless after its end.

        Calls that a completed program left behind are given up as well.
        """
        self.give_up_requests(reason)
        if self.state is CellState.RUNNING and self._leg is not None:
            self._abort_reason = reason
            self._leg.cancel()
            await self._leg_ended.wait()
        # Also a leg that came to wait just before the abort reached it.
        if self.state in (CellState.NEW, CellState.WAITING):
            self._move_to(CellState.ABORTED)
            await self._vm.drop()

    def give_up_requests(self, reason: str) -> None:
        """Cancel what is not answered yet; the first step of an abort."""
        self._requests.cancel(reason)

    @property
    def pending(self) -> tuple[PendingRequest, ...]:
        """The requests that are not answered yet, also after the program's end."""
        return self._requests.pending

    @property
    def snapshot(self) -> bytes | None:
        """The sealed snapshot while the cell waits."""
        return self._vm.sealed

    # A leg.

    async def _run_leg(
        self, expected: CellState, first_burst: Callable[[], Awaitable[Frame | None]]
    ) -> CellResult:
        if self.state is not expected:
            raise CellStateError(f"the cell is {self.state.value}, not {expected.value}")
        self._move_to(CellState.RUNNING)
        self._leg_ended = anyio.Event()
        self._budget_left = self._patience_left = self._limits.timeout_ms / 1000
        if expected is CellState.NEW:
            self._patience_left = min(self._patience_left, _PATIENCE_WITH_PEOPLE_SECONDS)
        self._output = []
        started = time.monotonic()
        result: CellResult | None = None
        self._running_cells.add(self)
        try:
            with anyio.CancelScope() as self._leg:
                result = await self._outcome(first_burst)
        finally:
            # Reached by abort, by the caller's own cancellation, and by faults of ours alike.
            if result is None:
                self._requests.cancel(self._abort_reason or "the run was cancelled")
                with anyio.CancelScope(shield=True):
                    await self._vm.drop()
            self._move_to(CellState.ABORTED if result is None else _STATE_AFTER[type(result)])
            self._requests.let_go()
            self._running_cells.discard(self)
            self._leg = None
            self._leg_ended.set()
        if result is None:
            result = Failed(error=self._abort_reason, reason="aborted")
        self._usage.wall_ms += (time.monotonic() - started) * 1000
        self._usage.unfinished_requests = self._requests.pending_count
        return replace(result, output=tuple(self._output), usage=replace(self._usage))

    async def _outcome(self, first_burst: Callable[[], Awaitable[Frame | None]]) -> CellResult:
        try:
            result = await self._follow(await first_burst())
        except RestoreFailed as error:
            result = self._failed("snapshot_restore_failed", {"message": str(error)})
        except OverranBudget:
            result = self._failed("timeout", {"message": "the program used up its time"})
        except SandboxError as error:
            result = failed_from(error)
        except _NotJavaScript as refusal:
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
        """Follow the program from burst to burst until the leg is over."""
        while True:
            if frame is not None:
                ended = await self._take_event(frame)
                if ended is not None:
                    return ended
            if self._yields:
                return await self._wait_for_resume("yield")
            if not await self._something_to_do():
                return await self._wait_for_resume(
                    "pending_tools" if self._requests.is_open else "yield"
                )
            frame = await self._next_burst()

    async def _take_event(self, frame: Frame) -> CellResult | None:
        """Note what a burst came to; a result if the program is over."""
        if frame.kind not in (Event.COMPLETED, Event.FAILED, Event.PARKED):
            raise WorkerProtocolError(f"a worker sent an event of kind {frame.kind}")
        burst = await self._read_burst(frame)
        self._usage.guest_bursts += 1
        self._usage.worker_ms += burst.busy_ms
        if frame.kind == Event.FAILED:
            failed = self._failed(reason_of(frame), frame.fields)
            self._vm.leave()
            return failed
        self._usage.output_bytes += burst.value_bytes
        self._take_requests(burst.requests)
        if frame.kind == Event.COMPLETED:
            self._vm.leave()
            return Completed(value=burst.value)
        self._yields = burst.yields
        self._timer_due = None if burst.timer_ms is None else time.time() + burst.timer_ms / 1000
        if not self._yields and self._timer_due is None and not self._requests.is_open:
            raise WorkerProtocolError("a worker says that the program waits for nothing")
        return None

    async def _read_burst(self, frame: Frame) -> BurstEvent:
        read = partial(self._events.burst, frame, max_requests=self._room_for_requests())
        # Reading megabytes of JSON on the event loop would hold up everybody else.
        is_big = len(frame.tail) > _BIG_TAIL_BYTES
        return await in_thread(read) if is_big else read()

    # Bursts.

    async def _start(self) -> Frame:
        language = self._program.language
        if language not in LANGUAGES:
            raise _NotJavaScript(
                Failed(
                    error=f"cells are written in {' or '.join(LANGUAGES)}, not in {language!r}",
                    reason="unsupported_language",
                )
            )
        code = self._program.code.encode(errors="replace")
        self._map_position = ByteColumns(code).position
        if language == "typescript":
            code = await self._to_javascript(code)
        fields = {
            **self._cell_fields(),
            "functions": self._program.functions,
            "fileName": self._file_name,
        }
        await self._vm.start(fields, code)
        return await self._end_of(self._vm.finish(self._budget_left))

    async def _continue(self) -> Frame | None:
        for each in self._yields:
            self._requests.answer(each.id)
        self._yields = ()
        return await self._next_burst() if self._requests.has_answers else None

    async def _next_burst(self) -> Frame:
        """Deliver what came in, or fire what is due."""
        if not self._vm.is_live:
            await self._vm.restore(self._cell_fields())
        self._vm.unpark()
        if self._requests.has_answers:
            settled, answers = self._requests.take_answers()
            return await self._burst(Command.DELIVER, {"settled": settled}, answers)
        return await self._burst(Command.FIRE_TIMERS, {})

    async def _burst(self, command: Command, fields: dict[str, object], tail: bytes = b"") -> Frame:
        fields = {**fields, **self._burst_fields()}
        return await self._end_of(
            self._vm.run(command, fields, tail, budget_seconds=self._budget_left)
        )

    async def _end_of(self, burst: Awaitable[Frame]) -> Frame:
        started = time.monotonic()
        try:
            return await burst
        finally:
            self._budget_left -= time.monotonic() - started

    async def _to_javascript(self, code: bytes) -> bytes:
        transformed = await self._typescript.transform(
            code, limits=self._limits, owner=self._program.owner
        )
        if isinstance(transformed, Failed):
            raise _NotJavaScript(transformed)
        javascript, positions = transformed
        if positions is not None:
            self._map_position = positions
        return javascript

    # Waiting.

    async def _something_to_do(self) -> bool:
        """Wait for an answer or a timer; False when budget or patience ends before either."""
        # Answers that take no time are there after one turn of the loop: no need to park for them.
        await anyio.lowlevel.checkpoint()
        if not self._requests.has_answers:
            self._vm.park()
        # Checked first: a program that always finds something to do must end its leg as well.
        while self._budget_left > 0 and self._patience_left > 0:
            if self._home.pool.is_closed:
                raise RuntimeUnavailableError("the sandbox is closed")
            if self._requests.has_answers:
                return True
            started = time.monotonic()
            until_timer = float("inf") if self._timer_due is None else self._timer_due - time.time()
            if until_timer <= 0:
                return True
            is_with_people = self._timer_due is None and self._requests.only_people_are_left
            left = self._patience_left if is_with_people else self._budget_left
            self._wake = anyio.Event()
            with anyio.move_on_after(min(left, until_timer)):
                await self._wake.wait()
            waited = time.monotonic() - started
            if is_with_people:
                self._patience_left -= waited
            else:
                self._budget_left -= waited
            self._vm.check_alive()
            if self._vm.is_wanted:
                await self._make_room()
        return False

    async def _make_room(self) -> None:
        """Move out of a worker that others need; a VM too large for a snapshot stays."""
        try:
            await self._vm.suspend(self._requests.open_ids())
        except SnapshotTooLarge:
            self._vm.park(can_move=False)

    async def _wait_for_resume(self, reason: Literal["pending_tools", "yield"]) -> Waiting | Failed:
        if self._vm.is_live:
            try:
                yields = (each.id for each in self._yields)
                await self._vm.suspend((*self._requests.open_ids(), *yields))
            except SnapshotTooLarge as error:
                await self._vm.drop()
                message = (
                    f"the suspended program takes {error.size} bytes, more than maxSnapshotBytes "
                    f"({self._limits.max_snapshot_bytes}); keep less data alive across a wait"
                )
                return self._failed("snapshot_limit_exceeded", {"message": message})
        self._usage.snapshot_bytes = len(self._vm.sealed or b"")
        return Waiting(
            run_id=self.run_id,
            reason=reason,
            yield_reason=self._yields[0].reason if self._yields else "",
            pending=self._requests.pending,
            has_timer=self._timer_due is not None,
        )

    # What workers say. None of it is trusted.

    def _take_output(self, frame: Frame) -> None:
        kind, content = output_of(frame)
        # The worker counts too; this is for one that no longer does.
        self._output_left -= len(content) + OUTPUT_ITEM_BYTES
        if self._output_left < 0:
            raise WorkerProtocolError("a worker sent more output than the cell may have")
        item = (
            JsonOutput(value=json_of(content))
            if kind == "json"
            else TextOutput(text=content.decode(errors="replace"))
        )
        self._output.append(item)
        self._usage.output_bytes += len(content)
        if self._program.on_output is not None:
            try:
                self._program.on_output(item)
            except Exception:
                # The caller's own fault is not the program's: the result has the item all the same.
                logger.exception("the caller's on_output failed")

    def _take_requests(self, requests: tuple[RequestEvent, ...]) -> None:
        for request in requests:
            self._requests.add(
                HostRequest(
                    id=request.id,
                    method=request.method,
                    payload=request.payload,
                    run_id=self.run_id,
                    abort=self._requests.abort_signal,
                    asking_person=partial(self._requests.asking_person, request.id),
                )
            )
        self._usage.requests += len(requests)

    # Small things.

    @property
    def _file_name(self) -> str:
        return "cell.ts" if self._program.language == "typescript" else "cell.js"

    def _cell_fields(self) -> dict[str, object]:
        return {
            "memoryLimitBytes": self._limits.memory_limit_bytes,
            "outputBytesLeft": self._output_left,
            "maxOutputBytes": self._limits.max_output_bytes,
            **self._burst_fields(),
        }

    def _burst_fields(self) -> dict[str, object]:
        return {
            "budgetMs": max(self._budget_left, 0.0) * 1000,
            "maxRequests": self._room_for_requests(),
        }

    def _room_for_requests(self) -> int:
        return MAX_REQUEST_BACKLOG - self._requests.pending_count

    def wake_up(self) -> None:
        """Have a leg that waits look around: something has changed."""
        self._wake.set()

    def _move_to(self, state: CellState) -> None:
        """The one place that changes the state."""
        if state not in _MOVES[self.state]:
            raise CellStateError(f"a cell cannot go from {self.state.value} to {state.value}")
        self.state = state

    def _failed(self, reason: Reason, fields: Mapping[str, Any]) -> Failed:
        return failed_from_worker(
            reason,
            fields,
            limits=self._limits,
            file_name=self._file_name,
            map_position=self._map_position,
        )


class _NotJavaScript(Exception):
    """The program could not be transformed; carries the value that says so."""

    def __init__(self, failed: Failed) -> None:
        super().__init__(failed.error)
        self.failed = failed
