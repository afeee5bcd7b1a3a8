"""Which moves a cell's life allows."""

import pytest

from nacre.errors import CellStateError
from nacre.sandbox.cell import CellState, check_move, state_after
from nacre.sandbox.results import Completed, Failed

ENDS = (CellState.COMPLETED, CellState.FAILED, CellState.ABORTED)


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("state", list(CellState))
def test_nothing_follows_an_end(end: CellState, state: CellState) -> None:
    with pytest.raises(CellStateError, match=f"cannot go from {end.value} to {state.value}"):
        check_move(end, state)


@pytest.mark.parametrize("state", [CellState.NEW, CellState.WAITING])
def test_what_does_not_run_can_only_run_or_be_aborted(state: CellState) -> None:
    for after in (CellState.RUNNING, CellState.ABORTED):
        check_move(state, after)
    for after in (CellState.WAITING, CellState.COMPLETED, CellState.FAILED):
        with pytest.raises(CellStateError):
            check_move(state, after)


def test_a_leg_without_a_result_was_aborted() -> None:
    assert state_after(None) is CellState.ABORTED
    assert state_after(Failed(error="no", reason="guest_error")) is CellState.FAILED
    assert state_after(Completed(value=1)) is CellState.COMPLETED
