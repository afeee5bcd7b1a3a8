"""Where a cell is in its life, and which moves that life allows.

new -> running -> waiting -> running -> completed | failed | aborted
"""

from enum import Enum
from typing import Final

from nacre.errors import CellStateError
from nacre.sandbox.results import CellResult, Completed, Failed, Waiting


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


def check_move(before: CellState, after: CellState) -> None:
    """Raises CellStateError for a move that no cell makes."""
    if after not in _MOVES[before]:
        raise CellStateError(f"a cell cannot go from {before.value} to {after.value}")


def state_after(result: CellResult | None) -> CellState:
    """The state that a leg leaves behind; a leg without a result was aborted."""
    return CellState.ABORTED if result is None else _STATE_AFTER[type(result)]
