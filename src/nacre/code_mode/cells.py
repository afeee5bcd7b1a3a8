"""The cells of runs: start, resume, suspend, list and abort.

    running -> waiting -> running -> completed | failed
    running | waiting -> aborted,  waiting -> expired

A `wait` checks the scope of a cell first. If it may not resume the cell, the cell stays as it was.
"""

from __future__ import annotations

import math
import time
from collections import Counter, OrderedDict
from contextlib import contextmanager
from dataclasses import field
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import anyio

from nacre.cell_replay import CellRecorder, ProgramInfo
from nacre.code_mode.bridge import CellBridge
from nacre.code_mode.cell import (
    CellInfo,
    CellRefused,
    CellScope,
    CodeModeCell,
    CodeModeResult,
    ExecInput,
    Failed,
    ResumeCause,
    Waiting,
)
from nacre.code_mode.durable_cells import CellJournal, describe_lost, read_record
from nacre.config import MAX_SUSPENDED_CELLS
from nacre.errors import CellStateError, CellTakenError, SnapshotError, StorageError
from nacre.lazy_dataclasses import dataclass, replace
from nacre.sandbox import Limits
from nacre.sandbox import results as cell_results
from nacre.telemetry import span

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterator, Mapping

    from nacre.code_mode.bridge import RunTools
    from nacre.code_mode.durable_cells import DurableRun, RestoredProgram
    from nacre.code_mode.namespaces import NamespaceRuntime
    from nacre.sandbox import CellId, CellResult, Output, Sandbox, SharedData, StoredCell
    from nacre.storage import CellRecord, CellStore


# One session may not use all places, so that other sessions can suspend cells, too.
_SESSION_SHARE: Final = 0.75
# The number of expired cells to remember, so that `wait` can say "expired" and not "unknown".
_MAX_REMEMBERED_EXPIRIES: Final = 1024

UNAVAILABLE: Final = "code mode run is unavailable or expired."
OTHER_SESSION: Final = "code mode run belongs to a different session."
OTHER_RUN: Final = "code mode run belongs to a different agent run."
ALREADY_RESUMING: Final = "code mode run is already being resumed; wait for that `wait` to return."
TOO_MANY: Final = "too many suspended code mode runs."
_DAMAGED: Final = "the suspended program cannot be continued: its row is damaged"


@dataclass(slots=True)
class _Suspended:
    cell: CodeModeCell
    scope: CellScope
    expires: float
    is_resuming: bool = False


