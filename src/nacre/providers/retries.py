"""When a provider that refused or failed is asked again."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Final

_LONGEST_WAIT_SECONDS: Final = 120.0
"""A provider that asks for more is not waited for: whoever asked is better told."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Retries:
    """So many times, after 0.5, 1, 2, ... seconds or as the provider says."""

    most: int
    first_seconds: float = 0.5
    most_seconds: float = 30.0

    def delay_seconds(self, attempt: int, *, asked_seconds: float | None) -> float | None:
        """How long to wait after attempt 1, 2, ...; None if it was the last."""
        if attempt > self.most:
            return None
        if asked_seconds is not None:
            return asked_seconds if asked_seconds <= _LONGEST_WAIT_SECONDS else None
        # The exponent is bounded: two to the thousandth is no float.
        delay = min(self.most_seconds, self.first_seconds * 2 ** min(attempt - 1, 20))
        # Many that failed together must not come back together.
        return delay * random.uniform(0.5, 1.0)
