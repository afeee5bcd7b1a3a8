"""One program and its life: `run` starts it, `resume` continues it, `abort` ends it.

    new -> running -> waiting -> running -> completed | failed | aborted

A leg is one `run` or `resume`. It is a series of bursts in a worker, between which the program
waits for answers or timers. A leg ends when the program ends, when it yields, or when its time
budget is used up while it only waits; in the last two cases the VM becomes a snapshot and its
worker is free. The budget counts bursts and waits, not the time in the queue for a worker, nor
suspending.
"""

import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass, field, replace
from enum import Enum
from typing import Any, Final, Literal

import anyio
import anyio.lowlevel
import anyio.to_thread
from anyio.abc import TaskGroup

from nacre.config.code_mode import Language
from nacre.errors import CellStateError, SandboxError, WorkerProtocolError
from nacre.ids import RunId, new_run_id
from nacre.json_types import JsonValue, NotJsonError, decode_json
from nacre.sandbox.byte_columns import ByteColumns
from nacre.sandbox.cell_vm import CellVm, OverranBudget, SnapshotTooLarge, VmHome
from nacre.sandbox.failures import MapPosition, failed_from, failed_from_worker
from nacre.sandbox.host_requests import HostRequest, HostRequestHandler, HostRequests
from nacre.sandbox.limits import MAX_REQUEST_BACKLOG, Limits
from nacre.sandbox.results import (
    CellResult,
    Completed,
    Failed,
    JsonOutput,
    Output,
    TextOutput,
    Usage,
    Waiting,
)
from nacre.sandbox.transforms import TypeScriptTransforms
from nacre.sandbox.worker_protocol import Command, Event, Frame

logger = logging.getLogger(__name__)

# Reading a larger value on the event loop would hold up everybody else.
_BIG_VALUE_BYTES: Final = 1 << 18


@dataclass(frozen=True, kw_only=True, slots=True)
class Program:
    """What to run, with what, and on whose behalf."""

    code: str
    language: Language = "javascript"
    limits: Limits = field(default_factory=Limits)
    functions: tuple[str, ...] = ()
    handler: HostRequestHandler | None = None
    owner: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class CellServices:
    """What a cell needs of the sandbox it runs in."""

    home: VmHome
    typescript: TypeScriptTransforms
    tasks: TaskGroup


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


@dataclass(kw_only=True, slots=True)
class _Costs:
    """`Usage` while it is being counted."""

    guest_bursts: int = 0
    requests: int = 0
    unfinished_requests: int = 0
    output_bytes: int = 0
    snapshot_bytes: int = 0
    wall_ms: float = 0.0
    worker_ms: float = 0.0


