"""Runs that wait for results of their client, between two requests of it."""

from __future__ import annotations

import asyncio
import os
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from nacre.gateway.openai.turn_input import refused
from nacre.json_types import JsonValue, NotJsonError, decode_json

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from nacre.agent import AgentRun, PendingClientCall

PARKED_SECONDS: Final = 900.0

_ID_BYTES: Final = 16
_MAX_LISTED: Final = 10
# The run must not go on by itself when its calls expire: nobody would read its answer.
_MARGIN_SECONDS: Final = 1.0
_EXPIRED: Final = "the client did not send the results of its calls in time"
_CROWDED_OUT: Final = "too many runs wait for results of their clients; this one waited longest"


@dataclass(frozen=True, kw_only=True, slots=True)
class ShownCall:
    """A call as the client sees it. Its id is ours: whoever knows it may answer the call."""

    id: str
    call: PendingClientCall


@dataclass(kw_only=True, slots=True)
class ParkedRun:
    """A run, and what its client owes it."""

    run: AgentRun
    calls: tuple[ShownCall, ...]
    after: int
    """The last event of the run that the client was told of."""
    answer_number: int
    """How many answers the run has given so far, counted from 1."""
    timer: asyncio.TimerHandle | None = field(default=None, repr=False)

    @property
    def is_open(self) -> bool:
        """Whether all of its calls can still be answered."""
        pending = {call.call_id for call in self.run.pending_client_calls}
        return not self.run.has_ended and pending.issuperset(
            shown.call.call_id for shown in self.calls
        )

    def deliver(self, results: Mapping[str, str]) -> None:
        """Raises SessionError where the run has ended meanwhile."""
        for shown in self.calls:
            is_nested = bool(shown.call.parent_id)
            text = results[shown.id]
            self.run.deliver(shown.call.call_id, _as_data(text) if is_nested else text)


class ParkedRuns:
    """At most so many, each for a while; then they are aborted. The oldest makes room."""

    def __init__(self, *, most: Callable[[], int], seconds: float = PARKED_SECONDS) -> None:
        self._most = most
        self._seconds = seconds
        self._by_run: dict[str, ParkedRun] = {}
        self._by_call: dict[str, ParkedRun] = {}

    def __len__(self) -> int:
        return len(self._by_run)

    def park(
        self,
        run: AgentRun,
        calls: Sequence[PendingClientCall],
        *,
        after: int,
        answer_number: int,
    ) -> ParkedRun:
        while len(self._by_run) >= max(1, self._most()):
            self._abort(next(iter(self._by_run.values())), _CROWDED_OUT)
        shown = tuple(ShownCall(id=_new_id(), call=call) for call in calls)
        parked = ParkedRun(run=run, calls=shown, after=after, answer_number=answer_number)
        seconds = min(self._seconds, _seconds_left(run, calls))
        loop = asyncio.get_running_loop()
        parked.timer = loop.call_later(seconds, self._abort, parked, _EXPIRED)
        self._by_run[run.id] = parked
        self._by_call.update((each.id, parked) for each in shown)
        return parked

    def found(self, results: Mapping[str, str]) -> ParkedRun | None:
        """The run that these are results for; raises ApiError where some of them are missing.

        None where nobody waits for any of them: a run that is over, or was of an earlier process.
        """
        known = {
            parked.run.id: parked
            for call_id in results
            if (parked := self._by_call.get(call_id)) is not None and parked.is_open
        }
        if not known:
            return None
        if len(known) > 1:
            raise refused("messages", "hold results for several runs; send each its own")
        (parked,) = known.values()
        missing = [shown.id for shown in parked.calls if shown.id not in results]
        if missing:
            names = ", ".join(missing[:_MAX_LISTED])
            raise refused(
                "messages",
                f"hold results for some of the calls only; send all at once, also those of {names}",
                code="missing_tool_results",
            )
        return parked

    def take(self, parked: ParkedRun) -> None:
        """It is being answered: nobody else can do that any more."""
        if parked.timer is not None:
            parked.timer.cancel()
        self._by_run.pop(parked.run.id, None)
        for shown in parked.calls:
            self._by_call.pop(shown.id, None)

    def of(self, is_meant: Callable[[AgentRun], bool]) -> ParkedRun | None:
        return next((each for each in self._by_run.values() if is_meant(each.run)), None)

    def _abort(self, parked: ParkedRun, reason: str) -> None:
        is_open = parked.is_open
        self.take(parked)
        if is_open:
            # Else somebody else has answered, and the run goes on for them.
            parked.run.request_abort(reason)


def _new_id() -> str:
    return f"call_{os.urandom(_ID_BYTES).hex()}"


def _seconds_left(run: AgentRun, calls: Sequence[PendingClientCall]) -> float:
    """Until the first of the calls expires; they may have been open for a while."""
    ids = {call.call_id for call in calls}
    opened = [
        event.time
        for event in run.events.events
        if event.kind == "client_call.requested" and event.data.get("callId") in ids
    ]
    waited = time.time() - min(opened) if opened else 0.0
    return max(0.0, run.client_calls.expiry_seconds - max(0.0, waited) - _MARGIN_SECONDS)


def _as_data(text: str) -> JsonValue:
    """For programs: what is written as an object or a list is one. Other text stays text."""
    if not text.lstrip().startswith(("{", "[")):
        return text
    try:
        return decode_json(text.encode(errors="replace"))
    except NotJsonError:
        return text
