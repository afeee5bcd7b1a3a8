"""Work of a command that a signal may abort, with an end that is always its own."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, TypeVar

import anyio

from nacre.cli.output import STOP_SIGNALS, ExitStatus
from nacre.run_context import AbortController

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, Awaitable, Callable
    from signal import Signals

    from nacre.run_context import AbortSignal

_Done = TypeVar("_Done")


def run_abortable(
    work: Callable[[AbortSignal], Awaitable[_Done]],
) -> tuple[_Done, ExitStatus | None]:
    """Do the work to its end, and what to exit with if a signal came; raises what it raises."""
    gc.enable()
    return anyio.run(_run_with_abort, work)


async def _run_with_abort(
    work: Callable[[AbortSignal], Awaitable[_Done]],
) -> tuple[_Done, ExitStatus | None]:
    abort = AbortController()
    stopped_by: list[Signals] = []
    outcome: list[_Done] = []
    failure: Exception | None = None

    async def abort_at(signals: AsyncIterable[Signals]) -> None:
        async for number in signals:
            stopped_by.append(number)
            abort.abort(f"aborted by {number.name}")

    with anyio.open_signal_receiver(*STOP_SIGNALS) as signals:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(abort_at, signals)
            try:
                outcome.append(await work(abort.signal))
            except Exception as error:
                # Raised below, as it is and not in a group.
                failure = error
            tasks.cancel_scope.cancel()
    if failure is not None:
        raise failure
    return outcome[0], ExitStatus(128 + stopped_by[0]) if stopped_by else None
