"""Turns that the store could not keep: their rows say so as soon as it answers again."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

import anyio

from nacre.errors import SessionError, StorageError

if TYPE_CHECKING:
    from nacre.agent.session_turns import TurnEnd
    from nacre.storage import Store

logger = logging.getLogger(__name__)

_FIRST_WAIT_SECONDS: Final = 0.5
_MAX_WAIT_SECONDS: Final = 15.0


class FailedTurnWrites:
    """Of one service. What is still open when it is closed is found by the next start."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._ends: dict[str, TurnEnd] = {}
        self._added = anyio.Event()
        self._scope = anyio.CancelScope()

    def add(self, run_id: str, end: TurnEnd) -> None:
        """`end` is how the turn is told to have ended, without its messages."""
        self._ends[run_id] = end
        self._added.set()

    async def write(self) -> None:
        """End the turns that are added; to be run as a task, until `close`."""
        with self._scope:
            while True:
                await self._added.wait()
                self._added = anyio.Event()
                await self._retry_until_written()

    def close(self) -> None:
        self._scope.cancel()

    async def _retry_until_written(self) -> None:
        wait_seconds = _FIRST_WAIT_SECONDS
        while self._ends:
            await anyio.sleep(wait_seconds)
            wait_seconds = min(2 * wait_seconds, _MAX_WAIT_SECONDS)
            await self._write_all()

    async def _write_all(self) -> None:
        """Up to the first one that fails, which is the last to be tried again."""
        for run_id, end in list(self._ends.items()):
            try:
                await self._write_one(run_id, end)
            except StorageError:
                self._ends[run_id] = self._ends.pop(run_id)
                return
            del self._ends[run_id]

    async def _write_one(self, run_id: str, end: TurnEnd) -> None:
        try:
            await self._store.end_turn(
                run_id,
                status=end.status,
                messages=end.messages,
                usage=end.usage,
                error=end.error,
                data=end.data,
            )
        except SessionError as error:
            # Gone with its session, never begun, or kept by a commit whose answer was lost.
            logger.warning("the turn %s is left as it is: %s", run_id, error)
        else:
            logger.warning("the store answers again: the turn %s is noted as failed", run_id)
