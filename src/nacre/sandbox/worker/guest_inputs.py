"""The clock and the random bytes of a guest: reported for a record, or replayed from one.

A record has to be small, although a program may read its clock in a loop. So the clock of a burst
moves in steps, and the report has one entry per step. The steps grow with their number. Random
bytes come from a keyed hash with a key that the supervisor sends, so a record needs only the key.
"""

import os
import time

# Not `hashlib`, which loads OpenSSL and would double the start time of a worker.
from _blake2 import blake2b
from typing import Final

_FIRST_STEP_US: Final = 100
_STEPS_PER_SIZE: Final = 256
_BLOCK_BYTES: Final = 64
_KEY_BYTES: Final = 16


class GuestInputs:
    """The clock and the random bytes of the VM that runs."""

    def __init__(self, *, monotonic_offset_ns: int = 0) -> None:
        self._offset_us = monotonic_offset_ns // 1000
        self._key = os.urandom(_KEY_BYTES)
        self._block_count = 0
        self._begin_clock(None)

    def begin(self, clock: list[int] | None, seed: str | None) -> None:
        """Start a burst. `clock` is the report of an earlier run, to be replayed; `seed` is the
        key of the random bytes from now on."""
        self._begin_clock(clock)
        if seed:
            self._key = bytes.fromhex(seed)
            self._block_count = 0

    def _begin_clock(self, replayed: list[int] | None) -> None:
        self.clock: list[int] = []
        """The report: the wall clock and the monotonic clock in microseconds, the number of reads
        at this time; then for each step its size and the number of reads after it."""
        self._replayed = replayed or []
        self._at = 3
        self._wall_us = self._monotonic_us = self._real_us = 0
        self._step_us = _FIRST_STEP_US

    def read_clock(self, *, is_monotonic: bool) -> int:
        """Return nanoseconds."""
        step_us = self._replayed_step() if self._at <= len(self._replayed) else self._real_step()
        if step_us:
            self._wall_us += step_us
            self._monotonic_us += step_us
            self.clock += (step_us, 1)
        else:
            self.clock[-1] += 1
        return (self._monotonic_us if is_monotonic else self._wall_us) * 1000

    def _real_step(self) -> int:
        now_us = time.monotonic_ns() // 1000
        if not self.clock:
            self._wall_us = time.time_ns() // 1000
            self._monotonic_us = now_us + self._offset_us
            self._real_us = now_us
            self.clock += (self._wall_us, self._monotonic_us, 0)
            return 0
        step_us = now_us - self._real_us
        if step_us < self._step_us:
            return 0
        self._real_us = now_us
        if len(self.clock) % (2 * _STEPS_PER_SIZE) == 1:
            self._step_us *= 2
        return step_us

    def _replayed_step(self) -> int:
        if not self.clock:
            self._wall_us, self._monotonic_us = self._replayed[:2]
            self.clock += (self._wall_us, self._monotonic_us, 0)
        if self.clock[-1] < self._replayed[self._at - 1]:
            return 0
        # After the last step of the record, the clock goes on from there.
        self._at += 2
        if self._at <= len(self._replayed):
            return self._replayed[self._at - 2]
        self._real_us = time.monotonic_ns() // 1000
        return 0

    def random_bytes(self, size: int) -> bytes:
        """Return random bytes that only the key determines."""
        blocks: list[bytes] = []
        for _ in range(0, size, _BLOCK_BYTES):
            counter = self._block_count.to_bytes(8, "little")
            blocks.append(blake2b(counter, key=self._key, digest_size=_BLOCK_BYTES).digest())
            self._block_count += 1
        return b"".join(blocks)[:size]
