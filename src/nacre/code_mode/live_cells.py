"""Every cell of a runtime that is not over: running, waiting, or with calls that still run."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import anyio

if TYPE_CHECKING:
    from collections.abc import Callable

    from nacre.code_mode.cells import CellInfo, CodeModeCell
    from nacre.code_mode.suspended_runs import SuspendedCells


class LiveCells:
    """Lists cells and aborts them, also those whose run nobody holds any more."""

    def __init__(self, suspended: SuspendedCells) -> None:
        self._suspended = suspended
        self._cells: set[CodeModeCell] = set()
        # Those whose program is over, but not yet all of its calls.
        self._finishing: set[CodeModeCell] = set()

    def add(self, cell: CodeModeCell) -> None:
        self._forget_gone()
        self._cells.add(cell)
        cell.on_end = partial(self._move_ended, cell)

    def _move_ended(self, cell: CodeModeCell) -> None:
        self._cells.discard(cell)
        if not cell.is_over:
            self._finishing.add(cell)

    def infos(self, which: Callable[[CodeModeCell], bool]) -> list[CellInfo]:
        """What there is to say of those cells, oldest first."""
        found = [cell.info() for cell in self._select(which)]
        return sorted(found, key=lambda info: -info.age_seconds)

    async def abort(self, which: Callable[[CodeModeCell], bool], reason: str) -> int:
        """End those cells and the calls that they left behind; how many there were."""
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
