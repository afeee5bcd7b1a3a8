"""Who a run is for and until when: identity, scope and abort signal."""

from __future__ import annotations

import logging
import os
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import anyio
from anyio import CancelScope

from nacre.errors import AbortedError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

logger = logging.getLogger(__name__)


def _new_id(kind: str) -> str:
    return f"{kind}_{os.urandom(8).hex()}"


@dataclass(frozen=True, kw_only=True, slots=True)
class RunContext:
    """One run of an agent: nested calls keep it, and suspended cells are bound to it."""

    agent_id: str = "main"
    session_id: str = field(default_factory=lambda: _new_id("session"))
    session_key: str = ""
    run_id: str = field(default_factory=lambda: _new_id("agentrun"))
    sender: str = ""
    """Who wrote the message that the run answers, where a channel knows."""
    channel: str = ""
    is_sandboxed: bool = False
    """Whether the agent's own tools run in a sandbox: `tools.sandbox.tools` applies as well."""


class AbortSignal:
    """Tells a tool that its result is no longer wanted, just before its task is cancelled."""

    def __init__(self) -> None:
        self._event = anyio.Event()
        self._listeners: dict[Callable[[], None], None] = {}
        self.reason = ""

    @property
    def is_aborted(self) -> bool:
        return self._event.is_set()

    async def wait(self) -> None:
        """Return when the call is aborted; for tools that have to tell somebody else."""
        await self._event.wait()

    def raise_if_aborted(self) -> None:
        """Raises AbortedError; for tools that look around between steps."""
        if self.is_aborted:
            raise AbortedError(self.reason)

    def on_abort(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call `listener` once, on the event loop, when the call is aborted; at once if it is.
        Call what is returned to have it not called any more."""
        if self.is_aborted:
            listener()
            return lambda: None
        self._listeners[listener] = None
        return lambda: self._listeners.pop(listener, None)

    @contextmanager
    def cancelling(self) -> Generator[CancelScope]:
        """A scope that is cancelled when the call is aborted."""
        with CancelScope() as scope:
            forget = self.on_abort(scope.cancel)
            try:
                yield scope
            finally:
                forget()

    def _abort(self, reason: str) -> None:
        if self.is_aborted:
            return
        self.reason = reason
        self._event.set()
        listeners, self._listeners = self._listeners, {}
        for listener in listeners:
            try:
                listener()
            except BaseException:
                # One that fails must not keep the others, and the abort itself, from happening.
                logger.exception("a listener of an abort signal failed")


class AbortController:
    """Who holds this may abort; everybody else is given its `signal`."""

    def __init__(self) -> None:
        self.signal = AbortSignal()

    def abort(self, reason: str = "the run was aborted") -> None:
        """Abort; the first reason stays."""
        self.signal._abort(reason)  # pyright: ignore[reportPrivateUsage]
