"""When to try again."""

from nacre.mcp_client.backoff import STEADY_SECONDS, Backoff


def waits_after(failures: int) -> list[float]:
    backoff = Backoff()
    waits: list[float] = []
    for _ in range(failures):
        backoff.record_failure(now=100, worked_seconds=0)
        waits.append(backoff.wait_seconds(now=100))
    return waits


def test_the_first_failure_costs_nothing_and_others_ever_more() -> None:
    assert waits_after(10) == [0, 1, 2, 4, 8, 16, 32, 60, 60, 60]


def test_very_many_failures_are_no_problem() -> None:
    assert waits_after(3_000)[-1] == 60


def test_the_wait_ends() -> None:
    backoff = Backoff()
    for _ in range(3):
        backoff.record_failure(now=100, worked_seconds=0)
    assert backoff.wait_seconds(now=101.5) == 0.5
    assert backoff.wait_seconds(now=103) == 0


def test_a_server_that_worked_for_long_starts_from_the_beginning() -> None:
    backoff = Backoff()
    for _ in range(5):
        backoff.record_failure(now=100, worked_seconds=0)
    backoff.record_failure(now=200, worked_seconds=STEADY_SECONDS)
    assert backoff.wait_seconds(now=200) == 0
