"""One leg of a cell: bursts of guest code, with waits for answers and timers between them.

A leg ends when the program ends, when it yields, or when its budget is used up while it waits. In
the last two cases the VM is suspended to a snapshot and its worker is released. A program ends when
it has returned and all its requests and timers are done.

Messages from a worker are untrusted.
"""

import asyncio
import logging
import os
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Final, Literal, TypeVar

import anyio
from anyio.abc import TaskGroup

from nacre.errors import SandboxError, WorkerProtocolError
from nacre.json_types import JsonObject, JsonValue, TooLargeError
from nacre.large_json import MAX_LOOP_BYTES, MAX_VALUE_BYTES, run_in_json_thread
from nacre.lazy_dataclasses import dataclass
from nacre.messages import MAX_IMAGES, InvalidImage, check_image
from nacre.sandbox.cell_vm import (
    BudgetExceeded,
    CellVm,
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
    failure_from_error,
)
from nacre.sandbox.recording import BurstCommand, BurstRecord, ReplayedInputs
from nacre.sandbox.results import (
    MAX_REQUEST_BACKLOG,
    CellId,
    CellResult,
    Completed,
    Failed,
    ImageOutput,
    JsonOutput,
    Output,
    TextOutput,
    Usage,
    Waiting,
)
from nacre.sandbox.worker_process import WakeUp
from nacre.sandbox.worker_protocol import (
    IMAGE_ITEM_BYTES,
    MAX_CELL_IMAGE_BYTES,
    OUTPUT_ITEM_BYTES,
    BurstEvent,
    Command,
    Event,
    EventReader,
    Frame,
    RequestEvent,
    YieldEvent,
    decode_value,
    encode_pieces,
    read_output,
    read_reason,
)

logger = logging.getLogger(__name__)

# An automatic approver answers within this time. For a person, the leg ends with `waiting` instead.
SHORT_PERSON_WAIT_SECONDS: Final = 0.5

# The key of the random bytes of a VM.
_SEED_BYTES: Final = 16

_Result = TypeVar("_Result")


class LegBudget:
    """The time that is left for a leg.

    Bursts and waits count. Waiting for a worker and suspending do not count. While the program
    waits only for a person, a separate budget applies: `person_seconds`, at most the whole time.
    """

    def __init__(self, seconds: float, *, person_seconds: float) -> None:
        self.seconds_left = seconds
        self._person_seconds_left = min(seconds, person_seconds)

    @property
    def is_used_up(self) -> bool:
        return self.seconds_left <= 0 or self._person_seconds_left <= 0

    def seconds_for_wait(self, *, is_for_person: bool) -> float:
        """Return how long a wait may take."""
        return self._person_seconds_left if is_for_person else self.seconds_left

    def charge_wait(self, seconds: float, *, is_for_person: bool) -> None:
        """Subtract the time of a wait."""
        if is_for_person:
            self._person_seconds_left -= seconds
        else:
            self.seconds_left -= seconds

    async def charge(self, burst: Awaitable[_Result]) -> _Result:
        """Await a burst and subtract its time."""
        started = time.monotonic()
        try:
            return await burst
        finally:
            self.seconds_left -= time.monotonic() - started


async def _decode(content: bytes) -> JsonValue:
    if len(content) <= MAX_LOOP_BYTES:
        return decode_value(content)
    return await run_in_json_thread(decode_value, content)


