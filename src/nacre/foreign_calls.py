"""Calls third-party code, such as tools, hooks and approvers, and contains what it raises.

Third-party code may raise anything, including `SystemExit`. This must not end the tasks of other
sessions, but a cancellation of the calling task has to propagate.
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
    """Whether the error has to propagate: a cancellation of the calling task, or Ctrl-C.

    `caller` is the task that made the call: `asyncio.current_task()` before the call.
    """
    if isinstance(error, KeyboardInterrupt):
        return True
    if isinstance(error, GeneratorExit):
        # In another task, the coroutine is being closed; in the same task, the code raised it.
        return asyncio.current_task() is not caller
    if not isinstance(error, anyio.get_cancelled_exc_class()):
        return False
    if anyio.get_current_task().has_pending_cancellation():
        return True
    # The task was cancelled through asyncio, which anyio does not see.
    return caller is not None and caller.cancelling() > 0


def describe_error(error: BaseException) -> str:
    """Return the message of the error, or its type if it has none or fails to format it."""
    if isinstance(error, anyio.get_cancelled_exc_class()):
        return "it was cancelled"
    try:
        return str(error) or type(error).__name__
    except BaseException:
        return type(error).__name__


async def call_in_thread(
    function: Callable[[], _Result], *, limiter: anyio.CapacityLimiter | None = None
) -> _Result:
    """Call a blocking function in a thread. On cancellation, the thread is abandoned.

    Its exceptions are raised here, not in the future: a future with a GeneratorExit would close the
    waiting coroutine and end its task.
    """

    def catch() -> tuple[list[_Result], BaseException | None]:
        try:
            return [function()], None
        except BaseException as error:
            return [], error

    results, error = await anyio.to_thread.run_sync(catch, abandon_on_cancel=True, limiter=limiter)
    if error is not None:
        raise error
    return results[0]


async def call_in_own_task(function: Callable[[], Awaitable[_Result]]) -> _Result:
    """Call an async function in a task of its own, so that it cannot harm the caller's task.

    Raises a cancelled error if it cancels its task, and RuntimeError if it leaves a cancel scope or
    a task group open.
    """
    results: list[_Result] = []
    errors: list[BaseException] = []

    async def catch() -> None:
        try:
            results.append(await function())
        except anyio.get_cancelled_exc_class():
            raise
        except BaseException as error:
            # A task that raised a SystemExit would end the event loop.
            errors.append(error)

    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(catch)
    except ExceptionGroup as group:
        # `catch` handles all other errors.
        raise RuntimeError("it left a cancel scope or a task group open") from group
    if errors:
        raise errors[0]
    if tasks.cancel_scope.cancel_called or not results:
        raise anyio.get_cancelled_exc_class()
    return results[0]