class Cell:
    """A program in the sandbox; created by `Sandbox.cell`."""

    def __init__(self, program: Program, services: CellServices) -> None:
        self.run_id: RunId = new_run_id()
        self.state = CellState.NEW
        self._program = program
        self._limits = program.limits
        self._typescript = services.typescript
        self._vm = CellVm(
            services.home,
            program.limits,
            owner=program.owner,
            on_output=self._take_output,
            on_trouble=self._wake_up,
        )
        self._requests = HostRequests(
            program.handler,
            tasks=services.tasks,
            most_at_once=program.limits.max_pending_tool_calls,
            wake=self._wake_up,
        )
        self._wake = anyio.Event()
        self._map_position: MapPosition | None = None
        self._output: list[Output] = []
        self._output_left = program.limits.max_output_bytes
        self._yields: tuple[int, ...] = ()
        self._timer_due: float | None = None
        self._budget_left = 0.0
        self._leg: anyio.CancelScope | None = None
        self._leg_ended = anyio.Event()
        self._abort_reason = ""
        self._costs = _Costs()

    async def run(self) -> CellResult:
        """Start the program; the result of its first leg."""
        return await self._run_leg(CellState.NEW, self._start)

    async def resume(self) -> CellResult:
        """Continue a waiting program; the result of its next leg."""
        return await self._run_leg(CellState.WAITING, self._continue)

    async def abort(self, reason: str = "the run was aborted") -> None:
        """End the program now, wherever it is; harmless after its end."""
        self._requests.cancel()
        if self.state is CellState.RUNNING and self._leg is not None:
            self._abort_reason = reason
            self._leg.cancel()
            await self._leg_ended.wait()
        elif self.state in (CellState.NEW, CellState.WAITING):
            self._move_to(CellState.ABORTED)
            await self._vm.drop()

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
        self._budget_left = self._limits.timeout_ms / 1000
        self._output = []
        started = time.monotonic()
        result: CellResult | None = None
        try:
            with anyio.CancelScope() as self._leg:
                result = await self._outcome(first_burst)
        finally:
            # Reached by abort, by the caller's own cancellation, and by faults of ours alike.
            if result is None:
                self._requests.cancel()
                with anyio.CancelScope(shield=True):
                    await self._vm.drop()
            self._move_to(CellState.ABORTED if result is None else _STATE_AFTER[type(result)])
            self._leg = None
            self._leg_ended.set()
        if result is None:
            result = Failed(error=self._abort_reason, reason="aborted")
        self._costs.wall_ms += (time.monotonic() - started) * 1000
        self._costs.unfinished_requests = len(self._requests.pending)
        return replace(result, output=tuple(self._output), usage=Usage(**asdict(self._costs)))

    async def _outcome(self, first_burst: Callable[[], Awaitable[Frame | None]]) -> CellResult:
        try:
            result = await self._follow(await first_burst())
        except OverranBudget:
            result = self._failed("timeout", "the program used up its time")
        except SandboxError as error:
            result = failed_from(error)
        except _NotJavaScript as refusal:
            result = refusal.failed
        except Exception as error:
            # The top of a hostile program: whatever it found is our fault, and ends here.
            logger.exception("a cell ran into a fault of the sandbox")
            result = Failed(error=f"the sandbox has a fault: {error!r}", reason="internal_error")
        if isinstance(result, Failed):
            self._requests.cancel()
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
                    "pending_tools" if self._requests.pending else "yield"
                )
            frame = await self._next_burst()

    async def _take_event(self, frame: Frame) -> CellResult | None:
        """Note what a burst came to; a result if the program is over."""
        self._note_costs(frame.fields)
        if frame.kind == Event.FAILED:
            self._vm.leave()
            return failed_from_worker(
                frame.fields, self._limits, self._map_position, self._file_name
            )
        if frame.kind not in (Event.COMPLETED, Event.PARKED):
            raise WorkerProtocolError(f"a worker sent an event of kind {frame.kind}")
        self._take_requests(frame.fields)
        if frame.kind == Event.COMPLETED:
            self._vm.leave()
            return Completed(value=await self._value(frame.tail))
        self._take_yields(frame.fields)
        timer_ms = frame.fields.get("timerMs")
        has_timer = isinstance(timer_ms, int | float)
        self._timer_due = time.time() + timer_ms / 1000 if has_timer else None
        return None

    # Bursts.

    async def _start(self) -> Frame:
        code = self._program.code.encode(errors="replace")
        self._map_position = ByteColumns(code).position
        if self._program.language == "typescript":
            code = await self._to_javascript(code)
        await self._vm.enter({})
        fields = {
            **self._cell_fields(),
            "functions": self._program.functions,
            "fileName": self._file_name,
        }
        return await self._burst(Command.START, fields, code)

    async def _continue(self) -> Frame | None:
        for request_id in self._yields:
            self._requests.answer(request_id)
        self._yields = ()
        return await self._next_burst() if self._requests.has_answers else None

    async def _next_burst(self) -> Frame:
        """Deliver what came in, or fire what is due."""
        if not self._vm.is_live:
            await self._vm.enter({**self._cell_fields(), **self._burst_fields()})
        self._vm.unpark()
        if self._requests.has_answers:
            settled, answers = self._requests.take_answers()
            return await self._burst(Command.DELIVER, {"settled": settled}, answers)
        return await self._burst(Command.FIRE_TIMERS, {})

    async def _burst(self, command: Command, fields: dict[str, object], tail: bytes = b"") -> Frame:
        started = time.monotonic()
        try:
            return await self._vm.run(
                command,
                {**fields, **self._burst_fields()},
                tail,
                budget_seconds=self._budget_left,
            )
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
        """Wait for an answer or a timer; False when the budget is used up before either."""
        # Answers that take no time are there after one turn of the loop: no need to park for them.
        await anyio.lowlevel.checkpoint()
        if not self._requests.has_answers:
            self._vm.park()
        while not self._requests.has_answers:
            started = time.monotonic()
            until_timer = float("inf") if self._timer_due is None else self._timer_due - time.time()
            if until_timer <= 0:
                return True
            if self._budget_left <= 0:
                return False
            self._wake = anyio.Event()
            with anyio.move_on_after(min(self._budget_left, until_timer)):
                await self._wake.wait()
            self._budget_left -= time.monotonic() - started
            self._vm.check_alive()
            if self._vm.is_wanted:
                await self._make_room()
        return True

    async def _make_room(self) -> None:
        """Move out of a worker that others need; a VM too large for a snapshot stays."""
        try:
            await self._vm.suspend(self._requests.open_ids())
        except SnapshotTooLarge:
            self._vm.park()

    async def _wait_for_resume(self, reason: Literal["pending_tools", "yield"]) -> Waiting | Failed:
        if self._vm.is_live:
            try:
                await self._vm.suspend((*self._requests.open_ids(), *self._yields))
            except SnapshotTooLarge as error:
                await self._vm.drop()
                return self._failed(
                    "snapshot_limit_exceeded",
                    f"the suspended program takes {error.size} bytes, more than maxSnapshotBytes "
                    f"({self._limits.max_snapshot_bytes}); keep less data alive across a wait",
                )
        self._costs.snapshot_bytes = len(self._vm.sealed or b"")
        return Waiting(run_id=self.run_id, reason=reason, pending=self._requests.pending)

    # What workers say. None of it is trusted.

    def _take_output(self, frame: Frame) -> None:
        # The worker counts too; this is for one that no longer does.
        self._output_left -= len(frame.tail)
        if self._output_left < 0:
            raise WorkerProtocolError("a worker sent more output than the cell may have")
        if frame.fields.get("kind") == "json":
            self._output.append(JsonOutput(value=_json(frame.tail)))
        else:
            self._output.append(TextOutput(text=frame.tail.decode(errors="replace")))
        self._costs.output_bytes += len(frame.tail)

    def _take_requests(self, fields: dict[str, Any]) -> None:
        try:
            requests = [
                HostRequest(id=int(number), method=str(method), payload=payload, run_id=self.run_id)
                for number, method, payload in fields.get("requests", ())
            ]
        except (TypeError, ValueError) as error:
            raise WorkerProtocolError(f"a worker sent malformed requests: {error!r}") from error
        for request in requests:
            self._requests.add(request)
        self._costs.requests += len(requests)

    def _take_yields(self, fields: dict[str, Any]) -> None:
        try:
            self._yields = tuple(int(request_id) for request_id in fields.get("yields", ()))
        except (TypeError, ValueError) as error:
            raise WorkerProtocolError(f"a worker sent malformed yields: {error!r}") from error

    def _note_costs(self, fields: dict[str, Any]) -> None:
        busy = fields.get("busyMs")
        if isinstance(busy, int | float):
            self._costs.guest_bursts += 1
            self._costs.worker_ms += busy

    async def _value(self, data: bytes) -> JsonValue:
        if len(data) > self._limits.max_output_bytes:
            raise WorkerProtocolError("a worker sent a larger value than the cell may have")
        self._costs.output_bytes += len(data)
        if len(data) > _BIG_VALUE_BYTES:
            return await anyio.to_thread.run_sync(_json, data)
        return _json(data)

    # Small things.

    @property
    def _file_name(self) -> str:
        return "cell.ts" if self._program.language == "typescript" else "cell.js"

    def _cell_fields(self) -> dict[str, object]:
        return {
            "memoryLimitBytes": self._limits.memory_limit_bytes,
            "outputBytesLeft": self._output_left,
            "maxOutputBytes": self._limits.max_output_bytes,
            "budgetMs": max(self._budget_left, 0.0) * 1000,
        }

    def _burst_fields(self) -> dict[str, object]:
        return {"maxRequests": MAX_REQUEST_BACKLOG - len(self._requests.pending)}

    def _wake_up(self) -> None:
        self._wake.set()

    def _move_to(self, state: CellState) -> None:
        """The one place that changes the state."""
        if state not in _MOVES[self.state]:
            raise CellStateError(f"a cell cannot go from {self.state.value} to {state.value}")
        self.state = state

    def _failed(
        self, reason: Literal["timeout", "snapshot_limit_exceeded"], message: str
    ) -> Failed:
        fields = {"reason": reason, "message": message}
        return failed_from_worker(fields, self._limits, None, self._file_name)


class _NotJavaScript(Exception):
    """The program could not be transformed; carries the value that says so."""

    def __init__(self, failed: Failed) -> None:
        super().__init__(failed.error)
        self.failed = failed


def _json(data: bytes) -> JsonValue:
    try:
        return decode_json(data)
    except NotJsonError as error:
        raise WorkerProtocolError(f"a worker sent invalid JSON: {error}") from error