class CellOutput:
    """The output of one cell."""

    def __init__(
        self, *, max_bytes: int, usage: Usage, on_output: Callable[[Output], None] | None
    ) -> None:
        self.bytes_left = max_bytes
        self.image_bytes_left = MAX_CELL_IMAGE_BYTES
        self.count = 0
        """The number of items so far."""
        self._image_count = 0
        self._usage = usage
        self._on_output = on_output
        self._items: list[Output] = []

    async def add(self, frame: Frame) -> None:
        """Add an item of output that a worker sent. Raises TooLargeError for too many parts."""
        kind, content = read_output(frame)
        is_image = kind == "image"
        # The worker counts too, but it may be compromised.
        self.image_bytes_left -= len(content) if is_image else 0
        self.bytes_left -= IMAGE_ITEM_BYTES if is_image else len(content) + OUTPUT_ITEM_BYTES
        if self.bytes_left < 0 or self.image_bytes_left < 0:
            raise WorkerProtocolError("a worker sent more output than the cell's limit")
        match kind:
            case "image":
                item = self._read_image(content.decode(errors="replace"))
            case "json":
                item = JsonOutput(value=await _decode(content))
            case _:
                item = TextOutput(text=content.decode(errors="replace"))
        self._items.append(item)
        self.count += 1
        self._usage.output_bytes += IMAGE_ITEM_BYTES if is_image else len(content)
        self._notify(item)

    def _read_image(self, content: str) -> ImageOutput | TextOutput:
        """Read an image; one that no model can take becomes a note."""
        media_type, _, data = content.partition("\n")
        try:
            if self._image_count >= MAX_IMAGES:
                raise InvalidImage(f"a program may show {MAX_IMAGES} images")
            check_image(media_type, data)
        except InvalidImage as problem:
            return TextOutput(text=f"[image left out: {problem}]")
        self._image_count += 1
        return ImageOutput(media_type=media_type, data=data)

    def to_json(self) -> JsonObject:
        """How much the program may still write."""
        return {
            "bytesLeft": self.bytes_left,
            "imageBytesLeft": self.image_bytes_left,
            "imageCount": self._image_count,
        }

    def load(self, data: Mapping[str, int]) -> None:
        """Continue the counts of another process."""
        self.bytes_left = data["bytesLeft"]
        self.image_bytes_left = data["imageBytesLeft"]
        self._image_count = data["imageCount"]

    def take(self) -> tuple[Output, ...]:
        """Return and remove the items added since the last call."""
        items, self._items = self._items, []
        return tuple(items)

    def _notify(self, item: Output) -> None:
        if self._on_output is None:
            return
        try:
            self._on_output(item)
        except Exception:
            # A bug of the caller must not fail the program; its result has the item anyway.
            logger.exception("on_output failed")


@dataclass(frozen=True, kw_only=True, slots=True)
class CellContext:
    """The parts of a cell that its legs share."""

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
    runtime: SandboxRuntime,
    typescript: TypeScriptTransforms,
    tasks: TaskGroup,
    wake: Callable[[], None],
    cell_id: CellId,
) -> CellContext:
    """Create the parts of a cell. `wake` is called when a waiting leg has to check again."""
    limits, usage = program.limits, Usage()
    output = CellOutput(max_bytes=limits.max_output_bytes, usage=usage, on_output=program.on_output)
    vm = CellVm(
        runtime,
        limits,
        cell_id=cell_id,
        scope=program.scope,
        owner=program.owner,
        shared=program.shared,
        on_output=output.add,
        on_worker_change=wake,
    )
    requests = HostRequests(
        program.handler,
        tasks=tasks,
        max_concurrent=limits.max_pending_tool_calls,
        max_bytes=max(limits.memory_limit_bytes, MAX_VALUE_BYTES),
        wake=wake,
    )
    return CellContext(
        cell_id=cell_id,
        program=program,
        source=ProgramSource(program, typescript),
        vm=vm,
        requests=requests,
        output=output,
        usage=usage,
    )


