"""The time that one leg of a cell may take.

The budget counts bursts and waits, not the time in the queue for a worker, nor suspending, nor the
time in which nothing moves until a person answers: for that a first leg waits only a moment, and a
later one as long as its budget is.
"""

import time
from collections.abc import Awaitable
from typing import Final, TypeVar

# A program that approves by itself answers at once; a person does not, and nobody should hold the
# line for one when `waiting` can be said instead.
_PATIENCE_WITH_PEOPLE_SECONDS: Final = 0.5

_Result = TypeVar("_Result")


class LegBudget:
    """Seconds that are left to a leg, for its own doings and for waiting for people."""

    def __init__(self, seconds: float, *, is_first_leg: bool) -> None:
        self.seconds_left = seconds
        self._patience_left = seconds
        if is_first_leg:
            self._patience_left = min(seconds, _PATIENCE_WITH_PEOPLE_SECONDS)

    @property
    def is_used_up(self) -> bool:
        return self.seconds_left <= 0 or self._patience_left <= 0

    def left_for_wait(self, *, is_for_people: bool) -> float:
        """How long a wait may last, in seconds."""
        return self._patience_left if is_for_people else self.seconds_left

    def charge_wait(self, seconds: float, *, is_for_people: bool) -> None:
        if is_for_people:
            self._patience_left -= seconds
        else:
            self.seconds_left -= seconds

    async def charge(self, burst: Awaitable[_Result]) -> _Result:
        """Await a burst on the budget."""
        started = time.monotonic()
        try:
            return await burst
        finally:
            self.seconds_left -= time.monotonic() - started
