"""Exponential backoff: for servers that are restarted and for requests that are retried."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Final

# A larger exponent overflows a float.
_MAX_EXPONENT: Final = 20

_FIRST_RESTART_SECONDS: Final = 1.0
_MAX_RESTART_SECONDS: Final = 60.0
STEADY_SECONDS: Final = 30.0
"""A server that worked for this long starts again without delay."""

_MAX_REQUESTED_SECONDS: Final = 120.0
"""If a provider requests a longer delay, the request fails at once."""


def backoff_seconds(attempt: int, *, first_seconds: float, max_seconds: float) -> float:
    """The delay after attempt 1, 2, 3, ...: it doubles from `first_seconds` to `max_seconds`."""
    return min(max_seconds, first_seconds * 2 ** min(attempt - 1, _MAX_EXPONENT))


class RestartBackoff:
    """When a failed server may be restarted: at once, then after 1, 2, 4, ... 60 seconds."""

    def __init__(self) -> None:
        self._failure_count = 0
        self._next_at = 0.0

    def record_failure(self, *, now: float, worked_seconds: float) -> None:
        """Count a failure of a server that had worked for `worked_seconds`."""
        if worked_seconds >= STEADY_SECONDS:
            self._failure_count = 0
        self._failure_count += 1
        self._next_at = now + self._delay_seconds()

    def wait_seconds(self, *, now: float) -> float:
        """How long to wait before the next start."""
        return max(0.0, self._next_at - now)

    def _delay_seconds(self) -> float:
        if self._failure_count < 2:
            return 0.0
        return backoff_seconds(
            self._failure_count - 1,
            first_seconds=_FIRST_RESTART_SECONDS,
            max_seconds=_MAX_RESTART_SECONDS,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class RetryPolicy:
    """When a failed request is retried: after 0.5, 1, 2, ... seconds, or as the server requests."""

    max_retries: int
    first_seconds: float = 0.5
    max_seconds: float = 30.0

    def delay_seconds(self, attempt: int, *, requested_seconds: float | None) -> float | None:
        """The delay after attempt 1, 2, 3, ...; None if there is no further attempt."""
        if attempt > self.max_retries:
            return None
        if requested_seconds is not None:
            return requested_seconds if requested_seconds <= _MAX_REQUESTED_SECONDS else None
        delay = backoff_seconds(
            attempt, first_seconds=self.first_seconds, max_seconds=self.max_seconds
        )
        # Clients that failed together must not return together.
        return delay * random.uniform(0.5, 1.0)
