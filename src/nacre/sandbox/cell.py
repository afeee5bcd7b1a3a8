"""One program and its life: `run` starts it, `resume` continues it, `abort` ends it.

    new -> running -> waiting -> running -> completed | failed | aborted

A leg is one `run` or `resume`. It is a series of bursts in a worker, between which the program waits
for answers or timers. A leg ends when the program ends, when it yields, or when its time budget is
used up while it only waits; in the last two cases the VM becomes a snapshot and its worker is free.
The budget counts bursts and waits, not the time in the queue for a worker, nor suspending.
"""

import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass, replace
from enum import Enum
from typing import Any, Final, Literal, NoReturn

import anyio
import anyio.lowlevel
import anyio.to_thread
from anyio.abc import TaskGroup

from nacre.config.code_mode import Language
from nacre.errors import (
    CellStateError,
    SandboxError,
    WorkerDiedError,
    WorkerProtocolError,
)
from nacre.ids import RunId, new_run_id
from nacre.json_types import JsonValue, NotJsonError, decode_json
from nacre.sandbox.failures import MapPosition, failed_from, failed_from_worker
from nacre.sandbox.host_requests import HostRequest, HostRequestHandler, HostRequests
from nacre.sandbox.limits import MAX_REQUEST_BACKLOG, Limits
from nacre.sandbox.pool import WorkerPool
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
from nacre.sandbox.snapshot import Snapshot, seal, unseal
from nacre.sandbox.worker_process import WorkerProcess
from nacre.sandbox.worker_protocol import Command, Event, Frame, encode_frame

# The engine stops a program at its deadline by itself; a worker that has not by then is stuck.
_OVERTIME_SECONDS: Final = 0.03
# Reading a larger value on the event loop would hold up everybody else.
_BIG_VALUE_BYTES: Final = 1 << 18


@dataclass(frozen=True, kw_only=True, slots=True)
class Program:
    """What to run, with what, and on whose behalf."""

    code: str
    language: Language = "javascript"
    limits: Limits = Limits()
    functions: tuple[str, ...] = ()
    handler: HostRequestHandler | None = None
    owner: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class CellServices:
    """What a cell needs of the sandbox it runs in."""

    pool: WorkerPool
    image: str
    snapshot_key: bytes
    tasks: TaskGroup
    transform: Callable[[Program], Awaitable[tuple[bytes, MapPosition | None]]]


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


@dataclass(kw_only=True, slots=True)
class _Costs:
    """`Usage` while it is being counted."""

    guest_bursts: int = 0
    requests: int = 0
    output_bytes: int = 0
    snapshot_bytes: int = 0
    wall_ms: float = 0.0
    worker_ms: float = 0.0

    def usage(self) -> Usage:
        return Usage(**asdict(self))


class _CellFailed(Exception):
    """The cell is over; carries the value that says so."""

    def __init__(self, failed: Failed) -> None:
        super().__init__(failed.error)
        self.failed = failed


