"""What the first signal ends, and what the second."""

import signal
from collections.abc import AsyncIterator

import anyio
import pytest

from nacre.cli.output import ExitStatus
from nacre.cli.runner import StopSignals


class Ended(Exception):
    """Stands for the end of the process."""


async def arriving(*numbers: signal.Signals) -> AsyncIterator[signal.Signals]:
    for number in numbers:
        yield number


@pytest.fixture
async def stops(monkeypatch: pytest.MonkeyPatch) -> StopSignals:
    def end(status: int) -> None:
        raise Ended(status)

    stops = StopSignals()
    monkeypatch.setattr(stops, "exit_now", end)
    return stops


async def test_the_first_signal_stops_what_runs(stops: StopSignals) -> None:
    reasons: list[str] = []
    with stops.stop_with(reasons.append):
        await stops.watch(arriving(signal.SIGINT))
    assert reasons == ["aborted by SIGINT"]
    assert stops.status == ExitStatus.INTERRUPTED
    assert not stops.scope.cancel_called


async def test_the_second_signal_ends_the_process(stops: StopSignals) -> None:
    with stops.stop_with(lambda _: None), pytest.raises(Ended, match="143"):
        await stops.watch(arriving(signal.SIGINT, signal.SIGTERM))


async def test_where_nothing_runs_the_command_is_cancelled(stops: StopSignals) -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(stops.watch, arriving(signal.SIGTERM))
        with anyio.fail_after(5), stops.scope:
            await anyio.sleep_forever()
    assert stops.status == ExitStatus.TERMINATED


async def test_a_signal_that_is_forgotten_counts_for_nothing(stops: StopSignals) -> None:
    with stops.stop_with(lambda _: None):
        await stops.watch(arriving(signal.SIGINT))
        stops.clear()
        await stops.watch(arriving(signal.SIGINT))
    stops.clear()
    assert stops.status is None


async def test_signals_that_are_for_somebody_else_do_nothing(stops: StopSignals) -> None:
    with stops.ignore():
        await stops.watch(arriving(signal.SIGINT, signal.SIGINT))
    assert stops.status is None