class CellBursts:
    """Runs the bursts of a program, and records what it waits for after each.

    Each method that runs a burst returns the frame that says how the burst ended.
    """

    def __init__(self, context: CellContext) -> None:
        self._context = context
        self._vm = context.vm
        self._requests = context.requests
        self._limits = context.program.limits
        methods = frozenset(context.program.functions)
        if context.program.shared is not None:
            methods |= context.program.shared.methods
        self._events = EventReader(methods, max_value_bytes=self._limits.max_output_bytes)
        self.yields: tuple[YieldEvent, ...] = ()
        self.has_returned = False
        self.value: JsonValue = None
        self._timer_due: float | None = None
        self.replayed: ReplayedInputs | None = None
        """The clock and the seed of the next burst, instead of real ones."""
        self._seed = ""
        self._record: BurstRecord | None = None
        self._is_loaded = False
        """Whether another process has started the program, so that its source is not known yet."""

    @property
    def has_timer(self) -> bool:
        return self._timer_due is not None

    def seconds_until_timer(self) -> float:
        return float("inf") if self._timer_due is None else self._timer_due - time.monotonic()

    def next_timer_ms(self) -> int | None:
        """Return the time until the next timer, or None without timers."""
        return max(0, round(self.seconds_until_timer() * 1000)) if self.has_timer else None

    async def start(self, budget: LegBudget) -> Frame:
        """Run the first burst of the program."""
        source = self._context.source
        code = await source.javascript(budget.charge)
        fields = {
            **self._cell_fields(budget),
            "functions": self._context.program.functions,
            "fileName": source.file_name,
        }
        self._begin_record("start")
        await self._vm.start(fields, code)
        return await budget.charge(self._vm.finish(budget.seconds_left))

    async def resume(self, budget: LegBudget) -> Frame | None:
        """Run the first burst of a later leg. Returns None if there are no answers yet."""
        for each in self.yields:
            self._requests.answer(each.id)
        self.yields = ()
        if self._is_loaded:
            # For the positions in errors.
            await self._context.source.javascript(budget.charge)
            self._is_loaded = False
        return await self.continue_program(budget) if self._requests.has_answers else None

    async def continue_program(self, budget: LegBudget) -> Frame:
        """Run a burst that delivers the answers, or that fires the due timers if there are none."""
        if not self._vm.is_live:
            await self._vm.restore(self._cell_fields(budget))
        self._vm.unpark()
        fields = self._burst_fields(budget)
        if self._requests.has_answers:
            self._begin_record("deliver")
            fields["settled"], answers = self._requests.take_answers()
            command = encode_pieces(Command.DELIVER, fields, answers)
        else:
            self._begin_record("timers")
            command = encode_pieces(Command.FIRE_TIMERS, fields, ())
        # As `charge` does, without another coroutine.
        started = time.monotonic()
        try:
            return await self._vm.finish(budget.seconds_left, command)
        finally:
            budget.seconds_left -= time.monotonic() - started

    def _cell_fields(self, budget: LegBudget) -> dict[str, object]:
        # Also after a restore, so that no snapshot needs to contain the state of the generator.
        replayed = self.replayed
        self._seed = os.urandom(_SEED_BYTES).hex() if replayed is None else replayed.seed
        return {
            "seed": self._seed,
            "memoryLimitBytes": self._limits.memory_limit_bytes,
            "outputBytesLeft": self._context.output.bytes_left,
            "maxOutputBytes": self._limits.max_output_bytes,
            "imageBytesLeft": self._context.output.image_bytes_left,
            **self._burst_fields(budget),
        }

    def _burst_fields(self, budget: LegBudget) -> dict[str, object]:
        return {
            "budgetMs": max(budget.seconds_left, 0.0) * 1000,
            "maxRequests": self._max_new_requests(),
            "hasReturned": self.has_returned,
            **({} if self.replayed is None else self.replayed.fields()),
        }

    def _begin_record(self, command: BurstCommand) -> None:
        on_burst = self._context.program.on_burst
        if on_burst is None:
            return
        self._record = BurstRecord(
            command=command,
            seed=self._seed,
            answers=self._requests.answers,
            output_start=self._context.output.count,
        )
        self._seed = ""
        try:
            on_burst(self._record)
        except Exception:
            logger.exception("on_burst failed")

    def _end_record(self, burst: BurstEvent, failed: Failed | None) -> None:
        record, self._record = self._record, None
        if record is not None:
            record.is_ended = True
            record.clock = burst.clock
            record.requests = burst.requests
            record.yields = burst.yields
            record.output_count = self._context.output.count - record.output_start
            record.value = (burst.value,) if burst.value_bytes else ()
            record.failed = failed

    def _max_new_requests(self) -> int:
        return MAX_REQUEST_BACKLOG - self._requests.pending_count

    async def read_result(self, frame: Frame) -> Completed | Failed | None:
        """Read the end of a burst. Returns a result if the program has ended."""
        if frame.kind not in (Event.COMPLETED, Event.FAILED, Event.PARKED):
            raise WorkerProtocolError(f"a worker sent an event of kind {frame.kind}")
        if len(frame.tail) <= MAX_LOOP_BYTES:
            burst = self._read(frame)
        else:
            # Decoding megabytes of JSON would block the event loop.
            burst = await run_in_json_thread(self._read, frame)
        usage = self._context.usage
        usage.guest_bursts += 1
        usage.worker_ms += burst.busy_ms
        if frame.kind == Event.FAILED:
            failed = self._context.source.build_failure(read_reason(frame), frame.fields)
            self._vm.release_worker()
            self._end_record(burst, failed)
            return failed
        self._end_record(burst, None)
        self._record_value(burst)
        self._add_requests(burst.requests)
        if frame.kind == Event.COMPLETED:
            self._check_completed()
            self._vm.release_worker()
            return Completed(value=self.value)
        self._record_waits(burst)
        return None

    def _record_value(self, burst: BurstEvent) -> None:
        if not burst.value_bytes:
            return
        if self.has_returned:
            raise WorkerProtocolError("a worker sent two values of one program")
        self.has_returned, self.value = True, burst.value
        self._context.usage.output_bytes += burst.value_bytes

    def _check_completed(self) -> None:
        if not self.has_returned or self._requests.is_open:
            raise WorkerProtocolError("a worker completed a program that still runs or waits")

    def _read(self, frame: Frame) -> BurstEvent:
        return self._events.burst(frame, max_requests=self._max_new_requests())

    def to_json(self) -> JsonObject:
        """What the program waits for, and the value that it returned."""
        return {
            "yields": [[each.id, each.reason] for each in self.yields],
            "hasReturned": self.has_returned,
            "value": self.value,
            "timerMs": self.next_timer_ms(),
            **self._requests.to_json(),
        }

    def load(self, data: Mapping[str, Any]) -> None:
        """Continue a program that another process has suspended; its requests start again."""
        self.yields = tuple(YieldEvent(number, reason) for number, reason in data["yields"])
        self.has_returned, self.value = data["hasReturned"], data["value"]
        self._is_loaded = True
        timer_ms = data["timerMs"]
        self._timer_due = None if timer_ms is None else time.monotonic() + timer_ms / 1000
        self._requests.load_answers(data["answers"])
        for request_id, method, payload in data["requests"]:
            self._add_request(request_id, method, payload)

    def _add_requests(self, requests: tuple[RequestEvent, ...]) -> None:
        for request in requests:
            if request.refusal:
                self._requests.refuse(request.id, request.refusal)
            else:
                self._add_request(request.id, request.method, request.payload)
        self._context.usage.requests += len(requests)

    def _add_request(self, request_id: int, method: str, payload: JsonValue) -> None:
        self._requests.add(
            HostRequest(
                id=request_id,
                method=method,
                payload=payload,
                cell_id=self._context.cell_id,
                abort=self._requests.abort_signal,
                asking_person=partial(self._requests.asking_person, request_id),
                pause_clock=self._requests.pause_clock,
            )
        )

    def _record_waits(self, burst: BurstEvent) -> None:
        self.yields = burst.yields
        self._timer_due = (
            None if burst.timer_ms is None else time.monotonic() + burst.timer_ms / 1000
        )
        if not self.yields and self._timer_due is None and not self._requests.is_open:
            raise WorkerProtocolError("a worker parked a program that waits for nothing")