class Cell:
    """A program in the sandbox; created by `Sandbox.cell`."""

    def __init__(self, program: Program, services: CellServices) -> None:
        self.run_id: RunId = new_run_id()
        self.state = CellState.NEW
        self._program = program
        self._services = services
        self._limits = program.limits
        self._worker: WorkerProcess | None = None
        self._sealed: bytes | None = None
        self._wake = anyio.Event()
        self._requests = HostRequests(
            program.handler,
            tasks=services.tasks,
            most_at_once=program.limits.max_pending_tool_calls,
            wake=self._wake_up,
        )
        self._map_position: MapPosition | None = None
        self._output: list[Output] = []
        self._output_left = program.limits.max_output_bytes
        self._pause_id: int | None = None
        self._timer_due: float | None = None
        self._is_asked_to_move = False
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
            self._sealed = None

    @property
    def snapshot(self) -> bytes | None:
        """The sealed snapshot while the cell waits."""
        return self._sealed

    # A leg.

    async def _run_leg(
        self, expected: CellState, first_burst: Callable[[], Awaitable[Frame]]
    ) -> CellResult:
        if self.state is not expected:
            raise CellStateError(f"the cell is {self.state.value}, not {expected.value}")
        self._move_to(CellState.RUNNING)
        self._leg_ended = anyio.Event()
        self._budget_left = self._limits.timeout_ms / 1000
        started = time.monotonic()
        self._output = []
        result: CellResult | None = None
        try:
            with anyio.CancelScope() as self._leg:
                result = await self._outcome(first_burst)
        finally:
            # Reached by abort, by the caller's own cancellation, and by faults of ours alike.
            if result is None:
                self._requests.cancel()
                with anyio.CancelScope(shield=True):
                    await self._evacuate()
                self._move_to(CellState.ABORTED)
            self._leg = None
            self._leg_ended.set()
        if result is None:
            result = Failed(error=self._abort_reason, reason="aborted")
        return self._with_costs(result, started)

    async def _outcome(self, first_burst: Callable[[], Awaitable[Frame]]) -> CellResult:
        try:
            result = await self._bursts(await first_burst())
        except _CellFailed as failure:
            result = failure.failed
        except SandboxError as error:
            result = failed_from(error)
        if isinstance(result, Failed):
            self._requests.cancel()
            # A worker that still holds the VM of a failed cell is not to be trusted.
            if self._worker is not None:
                self._services.pool.discard(self._worker)
                self._worker = None
        self._move_to(
            CellState.WAITING
            if isinstance(result, Waiting)
            else CellState.COMPLETED
            if isinstance(result, Completed)
            else CellState.FAILED
        )
        return result

    async def _bursts(self, frame: Frame) -> CellResult:
        """Follow the program from burst to burst until the leg is over."""
        while True:
            self._note_costs(frame)
            match frame.kind:
                case Event.COMPLETED:
                    self._release()
                    self._take_requests(frame.fields)
                    return Completed(value=await self._value(frame.tail))
                case Event.FAILED:
                    self._release()
                    self._fail(frame.fields)
                case Event.PARKED:
                    self._take_requests(frame.fields)
                    self._note_timer(frame.fields)
                    if self._is_paused(frame.fields):
                        return await self._wait_for_resume("yield")
                    if not await self._something_to_do():
                        reason = "pending_tools" if self._requests.pending else "yield"
                        return await self._wait_for_resume(reason)
                    frame = await self._next_burst()
                case _:
                    raise WorkerProtocolError(f"a worker sent an event of kind {frame.kind}")

    async def _start(self) -> Frame:
        code = self._program.code.encode(errors="replace")
        if self._program.language == "typescript":
            code, self._map_position = await self._services.transform(self._program)
        self._worker = await self._services.pool.acquire(self._program.owner)
        fields = {
            **self._cell_fields(),
            "functions": self._program.functions,
            "fileName": self._file_name,
        }
        return await self._burst(lambda: encode_frame(Command.START, {**fields, **self._burst_fields()}, code))

    async def _continue(self) -> Frame:
        if self._pause_id is not None:
            self._requests.answer(self._pause_id)
            self._pause_id = None
        if not await self._something_to_do():
            # The whole budget went by without an answer: the cell waits on, as it was.
            return Frame(Event.PARKED, {"requests": [], "pause": None, "timerMs": None}, b"")
        return await self._next_burst()

    async def _next_burst(self) -> Frame:
        """Deliver what came in, or fire what is due."""
        if self._worker is None:
            await self._move_in()
        worker = self._worker
        if worker is not None:
            self._services.pool.unpark(worker)
        if self._requests.has_answers:
            settled, json = self._requests.take_answers()
            return await self._burst(
                lambda: encode_frame(
                    Command.DELIVER, {**self._burst_fields(), "settled": settled}, json
                )
            )
        self._timer_due = None
        return await self._burst(lambda: encode_frame(Command.FIRE_TIMERS, self._burst_fields()))

    async def _burst(self, command: Callable[[], bytes]) -> Frame:
        """Let the program run until it waits or ends; kills a worker that overruns the budget."""
        worker = self._held_worker()
        started = time.monotonic()
        with anyio.move_on_after(max(self._budget_left, 0) + _OVERTIME_SECONDS):
            await worker.send(command())
            while True:
                frame = await worker.event()
                if frame.kind != Event.OUTPUT:
                    self._budget_left -= time.monotonic() - started
                    return frame
                self._take_output(frame)
        self._fail({"reason": "timeout", "message": "the program used up its time"})

    async def _something_to_do(self) -> bool:
        """Wait for an answer or a timer; False when the budget is used up before either."""
        # Answers that take no time are there after one turn of the loop: no need to park for them.
        await anyio.lowlevel.checkpoint()
        if self._worker is not None and not self._requests.has_answers:
            self._services.pool.park(self._worker, self._ask_to_move)
        while not self._requests.has_answers:
            started = time.monotonic()
            until_timer = None if self._timer_due is None else self._timer_due - time.time()
            if until_timer is not None and until_timer <= 0:
                return True
            if self._budget_left <= 0:
                return False
            self._wake = anyio.Event()
            patience = self._budget_left if until_timer is None else min(self._budget_left, until_timer)
            with anyio.move_on_after(patience):
                await self._wake.wait()
            self._budget_left -= time.monotonic() - started
            await self._look_after_worker()
        return True

    async def _look_after_worker(self) -> None:
        worker = self._worker
        if worker is None:
            return
        if worker.is_dead:
            self._worker = None
            raise WorkerDiedError("the worker process that held the cell is gone")
        if self._is_asked_to_move:
            self._is_asked_to_move = False
            await self._move_out(is_optional=True)

    # Suspending and coming back.

    async def _wait_for_resume(self, reason: Literal["pending_tools", "yield"]) -> Waiting:
        if self._worker is not None:
            await self._move_out(is_optional=False)
        return Waiting(run_id=self.run_id, reason=reason, pending=self._requests.pending)

    async def _move_out(self, *, is_optional: bool) -> None:
        """Turn the VM into a snapshot and give the worker back."""
        worker = self._held_worker()
        self._services.pool.unpark(worker)
        most = self._limits.max_snapshot_bytes
        await worker.send(encode_frame(Command.SUSPEND, {"maxBytes": most}))
        frame = await worker.event()
        if frame.kind == Event.SNAPSHOT_TOO_LARGE:
            if is_optional:
                return
            size = frame.fields.get("bytes")
            await self._drop_vm()
            failed = Failed(
                error=f"the suspended program takes {size} bytes, more than maxSnapshotBytes "
                f"({most}); keep less data alive across a wait",
                reason="snapshot_limit_exceeded",
            )
            raise _CellFailed(failed)
        if frame.kind != Event.SUSPENDED:
            raise WorkerProtocolError(f"a worker answered SUSPEND with kind {frame.kind}")
        self._sealed = seal(self._snapshot_from(frame), key=self._services.snapshot_key)
        self._costs.snapshot_bytes = len(self._sealed)
        self._release()

    def _snapshot_from(self, frame: Frame) -> Snapshot:
        open_requests = self._requests.open_ids()
        if self._pause_id is not None:
            open_requests = (*open_requests, self._pause_id)
        try:
            return Snapshot(
                image=self._services.image,
                memory_bytes=int(frame.fields["memoryBytes"]),
                rejections=tuple((int(a), int(b), int(c)) for a, b, c in frame.fields["rejections"]),
                open_requests=open_requests,
                pages=frame.tail,
            )
        except (KeyError, TypeError, ValueError) as error:
            raise WorkerProtocolError(f"a worker sent a malformed snapshot: {error!r}") from error

    async def _move_in(self) -> None:
        """Put the VM back into a worker, any worker."""
        if self._sealed is None:
            raise CellStateError("the cell has neither a worker nor a snapshot")
        snapshot = unseal(self._sealed, key=self._services.snapshot_key, image=self._services.image)
        worker = self._worker = await self._services.pool.acquire(self._program.owner)
        fields = {
            **self._cell_fields(),
            **self._burst_fields(),
            "memoryBytes": snapshot.memory_bytes,
            "rejections": snapshot.rejections,
            "open": snapshot.open_requests,
        }
        await worker.send(encode_frame(Command.RESTORE, fields, snapshot.pages))
        self._sealed = None

    async def _evacuate(self) -> None:
        """Leave nothing of this cell behind."""
        if self._worker is not None:
            await self._drop_vm()
        self._sealed = None

    async def _drop_vm(self) -> None:
        worker, self._worker = self._worker, None
        if worker is None:
            return
        if await worker.abort(Command.ABORT):
            self._services.pool.release(worker)
        else:
            self._services.pool.discard(worker)

    def _release(self) -> None:
        """Give the worker back; it has dropped the VM itself."""
        if self._worker is not None:
            self._services.pool.release(self._worker)
            self._worker = None

    # What workers say. None of it is trusted.

    def _take_output(self, frame: Frame) -> None:
        # The worker counts too; this is for one that no longer does.
        self._output_left -= len(frame.tail)
        if self._output_left < 0:
            raise WorkerProtocolError("a worker sent more output than the cell may have")
        if frame.fields.get("kind") == "json":
            self._output.append(JsonOutput(value=self._json(frame.tail)))
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

    def _note_timer(self, fields: dict[str, Any]) -> None:
        timer_ms = fields.get("timerMs")
        if isinstance(timer_ms, int | float):
            self._timer_due = time.time() + timer_ms / 1000

    def _is_paused(self, fields: dict[str, Any]) -> bool:
        pause = fields.get("pause")
        if isinstance(pause, dict):
            self._pause_id = int(pause["id"])  # pyright: ignore[reportUnknownArgumentType]
            return True
        return False

    def _note_costs(self, frame: Frame) -> None:
        busy = frame.fields.get("busyMs")
        if isinstance(busy, int | float):
            self._costs.guest_bursts += 1
            self._costs.worker_ms += busy

    async def _value(self, json: bytes) -> JsonValue:
        if len(json) > self._limits.max_output_bytes:
            raise WorkerProtocolError("a worker sent a larger value than the cell may have")
        if len(json) > _BIG_VALUE_BYTES:
            return await anyio.to_thread.run_sync(self._json, json)
        return self._json(json)

    def _json(self, data: bytes) -> JsonValue:
        try:
            return decode_json(data)
        except NotJsonError as error:
            raise WorkerProtocolError(f"a worker sent invalid JSON: {error}") from error

    # Small things.

    @property
    def _file_name(self) -> str:
        return "cell.ts" if self._program.language == "typescript" else "cell.js"

    def _cell_fields(self) -> dict[str, object]:
        return {
            "memoryLimitBytes": self._limits.memory_limit_bytes,
            "outputBytesLeft": self._output_left,
            "maxOutputBytes": self._limits.max_output_bytes,
        }

    def _burst_fields(self) -> dict[str, object]:
        return {
            "budgetMs": max(self._budget_left, 0) * 1000,
            "maxRequests": MAX_REQUEST_BACKLOG - len(self._requests.pending),
        }

    def _held_worker(self) -> WorkerProcess:
        if self._worker is None:
            raise CellStateError("the cell has no worker")
        return self._worker

    def _wake_up(self) -> None:
        self._wake.set()

    def _ask_to_move(self) -> None:
        self._is_asked_to_move = True
        self._wake_up()

    def _move_to(self, state: CellState) -> None:
        """The one place that changes the state."""
        if state not in _MOVES[self.state]:
            raise CellStateError(f"a cell cannot go from {self.state.value} to {state.value}")
        self.state = state

    def _fail(self, fields: dict[str, Any]) -> NoReturn:
        raise _CellFailed(
            failed_from_worker(fields, self._limits, self._map_position, self._file_name)
        )

    def _with_costs(self, result: CellResult, started: float) -> CellResult:
        self._costs.wall_ms += (time.monotonic() - started) * 1000
        return replace(result, output=tuple(self._output), usage=self._costs.usage())
