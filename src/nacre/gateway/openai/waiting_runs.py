"""Runs that wait for their client's results, between two requests."""

from __future__ import annotations

import asyncio
import os
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from nacre.gateway.openai.turn_input import invalid
from nacre.json_types import JsonValue, NotJsonError, decode_json

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from nacre.agent import AgentRun, PendingClientCall

WAIT_SECONDS: Final = 900.0

_ID_BYTES: Final = 16
_MAX_LISTED: Final = 10
# Abort before the calls expire: the run must not continue without a client.
_MARGIN_SECONDS: Final = 1.0
_EXPIRED: Final = "the client did not send the results of its tool calls in time"
_REPLACED: Final = "too many runs wait for results of their clients; this one waited longest"


@dataclass(frozen=True, kw_only=True, slots=True)
class ClientCall:
    """A call with an id for the client. Whoever knows the id can deliver the result."""

    id: str
    call: PendingClientCall


@dataclass(kw_only=True, slots=True)
class WaitingRun:
    """A run and the calls whose results it waits for."""

    run: AgentRun
    calls: tuple[ClientCall, ...]
    after: int
    """The last event that was sent to the client."""
    answer_number: int
    """The number of answers so far."""
    timer: asyncio.TimerHandle | None = field(default=None, repr=False)

    @property
    def is_open(self) -> bool:
        """Whether all calls still wait for a result."""
        pending = {call.call_id for call in self.run.pending_client_calls}
        return not self.run.has_ended and pending.issuperset(
            shown.call.call_id for shown in self.calls
        )

    def deliver(self, results: Mapping[str, str]) -> None:
        """Deliver the results of the calls. Raises SessionError if the run has ended."""
        for shown in self.calls:
            is_nested = bool(shown.call.parent_id)
            text = results[shown.id]
            self.run.deliver(shown.call.call_id, _parse_result(text) if is_nested else text)


class WaitingRuns:
    """Holds waiting runs for a limited time, then aborts them. A new run may replace the oldest."""

    def __init__(self, *, max_runs: Callable[[], int], seconds: float = WAIT_SECONDS) -> None:
        self._max_runs = max_runs
        self._seconds = seconds
        self._by_run: dict[str, WaitingRun] = {}
        self._by_call: dict[str, WaitingRun] = {}

    def __len__(self) -> int:
        return len(self._by_run)

    def add(
        self,
        run: AgentRun,
        calls: Sequence[PendingClientCall],
        *,
        after: int,
        answer_number: int,
    ) -> WaitingRun:
        """Add a run. It is aborted before its calls expire."""
        while len(self._by_run) >= max(1, self._max_runs()):
            self._abort(next(iter(self._by_run.values())), _REPLACED)
        shown = tuple(ClientCall(id=_new_id(), call=call) for call in calls)
        waiting = WaitingRun(run=run, calls=shown, after=after, answer_number=answer_number)
        seconds = min(self._seconds, _seconds_left(run, calls))
        loop = asyncio.get_running_loop()
        waiting.timer = loop.call_later(seconds, self._abort, waiting, _EXPIRED)
        self._by_run[run.id] = waiting
        self._by_call.update((each.id, waiting) for each in shown)
        return waiting

    def find(self, results: Mapping[str, str]) -> WaitingRun | None:
        """Find the run that waits for these results; None if no run does.

        Raises ApiError for results of several runs, and if results are missing.
        """
        known = {
            waiting.run.id: waiting
            for call_id in results
            if (waiting := self._by_call.get(call_id)) is not None and waiting.is_open
        }
        if not known:
            return None
        if len(known) > 1:
            raise invalid(
                "messages", "has results for several runs; send them in separate requests"
            )
        (waiting,) = known.values()
        missing = [shown.id for shown in waiting.calls if shown.id not in results]
        if missing:
            names = ", ".join(missing[:_MAX_LISTED])
            raise invalid(
                "messages",
                f"has results for some of the calls only; send all at once, including {names}",
                code="missing_tool_results",
            )
        return waiting

    def remove(self, waiting: WaitingRun) -> None:
        """Remove the run, because its results have arrived."""
        if waiting.timer is not None:
            waiting.timer.cancel()
        self._by_run.pop(waiting.run.id, None)
        for shown in waiting.calls:
            self._by_call.pop(shown.id, None)

    def find_by(self, matches: Callable[[AgentRun], bool]) -> WaitingRun | None:
        return next((each for each in self._by_run.values() if matches(each.run)), None)

    def _abort(self, waiting: WaitingRun, reason: str) -> None:
        is_open = waiting.is_open
        self.remove(waiting)
        if is_open:
            # Otherwise another client has delivered the results, and the run continues.
            waiting.run.request_abort(reason)


def _new_id() -> str:
    return f"call_{os.urandom(_ID_BYTES).hex()}"


def _seconds_left(run: AgentRun, calls: Sequence[PendingClientCall]) -> float:
    """The time until the first call expires. The calls may have been open for a while."""
    ids = {call.call_id for call in calls}
    opened = [
        event.time
        for event in run.events.events
        if event.kind == "client_call.requested" and event.data.get("callId") in ids
    ]
    waited = time.time() - min(opened) if opened else 0.0
    return max(0.0, run.client_calls.expiry_seconds - max(0.0, waited) - _MARGIN_SECONDS)


def _parse_result(text: str) -> JsonValue:
    """Parse a JSON object or list for a program; other text stays text."""
    if not text.lstrip().startswith(("{", "[")):
        return text
    try:
        return decode_json(text.encode(errors="replace"))
    except NotJsonError:
        return text
