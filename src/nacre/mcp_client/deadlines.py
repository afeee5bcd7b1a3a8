"""The timeouts of a connection's calls, which stand still while a person is asked."""

from __future__ import annotations

import math
from contextlib import contextmanager
from typing import TYPE_CHECKING

import anyio

if TYPE_CHECKING:
    from collections.abc import Generator


class Deadlines:
    """Each call has `seconds` of its server's time."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._scopes: set[anyio.CancelScope] = set()
        self._hold_count = 0

    @contextmanager
    def limit_call(self) -> Generator[anyio.CancelScope]:
        """A scope that is cancelled when the time is over: then its `cancelled_caught` is set."""
        with anyio.CancelScope(deadline=self._deadline()) as scope:
            self._scopes.add(scope)
            try:
                yield scope
            finally:
                self._scopes.discard(scope)

    @contextmanager
    def pause(self) -> Generator[None]:
        """No time passes meanwhile; afterwards every call has all of its time again."""
        self._hold_count += 1
        self._set_all()
        try:
            yield
        finally:
            self._hold_count -= 1
            self._set_all()

    def _deadline(self) -> float:
        return math.inf if self._hold_count else anyio.current_time() + self._seconds

    def _set_all(self) -> None:
        deadline = self._deadline()
        for scope in self._scopes:
            scope.deadline = deadline
