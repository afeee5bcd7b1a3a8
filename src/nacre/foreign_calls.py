"""Calling code that is not ours: what it may raise, and what of that is for somebody else.

A tool, a hook or an approver may raise anything, `SystemExit` included. None of it may end the
tasks of other sessions; but a cancellation that is meant for this task has to go on.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

import anyio
import anyio.to_thread

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

_Result = TypeVar("_Result")


def passes_through(error: BaseException, *, caller: asyncio.Task[object] | None) -> bool:
    """Whether it is not the foreign code's own: the calling task is cancelled or closed, or Ctrl-C.

    `caller` is the task that made the call, as `asyncio.current_task()` said it then.
    """
    if isinstance(error, KeyboardInterrupt):
        return True
    if isinstance(error, GeneratorExit):
        # Somebody closes the coroutine from outside of it; inside, it was raised by hand.
        return asyncio.current_task() is not caller
    if not isinstance(error, anyio.get_cancelled_exc_class()):
        return False
    if anyio.get_current_task().has_pending_cancellation():
        return True
    # Somebody cancelled the task by asyncio's own means; anyio knows nothing of it.
    return caller is not None and caller.cancelling() > 0


def describe_error(error: BaseException) -> str:
    """Its message, or else its type; an exception may fail to say even that."""
    if isinstance(error, anyio.get_cancelled_exc_class()):
        return "it was cancelled"
    try:
        return str(error) or type(error).__name__
    except BaseException:
        return type(error).__name__


async def call_in_thread(
    function: Callable[[], _Result], *, limiter: anyio.CapacityLimiter | None = None
) -> _Result:
    """What a blocking function returns; one that is cancelled is left behind in its thread.

    What it raises is raised here: a future that is given a GeneratorExit would close the coroutine
    that waits for it, and end its task.
    """

    def caught() -> tuple[list[_Result], BaseException | None]:
        try:
            return [function()], None
        except BaseException as error:
            return [], error

    results, error = await anyio.to_thread.run_sync(caught, abandon_on_cancel=True, limiter=limiter)
    if error is not None:
        raise error
    return results[0]


async def call_in_own_task(function: Callable[[], Awaitable[_Result]]) -> _Result:
    """What an async function returns or raises; a cancelled error where it cancelled its task, and
    a RuntimeError where it leaves a cancel scope or a task group open.

    The task is its own: whatever it does to that, its caller goes on.
    """
    results: list[_Result] = []
    errors: list[BaseException] = []

    async def caught() -> None:
        try:
            results.append(await function())
        except anyio.get_cancelled_exc_class():
            raise
        except BaseException as error:
            # A task that raised a SystemExit would end the event loop.
            errors.append(error)

    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(caught)
    except ExceptionGroup as group:
        # All else is caught above.
        raise RuntimeError("it left a cancel scope or a task group open") from group
    if errors:
        raise errors[0]
    if tasks.cancel_scope.cancel_called or not results:
        raise anyio.get_cancelled_exc_class()
    return results[0]