class SuspendedCells:
    """The cells between a `waiting` result and the next `wait`."""

    def __init__(self, max_cells: int = MAX_SUSPENDED_CELLS) -> None:
        self._max_cells = max_cells
        self._max_per_session = max(1, int(max_cells * _SESSION_SHARE))
        self._cells: dict[CellId, _Suspended] = {}
        self._count_of_session: Counter[str] = Counter()
        # The time of the next sweep; a cell that expires earlier has to wake it.
        self._sweep_at = 0.0
        self._expired: OrderedDict[str, CellScope] = OrderedDict()
        self._changed = anyio.Event()
        self.being_restored: set[str] = set()
        """The ids of stored cells that a run is about to take over."""

    def __len__(self) -> int:
        return len(self._cells)

    def __iter__(self) -> Iterator[CodeModeCell]:
        return iter([suspended.cell for suspended in self._cells.values()])

    def is_known(self, cell_id: str) -> bool:
        """Whether the cell is suspended in this process, or was until it expired."""
        return cell_id in self._cells or cell_id in self._expired

    def expiry_of(self, cell_id: CellId) -> float | None:
        """When the cell expires, by the monotonic clock; None unless it waits for a resume."""
        suspended = self._cells.get(cell_id)
        return None if suspended is None or suspended.is_resuming else suspended.expires

    def check_capacity(self, scope: CellScope) -> None:
        """Raise CellRefused if no further cell of this session can be suspended."""
        of_session = self._count_of_session[scope.session_id]
        if len(self._cells) >= self._max_cells or of_session >= self._max_per_session:
            raise CellRefused(TOO_MANY, "too_many_suspended_runs")

    @property
    def max_per_session(self) -> int:
        return self._max_per_session

    def add(
        self, cell: CodeModeCell, scope: CellScope, *, seconds_left: float | None = None
    ) -> None:
        """Add a waiting cell, new or back from a `wait`. Raises CellRefused if there is no room.

        `seconds_left` is the time to live of a cell that another process has suspended. There is
        always room for it: a process that takes over the cells of another one must lose none.
        """
        if cell.cell_id not in self._cells:
            if seconds_left is None:
                self.check_capacity(scope)
            self._count_of_session[scope.session_id] += 1
        expires = time.monotonic() + (cell.ttl_seconds if seconds_left is None else seconds_left)
        self._cells[cell.cell_id] = _Suspended(cell=cell, scope=scope, expires=expires)
        if expires < self._sweep_at:
            self._changed.set()

    def begin_resume(self, cell_id: str, scope: CellScope) -> CodeModeCell:
        """Claim the waiting cell with this id for one resume. Raises CellRefused."""
        suspended = self._cells.get(cell_id)  # pyright: ignore[reportArgumentType]
        known_scope = suspended.scope if suspended else self._expired.get(cell_id)
        if cell_id in self.being_restored:
            raise CellRefused(ALREADY_RESUMING, "run_already_resuming")
        if known_scope is None:
            raise CellRefused(UNAVAILABLE, "run_unavailable")
        _check_scope(known_scope, scope)
        # The sweep may not have seen it yet.
        if suspended is None or (
            not suspended.is_resuming and suspended.expires <= time.monotonic()
        ):
            raise CellRefused(UNAVAILABLE, "snapshot_expired")
        if suspended.is_resuming:
            raise CellRefused(ALREADY_RESUMING, "run_already_resuming")
        suspended.is_resuming = True
        return suspended.cell

    def remove(self, cell_id: CellId) -> None:
        """Remove a cell that has ended."""
        gone = self._cells.pop(cell_id, None)
        if gone is not None:
            session_id = gone.scope.session_id
            self._count_of_session[session_id] -= 1
            if not self._count_of_session[session_id]:
                del self._count_of_session[session_id]

    async def expire(self) -> None:
        """Remove expired cells until cancelled; run this as a task."""
        while True:
            self._changed = anyio.Event()
            waiting = (each.expires for each in self._cells.values() if not each.is_resuming)
            self._sweep_at = min(waiting, default=math.inf)
            with anyio.move_on_after(max(self._sweep_at - time.monotonic(), 0)):
                await self._changed.wait()
            await self._drop_expired()

    async def _drop_expired(self) -> None:
        now = time.monotonic()
        for cell_id, suspended in list(self._cells.items()):
            if suspended.is_resuming or suspended.expires > now:
                continue
            self.remove(cell_id)
            self._expired[cell_id] = suspended.scope
            if len(self._expired) > _MAX_REMEMBERED_EXPIRIES:
                self._expired.popitem(last=False)
            await suspended.cell.expire()


def _check_scope(owner: CellScope, caller: CellScope) -> None:
    if owner == caller:
        return
    is_same_session = owner._replace(agent_run_id="") == caller._replace(agent_run_id="")
    raise CellRefused(OTHER_RUN if is_same_session else OTHER_SESSION, "run_scope_mismatch")


class LiveCells:
    """Lists and aborts the cells of a runtime, also if nobody holds their run any more."""

    def __init__(self, suspended: SuspendedCells) -> None:
        self._suspended = suspended
        self._cells: set[CodeModeCell] = set()

    def add(self, cell: CodeModeCell) -> None:
        self._cells.add(cell)

    def remove(self, cell: CodeModeCell) -> None:
        """Remove a cell that has ended."""
        self._cells.discard(cell)

    def infos(self, which: Callable[[CodeModeCell], bool]) -> list[CellInfo]:
        """The selected cells, oldest first."""
        found = [
            cell.info(expires=self._suspended.expiry_of(cell.cell_id))
            for cell in self.select(which)
        ]
        return sorted(found, key=lambda info: -info.age_seconds)

    def find(self, cell_id: str) -> CodeModeCell | None:
        return next((cell for cell in self._cells if cell.cell_id == cell_id), None)

    def detach(self) -> None:
        """Leave the stored cells to the next process. The others end with this one."""
        for cell in self._cells:
            cell.detach()

    async def abort(self, which: Callable[[CodeModeCell], bool], reason: str) -> int:
        """Abort the selected cells with their calls; returns the number of cells."""
        aborted = self.select(which)
        async with anyio.create_task_group() as tasks:
            for cell in aborted:
                cell.request_abort(reason)
                self._suspended.remove(cell.cell_id)
                tasks.start_soon(cell.abort, reason)
        return len(aborted)

    def select(self, which: Callable[[CodeModeCell], bool]) -> list[CodeModeCell]:
        return [cell for cell in self._cells if which(cell)]


