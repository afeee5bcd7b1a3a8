"""How long to wait before a provider is asked again."""

import pytest

from nacre.providers.retries import Retries


@pytest.mark.parametrize(
    ("attempt", "least", "most"), [(1, 0.25, 0.5), (2, 0.5, 1), (3, 1, 2), (20, 15, 30)]
)
def test_the_wait_doubles_up_to_a_bound_and_is_never_the_same(
    attempt: int, least: float, most: float
) -> None:
    delays = {Retries(most=100).delay_seconds(attempt, asked_seconds=None) for _ in range(20)}

    assert len(delays) > 1
    assert all(delay is not None and least <= delay <= most for delay in delays)


def test_the_provider_knows_best_when_to_come_back() -> None:
    assert Retries(most=2).delay_seconds(1, asked_seconds=17) == 17
    assert Retries(most=2).delay_seconds(1, asked_seconds=0) == 0


def test_nobody_waits_for_hours() -> None:
    assert Retries(most=2).delay_seconds(1, asked_seconds=7200) is None


def test_after_the_last_attempt_there_is_none() -> None:
    assert Retries(most=2).delay_seconds(2, asked_seconds=None) is not None
    assert Retries(most=2).delay_seconds(3, asked_seconds=None) is None
    assert Retries(most=0).delay_seconds(1, asked_seconds=0) is None


def test_absurdly_many_attempts_are_no_overflow() -> None:
    delay = Retries(most=10**9).delay_seconds(10**8, asked_seconds=None)
    assert delay is not None
    assert delay <= 30
