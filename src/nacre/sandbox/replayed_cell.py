"""A cell whose bursts get the inputs of a record: its clock, its random bytes and its answers."""

from collections.abc import Sequence

from anyio.abc import TaskGroup

from nacre.json_types import JsonValue
from nacre.large_json import MAX_VALUE_BYTES
from nacre.lazy_dataclasses import replace
from nacre.sandbox.cell_leg import (
    CellBursts,
    LegBudget,
    build_cell_context,
    build_snapshot_failure,
    catch_failure,
)
from nacre.sandbox.cell_vm import SandboxRuntime, SnapshotTooLarge
from nacre.sandbox.host_requests import HostRequest, HostRequests
from nacre.sandbox.program import Program, TypeScriptTransforms
from nacre.sandbox.recording import BurstCommand, BurstRecord, ReplayedInputs
from nacre.sandbox.results import Completed, Failed, Output, new_cell_id


class _ReplayedRequests(HostRequests):
    """Requests without a handler: the caller answers them."""

    def add(self, request: HostRequest) -> None:
        self._unanswered[request.id] = request

    def settle(self, request_id: int, encoded: bytes, *, is_success: bool) -> None:
        """Add the answer of a request to the next burst."""
        self._unanswered.pop(request_id, None)
        # A request that was refused has an answer already.
        self._answers = [each for each in self._answers if each[0] != request_id]
        head = b"[%d,%s," % (request_id, b"true" if is_success else b"false")
        self._answers.append((request_id, (head, encoded, b"]")))


class ReplayedCell:
    """A program that runs burst by burst. Nothing outside the sandbox is called."""

    def __init__(
        self,
        program: Program,
        *,
        runtime: SandboxRuntime,
        typescript: TypeScriptTransforms,
        tasks: TaskGroup,
    ) -> None:
        self._output: list[Output] = []
        self._record: BurstRecord | None = None
        program = replace(program, on_output=self._output.append, on_burst=self._note_burst)
        context = build_cell_context(
            program,
            runtime=runtime,
            typescript=typescript,
            tasks=tasks,
            wake=lambda: None,
            cell_id=new_cell_id(),
        )
        limits = program.limits
        self._requests = _ReplayedRequests(
            None,
            tasks=tasks,
            max_concurrent=limits.max_pending_tool_calls,
            max_bytes=max(limits.memory_limit_bytes, MAX_VALUE_BYTES),
            wake=lambda: None,
        )
        self._context = replace(context, requests=self._requests)
        self._bursts = CellBursts(self._context)
        self._seconds = limits.timeout_ms / 1000

    @property
    def open_ids(self) -> tuple[int, ...]:
        """The requests and yields that the program waits for."""
        return (*self._requests.open_ids(), *(each.id for each in self._bursts.yields))

    @property
    def next_timer_ms(self) -> int | None:
        """The time until the next timer, or None without timers."""
        return self._bursts.next_timer_ms()

    @property
    def has_returned(self) -> bool:
        return self._bursts.has_returned

    @property
    def value(self) -> JsonValue:
        """The value of a program that has returned, although it may still wait for calls."""
        return self._bursts.value

    @property
    def record(self) -> BurstRecord | None:
        """What the program did in the last burst; None if it did not run."""
        return self._record

    def take_output(self) -> tuple[Output, ...]:
        """Return and remove the output since the last call."""
        items = tuple(self._output)
        self._output.clear()
        return items

    async def run_burst(
        self,
        command: BurstCommand,
        *,
        inputs: ReplayedInputs,
        answers: Sequence[tuple[int, bool, bytes]] = (),
    ) -> Completed | Failed | None:
        """Run one burst. Returns the result if the program has ended. Each burst has the whole
        time limit of a leg, because this machine may be slower."""
        budget = LegBudget(self._seconds, person_seconds=0)
        self._bursts.replayed = inputs
        self._record = None

        async def run() -> Completed | Failed | None:
            if command == "start":
                frame = await self._bursts.start(budget)
            else:
                for request_id, is_success, encoded in answers:
                    self._requests.settle(request_id, encoded, is_success=is_success)
                self._bursts.yields = ()
                frame = await self._bursts.continue_program(budget)
            return await self._bursts.read_result(frame)

        return await catch_failure(self._context, run)

    async def suspend(self) -> Failed | None:
        """Suspend the program to a snapshot. The next burst restores it."""

        async def run() -> Failed | None:
            if not self._context.vm.is_live:
                return None
            try:
                await self._context.vm.suspend(self.open_ids)
            except SnapshotTooLarge as error:
                return build_snapshot_failure(self._context, error.size)
            return None

        return await catch_failure(self._context, run)

    async def close(self) -> None:
        """End the program and release its worker."""
        self._requests.cancel("the replay has ended")
        await self._context.vm.drop()

    def _note_burst(self, record: BurstRecord) -> None:
        self._record = record
