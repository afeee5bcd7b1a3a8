"""All cells of a runtime: the live ones, and the suspended ones with their scope and expiry.

    waiting -> resuming -> waiting | gone
    waiting -> gone            expired, aborted or dropped with its session

A `wait` checks the scope of a cell first. If it may not resume the cell, the cell stays as it was.
"""

from __future__ import annotations

import math
import time
from collections import Counter, OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

import anyio

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from nacre.code_mode.cells import CellInfo, CodeModeCell
    from nacre.ids import CellId
    from nacre.run_context import RunContext
    from nacre.sandbox.results import Reason


MAX_SUSPENDED_CELLS: Final = 64
# One session may not use all places, so that other sessions can suspend cells, too.
_SESSION_SHARE: Final = 0.75
# The number of expired cells to remember, so that `wait` can say "expired" and not "unknown".
_MAX_REMEMBERED_EXPIRIES: Final = 1024

UNAVAILABLE: Final = "code mode run is unavailable or expired."
OTHER_SESSION: Final = "code mode run belongs to a different session."
OTHER_RUN: Final = "code mode run belongs to a different agent run."
ALREADY_RESUMING: Final = "code mode run is already being resumed; wait for that `wait` to return."
TOO_MANY: Final = "too many suspended code mode runs."


class CellRefused(Exception):
    """A cell cannot be started, resumed or suspended, or the input of `exec` or `wait` is invalid.

    Becomes a `failed` result; the message is for the model.
    """

    def __init__(self, message: str, reason: Reason) -> None:
        super().__init__(message)
        self.message = message
        self.reason: Reason = reason


class CellScope(NamedTuple):
    """Who may resume a cell: only the same agent, session, sender and agent run."""

    session_id: str
    session_key: str
    agent_id: str
    sender: str
    agent_run_id: str

    @classmethod
    def of(cls, context: RunContext) -> CellScope:
        return cls(
            session_id=context.session_id,
            session_key=context.session_key,
            agent_id=context.agent_id,
            sender=context.sender,
            agent_run_id=context.run_id,
        )


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

    def __len__(self) -> int:
        return len(self._cells)

    def __iter__(self) -> Iterator[CodeModeCell]:
        return iter([suspended.cell for suspended in self._cells.values()])

    def check_capacity(self, scope: CellScope) -> None:
        """Raise CellRefused if no further cell of this session can be suspended."""
        of_session = self._count_of_session[scope.session_id]
        if len(self._cells) >= self._max_cells or of_session >= self._max_per_session:
            raise CellRefused(TOO_MANY, "too_many_suspended_runs")

    def add(self, cell: CodeModeCell, scope: CellScope) -> None:
        """Add a waiting cell, new or back from a `wait`. Raises CellRefused if there is no room."""
        if cell.cell_id not in self._cells:
            self.check_capacity(scope)
            self._count_of_session[scope.session_id] += 1
        expires = time.monotonic() + cell.ttl_seconds
        self._cells[cell.cell_id] = _Suspended(cell=cell, scope=scope, expires=expires)
        if expires < self._sweep_at:
            self._changed.set()

    def begin_resume(self, cell_id: str, scope: CellScope) -> CodeModeCell:
        """Claim the waiting cell with this id for one resume. Raises CellRefused."""
        suspended = self._cells.get(cell_id)  # pyright: ignore[reportArgumentType]
        known_scope = suspended.scope if suspended else self._expired.get(cell_id)
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
        """Remove expired cells, for ever; run this as a task."""
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
        # Cells whose program has ended, but with calls that still run.
        self._finishing: set[CodeModeCell] = set()

    def add(self, cell: CodeModeCell) -> None:
        self._forget_gone()
        self._cells.add(cell)

    def note_ended(self, cell: CodeModeCell) -> None:
        """The program of the cell has ended; calls that it left behind may still run."""
        self._cells.discard(cell)
        if not cell.is_over:
            self._finishing.add(cell)

    def infos(self, which: Callable[[CodeModeCell], bool]) -> list[CellInfo]:
        """The selected cells, oldest first."""
        found = [cell.info() for cell in self._select(which)]
        return sorted(found, key=lambda info: -info.age_seconds)

    async def abort(self, which: Callable[[CodeModeCell], bool], reason: str) -> int:
        """Abort the selected cells and the calls that they left behind; returns their number."""
        aborted = self._select(which)
        async with anyio.create_task_group() as tasks:
            for cell in aborted:
                cell.request_abort(reason)
                self._suspended.remove(cell.cell_id)
                tasks.start_soon(cell.abort, reason)
        return len(aborted)

    def _select(self, which: Callable[[CodeModeCell], bool]) -> list[CodeModeCell]:
        self._forget_gone()
        return [cell for cell in (*self._cells, *self._finishing) if which(cell)]

    def _forget_gone(self) -> None:
        self._finishing = {cell for cell in self._finishing if not cell.is_over}
