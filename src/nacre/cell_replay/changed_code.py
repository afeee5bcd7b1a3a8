"""Runs a changed program with the answers of a record, to see what it would call.

A call gets the recorded answer of the first call with the same tool and input that has not been
used yet. Answers come in their recorded order. Timers fire when no answer is left, and the clock
moves to their time at once. A call that the record does not have gets no answer: the program waits
for it, and the report names it.
"""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from nacre.cell_replay.record import RecordedAnswer
from nacre.cell_replay.recorder import encode_end
from nacre.cell_replay.report import (
    CAUSES,
    CellReplay,
    ReplayAnswer,
    ReplayStep,
    call_text,
    canonical_text,
    encode_output,
    end_text,
    find_difference,
    is_same_end,
    recorded_calls,
    replayed_calls,
)
from nacre.sandbox.recording import ReplayedInputs

if TYPE_CHECKING:
    from nacre.cell_replay.record import RecordedCell
    from nacre.cell_replay.report import ReplayCall, StepCause
    from nacre.json_types import JsonObject
    from nacre.sandbox.recording import BurstCommand
    from nacre.sandbox.replayed_cell import ReplayedCell
    from nacre.sandbox.results import Completed, Failed

# A program with an interval may run for ever.
_MAX_STEPS: Final = 1_000


class _Delivery(NamedTuple):
    """An answer and its place in the record. `burst` is None for a call that was not answered."""

    burst: int | None
    place: int
    answer: RecordedAnswer | None