FirstBurst = Callable[[LegBudget], Awaitable[Frame | None]]
"""Starts or continues a program. Returns None if there is nothing to run yet."""


async def catch_failure(
    context: CellContext, run: Callable[[], Awaitable[_Result]]
) -> _Result | Failed:
    """Run a part of a program. An error becomes a failure, which ends the cell."""
    try:
        result = await run()
    except RestoreFailed as error:
        result = context.source.build_failure("snapshot_restore_failed", {"message": str(error)})
    except BudgetExceeded:
        message = "the program exceeded its time limit"
        result = context.source.build_failure("timeout", {"message": message})
    except SandboxError as error:
        result = failure_from_error(error)
    except NotJavaScript as refusal:
        result = refusal.failed
    except TooLargeError as error:
        message = f"the output or value of the program {error.problem}; return less data"
        result = context.source.build_failure("output_limit_exceeded", {"message": message})
    except Exception as error:
        # An untrusted program found a bug of the sandbox: it must not reach the caller.
        logger.exception("a cell failed because of a bug in the sandbox")
        result = Failed(error=f"the sandbox has a bug: {error!r}", reason="internal_error")
    if isinstance(result, Failed):
        context.requests.cancel(f"the cell failed: {result.reason}")
        # A worker that still holds the VM of a failed cell is stuck or compromised.
        context.vm.kill()
    return result


