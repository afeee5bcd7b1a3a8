"""The identity of a run and its abort signal."""

from __future__ import annotations

import logging
import os
from contextlib import contextmanager
from dataclasses import field
from typing import TYPE_CHECKING

import anyio
from anyio import CancelScope

from nacre.errors import AbortedError
from nacre.lazy_dataclasses import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

logger = logging.getLogger(__name__)


def _new_id(kind: str) -> str:
    return f"{kind}_{os.urandom(8).hex()}"


@dataclass(frozen=True, kw_only=True, slots=True)
class RunContext:
    """One run of an agent. Nested calls carry it, and suspended cells are bound to it."""

    agent_id: str = "main"
    session_id: str = field(default_factory=lambda: _new_id("session"))
    session_key: str = ""
    run_id: str = field(default_factory=lambda: _new_id("agentrun"))
    sender: str = ""
    """The author of the message that started the run, if the channel knows it."""
    channel: str = ""
    trigger: str = ""
    """What started the run, if it was not a message: `heartbeat`."""
    is_sandboxed: bool = False
    """Whether the agent's own tools run in a sandbox: `tools.sandbox.tools` applies as well."""


class AbortSignal:
    """Notifies a tool that its call is aborted, just before its task is cancelled."""

    def __init__(self) -> None:
        self._event = anyio.Event()
        self._listeners: dict[Callable[[], object], None] = {}
        self._is_aborted = False
        self.reason = ""

    @property
    def is_aborted(self) -> bool:
        # Not `is_set`: every call of a tool asks several times.
        return self._is_aborted

    async def wait(self) -> None:
        """Wait until the call is aborted."""
        await self._event.wait()

    def raise_if_aborted(self) -> None:
        """Raise AbortedError if the call is aborted. For tools that check between steps."""
        if self.is_aborted:
            raise AbortedError(self.reason)

    def on_abort(self, listener: Callable[[], object]) -> Callable[[], None]:
        """Call `listener` once, on the event loop, when the call is aborted.

        If it is aborted already, call it now. Returns a function that unsubscribes.
        """
        if self.is_aborted:
            listener()
            return lambda: None
        self._listeners[listener] = None
        return lambda: self._listeners.pop(listener, None)

    @contextmanager
    def cancelling(self) -> Generator[CancelScope]:
        """Return a scope that is cancelled when the call is aborted."""
        with CancelScope() as scope:
            unsubscribe = self.on_abort(scope.cancel)
            try:
                yield scope
            finally:
                unsubscribe()

    def _abort(self, reason: str) -> None:
        if self._is_aborted:
            return
        self.reason = reason
        self._is_aborted = True
        self._event.set()
        listeners, self._listeners = self._listeners, {}
        for listener in listeners:
            try:
                listener()
            except BaseException:
                # A failing listener must not stop the other listeners or the abort.
                logger.exception("a listener of an abort signal failed")


class AbortController:
    """Aborts a run or a call. Pass its `signal` to the code that has to stop."""

    def __init__(self) -> None:
        self.signal = AbortSignal()

    def abort(self, reason: str = "the run was aborted") -> None:
        """Abort. Only the first reason counts."""
        self.signal._abort(reason)  # pyright: ignore[reportPrivateUsage]