class ChangedCodeReplay:
    """The replay of one cell with changed code."""

    def __init__(self, record: RecordedCell, cell: ReplayedCell) -> None:
        self._record = record
        self._cell = cell
        self._recorded_calls = [call for burst in record.bursts for call in recorded_calls(burst)]
        self._deliveries = _deliveries_by_call(record)
        self._open: dict[int, tuple[ReplayCall, _Delivery | None]] = {}
        self._yields: list[int] = []
        self._steps: list[ReplayStep] = []
        self._inexact: list[str] = []
        first = record.bursts[0] if record.bursts else None
        started_us = int(record.started * 1e6)
        self._clock_us = first.clock[:2] if first and first.clock else (started_us, started_us)
        self._seed = first.seed if first else ""

    async def run(self, until: int | None) -> CellReplay:
        """Run the program until it ends, or waits for a call without a recorded answer."""
        notes = list(self._record.unknown)
        result = await self._run_step("start", ())
        most = _MAX_STEPS if until is None else until
        while result is None and len(self._steps) < most:
            answers = self._next_answers()
            timer_ms = self._cell.next_timer_ms
            if not answers and timer_ms is None:
                break
            self._advance_clock(0 if answers else timer_ms or 0)
            result = await self._run_step("deliver" if answers else "timers", answers)
        if until is None and len(self._steps) >= _MAX_STEPS:
            notes.append(f"the replay ended after {_MAX_STEPS} steps")
        end = None if result is None else encode_end(result, self._record.redaction)
        difference = self._compare(end, is_partial=until is not None and result is None)
        if difference and self._inexact:
            names = ", ".join(dict.fromkeys(self._inexact))
            notes.append(f"the record has only a part of the answers of {names}")
        return CellReplay(
            cell_id=self._record.cell_id,
            call_id=self._record.call_id,
            steps=tuple(self._steps),
            recorded_steps=len(self._record.bursts),
            end=end,
            recorded_end=self._record.end,
            difference=difference,
            notes=tuple(notes),
            is_code_changed=True,
        )

    def _next_answers(self) -> list[tuple[str, RecordedAnswer]]:
        """The answers of the next step: those of the earliest recorded burst, and all yields."""
        ready = [
            (delivery.burst, delivery.place, number, call.name, delivery.answer)
            for number, (call, delivery) in self._open.items()
            if delivery is not None and delivery.burst is not None and delivery.answer is not None
        ]
        ready.sort(key=lambda each: each[:3])
        taken = [
            (name, replace(answer, id=number))
            for burst, _, number, name, answer in ready
            if burst == ready[0][0]
        ]
        for _, answer in taken:
            del self._open[answer.id]
        yields = [("yield_control", _yield_answer(number)) for number in self._yields]
        self._yields = []
        return taken + yields

    def _advance_clock(self, milliseconds: float) -> None:
        # At least a little, as time always passes.
        step_us = max(1_000, round(milliseconds * 1_000))
        self._clock_us = tuple(each + step_us for each in self._clock_us)

    async def _run_step(
        self, command: BurstCommand, answers: list[tuple[str, RecordedAnswer]] | tuple[()]
    ) -> Completed | Failed | None:
        result = await self._cell.run_burst(
            command,
            # One read at this time; then the clock goes on, so that no loop waits for ever.
            inputs=ReplayedInputs(
                seed=self._seed if command == "start" else "", clock=(*self._clock_us, 1)
            ),
            answers=[(each.id, each.is_success, each.encoded) for _, each in answers],
        )
        self._add_step(CAUSES[command], answers)
        return result

    def _add_step(
        self, cause: StepCause, answers: list[tuple[str, RecordedAnswer]] | tuple[()]
    ) -> None:
        redaction, done = self._record.redaction, self._cell.record
        calls: list[ReplayCall] = []
        for call in replayed_calls(done, redaction):
            found = self._deliveries[call_text(call)]
            delivery = found.popleft() if found else None
            self._open[call.id] = (call, delivery)
            calls.append(call if delivery is not None else replace(call, is_recorded=False))
        given = tuple(
            ReplayAnswer(
                id=each.id,
                name=name,
                is_success=each.is_success,
                value=each.value,
                is_exact=each.is_exact,
            )
            for name, each in answers
        )
        self._inexact += [answer.name for answer in given if not answer.is_exact]
        yields = () if done is None else done.yields
        self._yields = [each.id for each in yields]
        self._steps.append(
            ReplayStep(
                number=len(self._steps) + 1,
                cause=cause,
                answers=given,
                output=encode_output(self._cell.take_output(), redaction),
                calls=tuple(calls),
                yields=tuple(redaction.text(each.reason) for each in yields),
            )
        )

    def _compare(self, end: JsonObject | None, *, is_partial: bool) -> str:
        """The first difference, in the order of the steps."""
        calls = [call_text(call) for call in self._recorded_calls]
        output = [canonical_text(item) for item in self._record.output]
        call_count = output_count = 0
        for step in self._steps:
            made = [call_text(call) for call in step.calls]
            written = [canonical_text(item) for item in step.output]
            difference = find_difference(
                "output",
                output[output_count : output_count + len(written)],
                written,
                first=output_count + 1,
            ) or find_difference(
                "call", calls[call_count : call_count + len(made)], made, first=call_count + 1
            )
            if difference:
                return f"step {step.number}: {difference}"
            call_count += len(made)
            output_count += len(written)
        if is_partial:
            return ""
        return (
            find_difference("output", output[output_count:], (), first=output_count + 1)
            or find_difference("call", calls[call_count:], (), first=call_count + 1)
            or self._compare_end(end)
        )

    def _compare_end(self, end: JsonObject | None) -> str:
        recorded = self._record.end
        if recorded is None or (end is not None and is_same_end(recorded, end)):
            return ""
        now = "still waits" if end is None else end_text(end)
        return f"the program {now}; the record says that it {end_text(recorded)}"


def _yield_answer(number: int) -> RecordedAnswer:
    return RecordedAnswer(id=number, is_success=True, value=None)


def _deliveries_by_call(record: RecordedCell) -> defaultdict[str, deque[_Delivery]]:
    """The recorded answers of each call, in the order in which the calls were made."""
    places: dict[int, _Delivery] = {}
    for number, burst in enumerate(record.bursts):
        for place, answer in enumerate(burst.answers):
            places[answer.id] = _Delivery(number, place, answer)
    deliveries: defaultdict[str, deque[_Delivery]] = defaultdict(deque)
    for burst in record.bursts:
        for call in recorded_calls(burst):
            delivery = places.get(call.id, _Delivery(None, 0, None))
            deliveries[call_text(call)].append(delivery)
    return deliveries
