"""CPU, memory and descriptors of this process and its children, and statistics of samples."""

import gc
import math
import os
import resource
import sys
import time
from collections.abc import Sequence
from typing import Final, Self

import psutil

_CPU_CLOCK_OF_PROCESS: Final = 2
_KIB: Final = 1024


def descendants() -> list[psutil.Process]:
    """All child processes, including zombies."""
    return psutil.Process().children(recursive=True)


def cpu_seconds(pid: int) -> float:
    """The CPU time of a process; 0 if it has ended."""
    try:
        if sys.platform == "linux":
            # The CPU clock of another process has nanoseconds, while /proc/<pid>/stat has ticks
            # of 10 ms. See clock_getcpuclockid(3).
            return time.clock_gettime((~pid << 3) | _CPU_CLOCK_OF_PROCESS)
        times = psutil.Process(pid).cpu_times()
        return times.user + times.system
    except (OSError, psutil.Error):
        return 0.0


def ended_cpu_seconds() -> float:
    """The CPU time of all ended child processes."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return ended.ru_utime + ended.ru_stime


class CpuTimer:
    """The CPU time of this process and all its children within the block, as `ms`."""

    def __init__(self) -> None:
        self.ms = 0.0

    def __enter__(self) -> Self:
        # Reading the other processes takes CPU time too, so it is done outside.
        self._below = _cpu_seconds_below()
        self._own = time.process_time()
        return self

    def __exit__(self, *_: object) -> None:
        own = time.process_time() - self._own
        self.ms = (own + _cpu_seconds_below() - self._below) * 1000


def _cpu_seconds_below() -> float:
    return ended_cpu_seconds() + sum(cpu_seconds(process.pid) for process in descendants())


def total_memory_bytes() -> int:
    """The memory of this process and its children; shared pages count once."""
    gc.collect()
    processes = [psutil.Process(), *descendants()]
    shares = [_proportional_bytes(process.pid) for process in processes]
    if None not in shares:
        return sum(share for share in shares if share is not None)
    # Only root can read the memory of a hardened worker.
    return sum(_resident_bytes(process) for process in processes)


def _proportional_bytes(pid: int) -> int | None:
    try:
        with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as rollup:
            sizes = {line.split(":")[0]: line.split()[-2] for line in rollup if line[:4] == "Pss:"}
    except OSError:
        return None
    return int(sizes["Pss"]) * _KIB if sizes else 0


def _resident_bytes(process: psutil.Process) -> int:
    try:
        return process.memory_info().rss
    except psutil.Error:
        return 0


def open_descriptors() -> int:
    """The number of open descriptors of this process."""
    return psutil.Process().num_fds()


def load_average() -> float:
    """The load average of the last minute."""
    return os.getloadavg()[0]


def percentile(samples: Sequence[float], percent: float) -> float:
    """The percentile of the samples, by the nearest rank."""
    ordered = sorted(samples)
    return ordered[max(math.ceil(len(ordered) * percent / 100) - 1, 0)]


def median(samples: Sequence[float]) -> float:
    return percentile(samples, 50)


def elapsed_ms(started: float) -> float:
    """Milliseconds since a `time.perf_counter()`."""
    return (time.perf_counter() - started) * 1000
