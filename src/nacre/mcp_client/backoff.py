"""When a server that failed may be started again."""

from __future__ import annotations

from typing import Final

_FIRST_SECONDS: Final = 1.0
_MAX_SECONDS: Final = 60.0
STEADY_SECONDS: Final = 30.0
"""A server that worked for so long is a sound one again."""


class Backoff:
    """At once after the first failure, then after 1, 2, 4, ... 60 seconds."""

    def __init__(self) -> None:
        self._failure_count = 0
        self._next_at = 0.0

    def record_failure(self, *, now: float, worked_seconds: float) -> None:
        """It failed, after it had worked for a while or not at all."""
        if worked_seconds >= STEADY_SECONDS:
            self._failure_count = 0
        self._failure_count += 1
        self._next_at = now + self._delay_seconds()

    def wait_seconds(self, *, now: float) -> float:
        """How long it is too early for."""
        return max(0.0, self._next_at - now)

    def _delay_seconds(self) -> float:
        if self._failure_count < 2:
            return 0.0
        # The exponent is bounded: two to the thousandth is no float.
        return min(_MAX_SECONDS, _FIRST_SECONDS * 2 ** min(self._failure_count - 2, 10))
