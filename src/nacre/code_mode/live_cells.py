"""Every cell of a runtime that is not over: running, waiting, or with calls that still run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio

if TYPE_CHECKING:
    from collections.abc import Callable

    from nacre.code_mode.cell import CellInfo, CodeModeCell
    from nacre.code_mode.suspended_runs import SuspendedRuns


class LiveCells:
    """Lists cells and aborts them, also those whose run nobody holds any more."""

    def __init__(self, suspended: SuspendedRuns) -> None:
        self._suspended = suspended
        self._cells: set[CodeModeCell] = set()

    def add(self, cell: CodeModeCell) -> None:
        self.forget_ended()
        self._cells.add(cell)

    def forget_ended(self) -> None:
        self._cells = {cell for cell in self._cells if not cell.is_over}

    def infos(self, which: Callable[[CodeModeCell], bool]) -> list[CellInfo]:
        """What there is to say of those cells, oldest first."""
        self.forget_ended()
        found = [cell.info() for cell in self._cells if which(cell)]
        return sorted(found, key=lambda info: -info.age_seconds)

    async def abort(self, which: Callable[[CodeModeCell], bool], reason: str) -> int:
        """End those cells and the calls that they left behind; how many there were."""
        self.forget_ended()
        aborted = [cell for cell in self._cells if which(cell)]
        async with anyio.create_task_group() as tasks:
            for cell in aborted:
                self._suspended.remove(cell.run_id)
                tasks.start_soon(cell.abort, reason)
        self._cells.difference_update(aborted)
        return len(aborted)
