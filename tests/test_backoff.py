"""Delays between restarts and between retries."""

import pytest

from nacre.backoff import STEADY_SECONDS, RestartBackoff, RetryPolicy


def waits_after(failures: int) -> list[float]:
    backoff = RestartBackoff()
    waits: list[float] = []
    for _ in range(failures):
        backoff.record_failure(now=100, worked_seconds=0)
        waits.append(backoff.wait_seconds(now=100))
    return waits


def test_restart_waits_double_after_the_first_failure() -> None:
    assert waits_after(10) == [0, 1, 2, 4, 8, 16, 32, 60, 60, 60]


def test_restart_waits_stay_bounded_after_thousands_of_failures() -> None:
    assert waits_after(3_000)[-1] == 60


def test_restart_wait_ends() -> None:
    backoff = RestartBackoff()
    for _ in range(3):
        backoff.record_failure(now=100, worked_seconds=0)
    assert backoff.wait_seconds(now=101.5) == 0.5
    assert backoff.wait_seconds(now=103) == 0


def test_a_steady_server_restarts_at_once() -> None:
    backoff = RestartBackoff()
    for _ in range(5):
        backoff.record_failure(now=100, worked_seconds=0)
    backoff.record_failure(now=200, worked_seconds=STEADY_SECONDS)
    assert backoff.wait_seconds(now=200) == 0


@pytest.mark.parametrize(
    ("attempt", "least", "most"), [(1, 0.25, 0.5), (2, 0.5, 1), (3, 1, 2), (20, 15, 30)]
)
def test_retry_delays_double_with_jitter(attempt: int, least: float, most: float) -> None:
    policy = RetryPolicy(max_retries=100)
    delays = {policy.delay_seconds(attempt, requested_seconds=None) for _ in range(20)}

    assert len(delays) > 1
    assert all(delay is not None and least <= delay <= most for delay in delays)


def test_the_delay_that_a_server_requests_is_used() -> None:
    assert RetryPolicy(max_retries=2).delay_seconds(1, requested_seconds=17) == 17
    assert RetryPolicy(max_retries=2).delay_seconds(1, requested_seconds=0) == 0


def test_no_retry_if_a_server_requests_hours() -> None:
    assert RetryPolicy(max_retries=2).delay_seconds(1, requested_seconds=7200) is None


def test_no_retry_after_the_last_attempt() -> None:
    assert RetryPolicy(max_retries=2).delay_seconds(2, requested_seconds=None) is not None
    assert RetryPolicy(max_retries=2).delay_seconds(3, requested_seconds=None) is None
    assert RetryPolicy(max_retries=0).delay_seconds(1, requested_seconds=0) is None


def test_retry_delays_stay_bounded_after_millions_of_attempts() -> None:
    delay = RetryPolicy(max_retries=10**9).delay_seconds(10**8, requested_seconds=None)
    assert delay is not None
    assert delay <= 30