class CellLeg:
    """One `run` or `resume` of a cell."""

    def __init__(self, context: CellContext, bursts: CellBursts, budget: LegBudget) -> None:
        self._context = context
        self._vm = context.vm
        self._requests = context.requests
        self._bursts = bursts
        self._budget = budget
        self._had_returned = bursts.has_returned
        self._scope = anyio.CancelScope()
        self._wake = WakeUp()
        self.abort_reason = ""
        self.ended = anyio.Event()

    async def run(self, first_burst: FirstBurst) -> CellResult | None:
        """Run the program to the end of the leg. Returns None if the leg was aborted."""
        try:
            with self._scope:
                return await self._run_to_end(first_burst)
            return None
        finally:
            self._wake.close()

    async def abort(self, reason: str) -> None:
        """Cancel the leg, and wait until its cell has cleaned up."""
        self.abort_reason = reason
        self._scope.cancel()
        await self.ended.wait()

    def wake(self) -> None:
        """If the leg waits, make it check again."""
        self._wake.set()

    async def _run_to_end(self, first_burst: FirstBurst) -> CellResult:
        async def run() -> CellResult:
            return await self._run_bursts(await first_burst(self._budget))

        return await catch_failure(self._context, run)

    async def _run_bursts(self, frame: Frame | None) -> CellResult:
        """Run bursts and wait between them until the leg ends."""
        while True:
            if frame is not None:
                ended = await self._bursts.read_result(frame)
                if ended is not None:
                    return ended
            if self._bursts.yields:
                return await self._suspend("yield")
            if not await self._wait_for_work():
                return await self._suspend("pending_tools" if self._requests.is_open else "yield")
            frame = await self._bursts.continue_program(self._budget)

    # Waiting.

    async def _wait_for_work(self) -> bool:
        """Wait for an answer or a timer. Returns False if the budget ends first."""
        # Handlers that do not wait answer within one turn of the loop: no need to park for them.
        await asyncio.sleep(0)
        if not self._requests.has_answers:
            self._vm.park()
        # Checked first, so that a program that always has work also ends its leg.
        while not self._budget.is_used_up:
            self._vm.ensure_open()
            if self._requests.has_answers:
                return True
            until_timer = self._bursts.seconds_until_timer()
            if until_timer <= 0:
                return True
            if self._is_timer_too_late(until_timer):
                return False
            await self._wait(until_timer)
            self._vm.check_alive()
            if self._vm.is_worker_needed:
                await self._free_worker()
        return False

    def _is_timer_too_late(self, until_timer: float) -> bool:
        """Whether the program has returned and only waits for a timer that is due after the
        budget, such as the timeout of a race."""
        # Not in later legs, or a caller that resumes again and again would never wait.
        has_just_returned = self._bursts.has_returned and not self._had_returned
        is_idle = has_just_returned and not self._requests.is_open
        return is_idle and until_timer > self._budget.seconds_left

    async def _wait(self, until_timer: float) -> None:
        """Wait until `wake` is called, at most as long as the budget allows."""
        started = time.monotonic()
        is_for_person = not self._bursts.has_timer and self._requests.waits_only_for_people
        is_paused = self._requests.is_clock_paused
        left = self._budget.seconds_for_wait(is_for_person=is_for_person)
        await self._wake.wait(until_timer if is_paused else min(left, until_timer))
        if not is_paused:
            self._budget.charge_wait(time.monotonic() - started, is_for_person=is_for_person)

    # Suspending.

    async def _free_worker(self) -> None:
        """Suspend to free a worker that other cells need. A VM over the snapshot limit stays."""
        try:
            await self._vm.suspend(self._requests.open_ids())
        except SnapshotTooLarge:
            self._vm.park(can_suspend=False)

    async def _suspend(self, reason: Literal["pending_tools", "yield"]) -> Waiting | Failed:
        """End the leg with the program suspended, until the next `resume`."""
        yields = self._bursts.yields
        if self._vm.is_live:
            try:
                open_yields = (each.id for each in yields)
                await self._vm.suspend((*self._requests.open_ids(), *open_yields))
            except SnapshotTooLarge as error:
                await self._vm.drop()
                return build_snapshot_failure(self._context, error.size)
        self._context.usage.snapshot_bytes = len(self._vm.sealed or b"")
        return Waiting(
            cell_id=self._context.cell_id,
            reason=reason,
            yield_reason=yields[0].reason if yields else "",
            pending=self._requests.pending,
            next_timer_ms=self._bursts.next_timer_ms(),
            has_returned=self._bursts.has_returned,
            value=self._bursts.value,
        )


def build_snapshot_failure(context: CellContext, size: int) -> Failed:
    """Return the failure of a program whose snapshot has this size."""
    most = context.program.limits.max_snapshot_bytes
    message = (
        f"the suspended program takes {size} bytes, more than maxSnapshotBytes ({most}); "
        "keep less data alive across a wait"
    )
    return context.source.build_failure("snapshot_limit_exceeded", {"message": message})
