"""What is charged to the time of a leg, and what is not."""

from types import SimpleNamespace

import pytest

from nacre.sandbox.cell_leg import LegBudget


def test_waiting_for_people_leaves_the_budget_as_it_is() -> None:
    budget = LegBudget(10, is_first_leg=False)
    budget.charge_wait(9, is_for_people=True)
    assert (budget.seconds_left, budget.is_used_up) == (10, False)
    budget.charge_wait(1, is_for_people=True)
    assert budget.is_used_up


def test_a_first_leg_waits_for_people_only_a_moment() -> None:
    first, later = (LegBudget(10, is_first_leg=is_first) for is_first in (True, False))
    assert first.left_for_wait(is_for_people=True) == 0.5
    assert later.left_for_wait(is_for_people=True) == 10
    assert first.left_for_wait(is_for_people=False) == 10


def test_patience_is_never_longer_than_the_budget() -> None:
    assert LegBudget(0.1, is_first_leg=True).left_for_wait(is_for_people=True) == 0.1


async def test_a_burst_that_fails_is_charged_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    clock = SimpleNamespace(monotonic=lambda: now)
    monkeypatch.setattr("nacre.sandbox.cell_leg.time", clock)

    async def burst() -> None:
        nonlocal now
        now += 3
        raise LookupError

    budget = LegBudget(10, is_first_leg=True)
    with pytest.raises(LookupError):
        await budget.charge(burst())
    assert budget.seconds_left == 7
