"""How long a program may go on after its first request; it stands still while a person is asked.

The sandbox's own budget holds for each leg of a program. A program that waits for people has many
legs, and this holds for all of them together.
"""

from __future__ import annotations

import math
from contextlib import contextmanager
from typing import TYPE_CHECKING

import anyio

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from contextlib import AbstractContextManager


class ProgramClock:
    """Whatever runs inside of `scope` is cancelled when the time is over."""

    def __init__(self, seconds: float) -> None:
        self.scope = anyio.CancelScope()
        self._seconds_left = seconds
        self._is_started = False
        self._people_asked = 0

    def start(self) -> None:
        """Called at every request; the first one counts."""
        if not self._is_started:
            self._is_started = True
            self.scope.deadline = anyio.current_time() + self._seconds_left

    @contextmanager
    def asking_person(self, asking: Callable[[], AbstractContextManager[None]]) -> Generator[None]:
        """Around a question to a person; `asking` is what the sandbox has entered meanwhile."""
        if not self._people_asked:
            self._seconds_left = self.scope.deadline - anyio.current_time()
            self.scope.deadline = math.inf
        self._people_asked += 1
        try:
            with asking():
                yield
        finally:
            self._people_asked -= 1
            if not self._people_asked:
                self.scope.deadline = anyio.current_time() + self._seconds_left
