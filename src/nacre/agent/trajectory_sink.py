"""Takes what a run's trajectory records: to the run's feed at once, to the store in batches."""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import TYPE_CHECKING, Final, Literal, cast, get_args

import anyio

from nacre.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from nacre.agent.event_log import RunEventLog
    from nacre.json_types import JsonObject
    from nacre.run_context import RunContext
    from nacre.storage import Store
    from nacre.trajectory import TrajectoryEvent, TrajectoryRecorder

logger = logging.getLogger(__name__)

_FORWARDED = Literal[
    "call.started",
    "call.updated",
    "call.changed",
    "call.ended",
    "cell.started",
    "cell.output",
    "cell.suspended",
    "cell.resumed",
    "cell.ended",
]
_FORWARDED_KINDS: Final = frozenset(get_args(_FORWARDED))
_BATCH_EVENTS: Final = 200
_BATCH_SECONDS: Final = 1.0
_WRITE_SECONDS: Final = 10.0


class TrajectoryWriter:
    """One run's. Where the store is slow or broken the run goes on; the log says what is lost."""

    def __init__(
        self,
        recorder: TrajectoryRecorder,
        *,
        feed: RunEventLog,
        store: Store | None,
        context: RunContext,
        on_call: Callable[[], None],
    ) -> None:
        self._event_log = feed
        self._store = store
        self._context = context
        self._on_call = on_call
        self._pending: list[JsonObject] = []
        self._is_full = anyio.Event()
        self._loop = asyncio.get_running_loop()
        self._thread_id = threading.get_ident()
        for event in recorder.events:
            self._take(event)
        self._unsubscribe = recorder.subscribe(self._receive)

    async def write(self) -> None:
        """Write batches as they fill, or once in a while; to be run as a task."""
        while True:
            with anyio.move_on_after(_BATCH_SECONDS):
                await self._is_full.wait()
            await self.flush()

    async def flush(self) -> None:
        """Write what there is; finishes what it has begun, within a bound."""
        batch = self._take_batch()
        if not batch or self._store is None:
            return
        context, problem = self._context, "the store did not answer"
        with anyio.move_on_after(_WRITE_SECONDS, shield=True):
            try:
                await self._store.add_events(context.run_id, context.session_id, batch)
                return
            except StorageError as error:
                problem = str(error)
        logger.error("%d events of the run %s are lost: %s", len(batch), context.run_id, problem)

    def close(self) -> list[JsonObject]:
        """Take nothing more; gives what has not been written."""
        self._unsubscribe()
        return self._take_batch()

    def _take_batch(self) -> list[JsonObject]:
        batch, self._pending = self._pending, []
        self._is_full = anyio.Event()
        return batch

    def _receive(self, event: TrajectoryEvent) -> None:
        """Tools may report progress from threads of their own."""
        if threading.get_ident() == self._thread_id:
            self._take(event)
        else:
            self._loop.call_soon_threadsafe(self._take, event)

    def _take(self, event: TrajectoryEvent) -> None:
        self._pending.append(event.to_json())
        if len(self._pending) >= _BATCH_EVENTS:
            self._is_full.set()
        if event.kind in _FORWARDED_KINDS:
            self._event_log.add(cast("_FORWARDED", event.kind), _log_data(event))
        elif event.kind == "approval.answered" and event.data.get("how") == "always":
            # Nobody was asked: somebody had said "always". All others are told by the queue.
            self._event_log.add("approval.answered", {**_log_data(event), "how": "remembered"})
        if event.kind.startswith("call."):
            self._on_call()


def _log_data(event: TrajectoryEvent) -> JsonObject:
    data: JsonObject = {"toolCallId": event.call_id, **event.data}
    return {**data, "parentToolCallId": event.parent_id} if event.parent_id else data
