"""The clock of a program, by a time that the test moves."""

import math
from contextlib import nullcontext

import pytest

from nacre.tool_search.programs import ProgramClock


class Time:
    """Stands still until a test moves it."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    time = Time()
    monkeypatch.setattr("anyio.current_time", time)
    return time


async def test_it_runs_from_the_first_request_on(time: Time) -> None:
    clock = ProgramClock(10)
    assert clock.scope.deadline == math.inf
    clock.start()
    time.now += 3
    clock.start()
    assert clock.scope.deadline == 110


async def test_it_stands_still_while_anybody_is_asked(time: Time) -> None:
    clock = ProgramClock(10)
    clock.start()
    time.now += 4
    with clock.asking_person(nullcontext):
        time.now += 1_000
        with clock.asking_person(nullcontext):
            time.now += 1_000
        assert clock.scope.deadline == math.inf
    assert clock.scope.deadline == time.now + 6


async def test_it_goes_on_when_asking_fails(time: Time) -> None:
    clock = ProgramClock(10)
    clock.start()
    with pytest.raises(KeyError), clock.asking_person(nullcontext):
        time.now += 50
        raise KeyError
    assert clock.scope.deadline == time.now + 10
