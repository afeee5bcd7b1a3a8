"""Threads of the sandbox's own: tools that block in threads must not use up the ones it needs."""

from collections.abc import Callable
from typing import Final, TypeVar, TypeVarTuple

import anyio
import anyio.to_thread
from anyio.lowlevel import RunVar

_MAX_THREADS: Final = 16
_limiter: RunVar[anyio.CapacityLimiter] = RunVar("nacre_sandbox_threads")

Result = TypeVar("Result")
Arguments = TypeVarTuple("Arguments")


async def in_thread(function: Callable[[*Arguments], Result], *arguments: *Arguments) -> Result:
    """Call a blocking function in a thread."""
    try:
        limiter = _limiter.get()
    except LookupError:
        limiter = anyio.CapacityLimiter(_MAX_THREADS)
        _limiter.set(limiter)
    return await anyio.to_thread.run_sync(function, *arguments, limiter=limiter)
