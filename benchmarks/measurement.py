"""CPU, memory and descriptors of this process and all below it, and the statistics of samples."""

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
    """Every process below this one; an ended one that nobody has waited for counts too."""
    return psutil.Process().children(recursive=True)


def cpu_seconds(pid: int) -> float:
    """CPU so far of one process; 0 if it is gone."""
    try:
        if sys.platform == "linux":
            # The clock of another process: to the nanosecond, where /proc/<pid>/stat counts ticks
            # of 10 ms. See clock_getcpuclockid(3).
            return time.clock_gettime((~pid << 3) | _CPU_CLOCK_OF_PROCESS)
        times = psutil.Process(pid).cpu_times()
        return times.user + times.system
    except (OSError, psutil.Error):
        return 0.0


def ended_cpu_seconds() -> float:
    """CPU of all processes below this one that have ended."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return ended.ru_utime + ended.ru_stime


class CpuTimer:
    """CPU of this process and all below it, ended or not, between `with` and its end: `ms`."""

    def __init__(self) -> None:
        self.ms = 0.0

    def __enter__(self) -> Self:
        # Looking at the others costs this process some CPU, so that stays outside.
        self._below = _cpu_seconds_below()
        self._own = time.process_time()
        return self

    def __exit__(self, *_: object) -> None:
        own = time.process_time() - self._own
        self.ms = (own + _cpu_seconds_below() - self._below) * 1000


def _cpu_seconds_below() -> float:
    return ended_cpu_seconds() + sum(cpu_seconds(process.pid) for process in descendants())


def total_memory_bytes() -> int:
    """Memory of this process and all below it; pages that processes share count once."""
    gc.collect()
    processes = [psutil.Process(), *descendants()]
    shares = [_proportional_bytes(process.pid) for process in processes]
    if None not in shares:
        return sum(share for share in shares if share is not None)
    # A hardened worker shows its share to root alone.
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
    """How many descriptors this process has open."""
    return psutil.Process().num_fds()


def load_average() -> float:
    """How busy the machine was over the last minute."""
    return os.getloadavg()[0]


def percentile(samples: Sequence[float], percent: float) -> float:
    """The smallest sample that so many percent of all samples do not exceed."""
    ordered = sorted(samples)
    return ordered[max(math.ceil(len(ordered) * percent / 100) - 1, 0)]


def median(samples: Sequence[float]) -> float:
    return percentile(samples, 50)


def elapsed_ms(started: float) -> float:
    """Milliseconds since a `time.perf_counter()`."""
    return (time.perf_counter() - started) * 1000
