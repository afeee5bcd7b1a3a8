"""Asks one hook for its answer: in time, off the event loop if it blocks, with faults described."""

from __future__ import annotations

import asyncio
import inspect
import logging
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar, cast

import anyio

from nacre.errors import HookError
from nacre.foreign_calls import call_in_thread, describe_error, passes_through
from nacre.telemetry import Redaction

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from nacre.hooks.events import HookEvent
    from nacre.hooks.registry import Hooks, RegisteredHook

logger = logging.getLogger(__name__)

_Answer = TypeVar("_Answer")

# Threads of our own: tools that fill the shared ones must not make hooks time out.
_MAX_THREADS: Final = 16
_ERROR_TEXT: Final = Redaction(max_text_characters=300)


class FailedHookError(Exception):
    """A hook gave no answer that can be used; the message is for whoever made the call."""


class HookCaller:
    """Each hook gets at most `timeout_seconds`; a blocking function that takes longer is left
    behind in its thread."""

    def __init__(self, hooks: Hooks, *, timeout_seconds: float = 30.0) -> None:
        self._hooks = hooks
        self._timeout_seconds = timeout_seconds
        self._threads = anyio.CapacityLimiter(_MAX_THREADS)

    def has_hooks(self, event: HookEvent) -> bool:
        """Whether anybody would be asked; if not, a caller need not even make the event."""
        return bool(self._hooks.for_event(event))

    async def _ask(
        self,
        hook: RegisteredHook,
        make_event: Callable[[], object],
        read: Callable[[object], _Answer],
    ) -> _Answer:
        """One hook's answer; raises FailedHookError after the traceback has been logged."""
        task = asyncio.current_task()
        try:
            with anyio.move_on_after(self._timeout_seconds) as scope:
                answer = read(await self._call_hook(hook, make_event()))
                # One that shrugs off its cancellation is late all the same.
                if not scope.cancel_called:
                    return answer
        except HookError as error:
            logger.exception("the hook %s for %s failed", hook.name, hook.event)
            raise FailedHookError(str(error)) from error
        except BaseException as error:
            if passes_through(error, caller=task):
                raise
            logger.exception("the hook %s for %s failed", hook.name, hook.event)
            kind, said = type(error).__name__, describe_error(error)
            message = said if said == kind else f"{kind}: {said}"
            raise FailedHookError(_ERROR_TEXT.text(message)) from error
        logger.error("the hook %s for %s timed out", hook.name, hook.event)
        raise FailedHookError(f"it took longer than {self._timeout_seconds:g} seconds")

    async def _call_hook(self, hook: RegisteredHook, event: object) -> object:
        if hook.is_async:
            return await cast("Awaitable[object]", hook.function(event))
        returned = await call_in_thread(partial(hook.function, event), limiter=self._threads)
        # A plain function around an async one.
        return await returned if inspect.isawaitable(returned) else returned
