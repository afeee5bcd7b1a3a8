"""Calling code that is not ours: what it may raise, and what of that is for somebody else.

A tool, a hook or an approver may raise anything, `SystemExit` included. None of it may end the
tasks of other sessions; but a cancellation that is meant for this task has to go on.
"""

from __future__ import annotations

import asyncio

import anyio


def passes_through(error: BaseException) -> bool:
    """Whether it is not the foreign code's own: this task is cancelled or closed, or Ctrl-C."""
    if isinstance(error, (KeyboardInterrupt, GeneratorExit)):
        return True
    if not isinstance(error, anyio.get_cancelled_exc_class()):
        return False
    if anyio.get_current_task().has_pending_cancellation():
        return True
    # Somebody cancelled the task by asyncio's own means; anyio knows nothing of it.
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def described(error: BaseException) -> str:
    """Its message, or else its type; an exception may fail to say even that."""
    if isinstance(error, anyio.get_cancelled_exc_class()):
        return "it was cancelled"
    try:
        return str(error) or type(error).__name__
    except Exception:
        return type(error).__name__