@dataclass(slots=True)
class _PersonLeg:
    """A leg that a person has started. The next `wait` of the model gets its result."""

    output: tuple[Output, ...]
    """Of earlier legs that the model has not seen."""
    ended: anyio.Event = field(default_factory=anyio.Event)
    result: CodeModeResult | None = None


class RunCells:
    """The cells of one run. A cell whose result is `Waiting` is stored as suspended."""

    def __init__(
        self,
        tools: RunTools,
        *,
        sandbox: Sandbox,
        suspended: SuspendedCells,
        live: LiveCells,
        durable: DurableRun | None = None,
    ) -> None:
        self._tools = tools
        self._durable = durable
        self._sandbox = sandbox
        self._suspended = suspended
        self._live = live
        self._telemetry = tools.telemetry
        self._scope = CellScope.of(tools.executor.context)
        self._abort_reason: str | None = None
        self._person_legs: dict[str, _PersonLeg] = {}

    async def start(self, program: ExecInput, *, call_id: str) -> CodeModeResult:
        """Run a program for the call of `exec` with this id. Raises CellRefused."""
        tools = self._tools
        namespaces = await tools.namespaces.open()
        self._refuse_after_abort()
        await tools.mcp.servers.refresh_named(program.code)
        listings = await tools.mcp.servers.listings()
        self._refuse_after_abort()
        journal = None if self._durable is None else self._open_journal(call_id)
        shared = tools.prepared.views.view(namespaces, listings)
        cell = self._make_cell(program, call_id, namespaces, shared, journal)
        return await self._run_leg(cell, cell.run)

    def _make_cell(
        self,
        program: ExecInput,
        call_id: str,
        namespaces: Mapping[str, NamespaceRuntime],
        shared: SharedData,
        journal: CellJournal | None,
        restored: RestoredProgram | None = None,
    ) -> CodeModeCell:
        tools = self._tools
        limits = Limits.from_config(tools.config)
        record = CellRecorder(
            tools.executor.recorder,
            ProgramInfo(
                code=program.code,
                language=program.language,
                limits=limits,
                shared=shared,
                sandbox=self._sandbox,
            ),
            call_id=call_id,
            earlier_bursts=None if restored is None else restored.recorded_bursts,
        )
        bridge = CellBridge(
            tools,
            namespaces,
            exec_call_id=call_id,
            span=span("nacre.cell", {"nacre.call.id": call_id}),
            journal=journal,
        )
        cell = CodeModeCell(
            self._sandbox.cell(
                program.code,
                language=program.language,
                limits=limits,
                shared=shared,
                handler=bridge,
                on_burst=record.add,
                owner=tools.executor.context.session_id,
                scope=self._scope.to_text(),
                stored=None if restored is None else restored.stored,
            ),
            bridge,
            program=program,
            record=record,
            on_end=self._live.remove,
            journal=journal,
            output=() if restored is None else restored.output,
        )
        self._live.add(cell)
        return cell

    def _open_journal(
        self, call_id: str, record: CellRecord | None = None, epoch: int = 0
    ) -> CellJournal:
        assert self._durable is not None
        return CellJournal(
            self._durable,
            context=self._tools.executor.context,
            scope=self._scope.to_text(),
            call_id=call_id,
            record=record,
            epoch=epoch,
        )

    async def resume(self, cell_id: str, *, cause: ResumeCause) -> CodeModeResult:
        """Continue a suspended program. Raises CellRefused, and leaves the cell as it was.

        If a person has resumed the program, this returns the result of that leg. If the program
        waits again by now, it continues.
        """
        self._refuse_after_abort()
        output: tuple[Output, ...] = ()
        if leg := self._person_legs.get(cell_id):
            was_running = not leg.ended.is_set()
            await leg.ended.wait()
            self._person_legs.pop(cell_id, None)
            if leg.result is not None:
                if was_running or not isinstance(leg.result, Waiting):
                    return leg.result
                output = leg.result.output
        if self._durable is not None and not self._suspended.is_known(cell_id):
            await self._restore(cell_id, self._durable.store)
        cell = self._suspended.begin_resume(cell_id, self._scope)
        if cause == "restart":
            # The process that ran the earlier legs has lost their output.
            output = cell.unseen_output
        result = await self._run_leg(cell, partial(cell.resume, cause))
        return replace(result, output=(*output, *result.output)) if output else result

    def begin_person_leg(self, cell_id: str) -> Callable[[], Coroutine[Any, Any, None]]:
        """Claim a waiting cell for a person; call the result to run its next leg.

        Raises CellRefused.
        """
        self._refuse_after_abort()
        cell = self._suspended.begin_resume(cell_id, self._scope)
        before = self._person_legs.get(cell_id)
        seen = before.result.output if before is not None and before.result is not None else ()
        leg = self._person_legs[cell_id] = _PersonLeg(seen)
        cell.resumed_by_person.set()
        return partial(self._run_person_leg, cell, leg)

    async def _run_person_leg(self, cell: CodeModeCell, leg: _PersonLeg) -> None:
        try:
            result = await self._run_leg(cell, partial(cell.resume, "person"))
            leg.result = replace(result, output=(*leg.output, *result.output))
        except CellRefused:
            # It was aborted at this moment: `wait` finds no cell.
            pass
        finally:
            leg.ended.set()

    # Cells that another process has stored.

    async def find_stored(self) -> list[CellRecord]:
        """The stored cells of the run; empty if they are not durable. Raises StorageError."""
        if self._durable is None:
            return []
        return await self._durable.store.of_run(self._scope.agent_run_id)

    async def _restore(self, cell_id: str, store: CellStore) -> None:
        """Take over a cell of a process that has ended. Raises CellRefused."""
        if cell_id in self._suspended.being_restored or self._live.find(cell_id) is not None:
            raise CellRefused(ALREADY_RESUMING, "run_already_resuming")
        self._suspended.being_restored.add(cell_id)
        try:
            record = await store.find(cell_id)
            if record is not None:
                await self._take_over(record, store)
        except CellTakenError:
            raise CellRefused(ALREADY_RESUMING, "run_already_resuming") from None
        except StorageError as error:
            problem = f"the code mode run cannot be read from the store: {error}"
            raise CellRefused(problem, "internal_error") from error
        finally:
            self._suspended.being_restored.discard(cell_id)

    async def _take_over(self, record: CellRecord, store: CellStore) -> None:
        try:
            scope = CellScope.from_text(record.scope)
        except ValueError as error:
            raise CellRefused(_DAMAGED, "snapshot_invalid") from error
        _check_scope(scope, self._scope)
        epoch = await store.claim(record)
        try:
            if record.seconds_left <= 0:
                raise CellRefused(UNAVAILABLE, "snapshot_expired")
            restored = read_record(record)
            if restored.lost_calls:
                raise CellRefused(describe_lost(restored.lost_calls), "worker_lost")
            await self._add_restored(record, restored, epoch)
        except SnapshotError as error:
            # It stays until it expires: perhaps only its key is missing.
            problem = f"the suspended program cannot be continued: {error}"
            raise CellRefused(problem, "snapshot_invalid") from error
        except (KeyError, TypeError, ValueError, CellRefused) as error:
            # It can never be resumed.
            await store.delete(record.id, epoch=epoch)
            if isinstance(error, CellRefused):
                raise
            raise CellRefused(_DAMAGED, "snapshot_invalid") from error

    async def _add_restored(
        self, record: CellRecord, restored: RestoredProgram, epoch: int
    ) -> None:
        await self._find_image(restored.stored)
        namespaces = await self._tools.namespaces.open()
        listings = await self._tools.mcp.servers.listings()
        shared = self._tools.prepared.views.view(namespaces, listings)
        program = ExecInput(code=restored.code, language=restored.language)
        journal = self._open_journal(record.call_id, record, epoch)
        cell = self._make_cell(program, record.call_id, namespaces, shared, journal, restored)
        self._suspended.add(cell, self._scope, seconds_left=record.seconds_left)

    async def _find_image(self, stored: StoredCell) -> None:
        """Open the image of a cell that another version of Nacre has suspended."""
        assert self._durable is not None
        if await self._sandbox.has_image(stored.image):
            return
        wasm = await self._durable.store.find_image(stored.image)
        if wasm is not None:
            await self._sandbox.add_image(stored, wasm, scope=self._scope.to_text())

    def are_stored(self, *, besides: str = "") -> bool:
        """Whether another process can continue all cells besides the one with this id."""
        cells = self._live.select(self._is_mine)
        return all(cell.is_stored or cell.cell_id == besides for cell in cells)

    async def settle(self) -> None:
        """Wait until the cells that are being stored are stored."""
        for cell in self._live.select(self._is_mine):
            await cell.settle()

    def detach(self) -> None:
        """Leave the stored cells to the next process. The others end with this one."""
        for cell in self._live.select(self._is_mine):
            cell.detach()

    async def wait_for_person(self, cell_id: str) -> None:
        """Wait until a person resumes this waiting cell, or it has ended."""
        cell = self._live.find(cell_id)
        if cell is not None and cell_id not in self._person_legs:
            await cell.resumed_by_person.wait()

    @contextmanager
    def await_answer(self, cell_id: str) -> Generator[None]:
        """Inside the block, a call of the model waits to resume this cell: a person cannot."""
        cell = self._live.find(cell_id)
        if cell is not None:
            cell.is_awaited = True
        try:
            yield
        finally:
            if cell is not None:
                cell.is_awaited = False

    async def abort(self, reason: str) -> None:
        """Abort all cells and their calls. No cell can be started any more."""
        self._abort_reason = reason
        await self._live.abort(self._is_mine, reason)

    async def abort_one(self, cell_id: str, reason: str) -> bool:
        """Abort one cell; False if there is none with this id."""
        return bool(
            await self._live.abort(
                lambda cell: self._is_mine(cell) and cell.cell_id == cell_id, reason
            )
        )

    def infos(self) -> list[CellInfo]:
        """The cells that run or wait; oldest first."""
        return self._live.infos(self._is_mine)

    def _is_mine(self, cell: CodeModeCell) -> bool:
        return cell.recorder is self._tools.executor.recorder

    async def _run_leg(
        self, cell: CodeModeCell, leg: Callable[[], Awaitable[CellResult]]
    ) -> CodeModeResult:
        is_stored = False
        try:
            ended = await leg()
            if isinstance(ended, cell_results.Failed):
                # Before the telemetry is copied, so that a result counts its own failure.
                self._telemetry.count_failure(ended.reason)
            result = cell.to_result(ended, self._telemetry)
            if isinstance(result, Waiting):
                result = await self._store_suspended(cell, result)
                is_stored = isinstance(result, Waiting)
            return result
        except CellStateError:
            # The cell was aborted between `begin_resume` and its first step.
            raise CellRefused(UNAVAILABLE, "run_unavailable") from None
        finally:
            if not is_stored:
                self._suspended.remove(cell.cell_id)

    async def _store_suspended(self, cell: CodeModeCell, waiting: Waiting) -> Waiting | Failed:
        try:
            if cell.abort_reason is not None:
                raise CellRefused(cell.abort_reason, "aborted")
            self._suspended.add(cell, self._scope)
            await self._store_durably(cell)
        except CellRefused as refusal:
            await cell.abort(refusal.message)
            self._telemetry.count_failure(refusal.reason)
            return Failed(
                error=refusal.message,
                reason=refusal.reason,
                output=waiting.output,
                usage=waiting.usage,
                telemetry=replace(
                    waiting.telemetry,
                    snapshots=self._telemetry.snapshots.to_json(),
                    limit_failures=dict(self._telemetry.limit_failures),
                ),
            )
        return waiting

    async def _store_durably(self, cell: CodeModeCell) -> None:
        try:
            if self._durable is not None:
                image = self._sandbox.current_image
                await self._durable.store.keep_image(image.identity, image.wasm)
            if not await cell.store(max_per_session=self._suspended.max_per_session):
                raise CellRefused(TOO_MANY, "too_many_suspended_runs")
        except StorageError as error:
            problem = f"the suspended program cannot be stored: {error}"
            raise CellRefused(problem, "internal_error") from error
        except CellStateError:
            # It was aborted meanwhile.
            raise CellRefused(cell.abort_reason or UNAVAILABLE, "aborted") from None

    def _refuse_after_abort(self) -> None:
        if self._abort_reason is not None:
            raise CellRefused(self._abort_reason, "aborted")
