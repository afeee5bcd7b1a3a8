"""What the legs of a cell share: its VM, requests, output and usage, and the budget of a leg.

The budget counts bursts and waits, not the time in the queue for a worker, nor suspending, nor the
time in which nothing moves until a person answers: for that a first leg waits only a moment, and a
later one as long as its budget is.
"""

import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, TypeVar

from anyio.abc import TaskGroup

from nacre.errors import WorkerProtocolError
from nacre.ids import CellId, new_cell_id
from nacre.sandbox.cell_vm import CellVm, SandboxRuntime
from nacre.sandbox.host_requests import HostRequests
from nacre.sandbox.limits import MAX_ANSWER_BYTES, OUTPUT_ITEM_BYTES
from nacre.sandbox.program import Program, ProgramSource, TypeScriptTransforms
from nacre.sandbox.results import JsonOutput, Output, TextOutput, Usage
from nacre.sandbox.worker_events import json_of, output_of
from nacre.sandbox.worker_protocol import Frame

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


logger = logging.getLogger(__name__)


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
