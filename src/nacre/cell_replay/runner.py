"""Runs recorded programs again, without calling a tool, and compares them with their record.

With the recorded code, each burst gets the clock, the random bytes and the answers of the recorded
burst, so it has to do the same. The first difference ends the replay. Changed code has no such
bursts: see `changed_code.py`.
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import replace as copy_with
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Final

import anyio.to_thread

from nacre.cell_replay.changed_code import ChangedCodeReplay
from nacre.cell_replay.record import read_cells
from nacre.cell_replay.recorder import encode_end
from nacre.cell_replay.report import (
    CAUSES,
    CellReplay,
    Replay,
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
from nacre.errors import ReplayError
from nacre.sandbox import Sandbox, SandboxOptions
from nacre.sandbox.recording import ReplayedInputs
from nacre.sandbox.results import Completed, Failed
from nacre.trajectory import TrajectoryFormatError, import_json_lines

if TYPE_CHECKING:
    from collections.abc import Iterable

    from nacre.cell_replay.record import RecordedBurst, RecordedCell
    from nacre.config import Language
    from nacre.json_types import JsonObject
    from nacre.sandbox.replayed_cell import ReplayedCell
    from nacre.trajectory import TrajectoryEvent

# The host ends a program for these reasons, so a replay cannot repeat them.
_HOST_REASONS: Final = frozenset(
    {
        "aborted",
        "internal_error",
        "run_unavailable",
        "runtime_unavailable",
        "snapshot_expired",
        "snapshot_invalid",
        "snapshot_restore_failed",
        "timeout",
        "too_many_suspended_runs",
        "worker_lost",
    }
)
# Of a program that did not run, because it cannot be compiled.
_NO_SEED: Final = "00" * 16


async def replay(
    record: str | PathLike[str] | Iterable[TrajectoryEvent],
    *,
    cell_id: str | None = None,
    until: int | None = None,
    code: str | None = None,
    language: Language | None = None,
    sandbox: Sandbox | None = None,
) -> Replay:
    """Run the programs of a recorded run again, without calling a tool.

    `record` is the file of `nacre trajectory export`, or the events of a run. `cell_id` selects one
    program, and `until` ends each replay after this step. `code` runs instead of the recorded
    program, to see what it would call. Without a `sandbox`, a worker is started.

    Raises ReplayError.
    """
    if until is not None and until < 1:
        raise ReplayError(f"until is {until}; the first step is 1")
    events = await _read_file(Path(record)) if isinstance(record, str | PathLike) else record
    # In a thread: a trajectory has up to 128 MB.
    cells = await anyio.to_thread.run_sync(lambda: read_cells(events, cell_id=cell_id))
    if code is not None and len(cells) > 1:
        raise ReplayError(
            f"the run has {len(cells)} cells; name the one whose code you changed: "
            f"{', '.join(cell.cell_id for cell in cells)}"
        )
    async with AsyncExitStack() as stack:
        if sandbox is None:
            sandbox = await stack.enter_async_context(Sandbox(SandboxOptions(workers=1)))
        return Replay(
            cells=tuple(
                [
                    await _replay_cell(
                        sandbox, cell, until=until, code=code, language=language or cell.language
                    )
                    for cell in cells
                ]
            )
        )


async def _read_file(path: Path) -> tuple[TrajectoryEvent, ...]:
    try:
        text = await anyio.to_thread.run_sync(lambda: path.read_text(encoding="utf-8"))
        return import_json_lines(text)
    except OSError as error:
        problem = f"cannot read the record {str(path)!r}: {error.strerror or error}"
        raise ReplayError(problem) from error
    except (UnicodeDecodeError, TrajectoryFormatError) as error:
        raise ReplayError(f"{str(path)!r} is not an exported trajectory: {error}") from error


async def _replay_cell(
    sandbox: Sandbox,
    record: RecordedCell,
    *,
    until: int | None,
    code: str | None,
    language: Language,
) -> CellReplay:
    if code is None and not record.is_code_exact:
        raise ReplayError(
            f"the record of the cell {record.cell_id!r} has only a part of its program, because it "
            "was redacted or too long; pass the program as `code`, or with --code FILE"
        )
    cell = sandbox.replay_cell(
        record.code if code is None else code,
        language=language,
        limits=record.limits,
        shared=record.shared,
    )
    player = _RecordedReplay(record, cell) if code is None else ChangedCodeReplay(record, cell)
    try:
        replayed = await player.run(until)
    finally:
        with anyio.CancelScope(shield=True):
            await cell.close()
    if record.image in ("", sandbox.image):
        return replayed
    note = "the program was recorded with another version of the guest code"
    return copy_with(replayed, notes=(note, *replayed.notes))


class _RecordedReplay:
    """The replay of one cell with its recorded code."""

    def __init__(self, record: RecordedCell, cell: ReplayedCell) -> None:
        self._record = record
        self._cell = cell
        self._steps: list[ReplayStep] = []
        self._names: dict[int, str] = {}
        self._inexact: list[str] = []
        self._notes = list(record.unknown)
        self._result: Completed | Failed | None = None

    async def run(self, until: int | None) -> CellReplay:
        """Run all bursts, or those up to a step."""
        difference = await self._run_bursts(until)
        is_partial = until is not None and until < len(self._record.bursts)
        if not difference and not is_partial:
            difference = await self._compare_end()
        if difference and self._inexact:
            names = ", ".join(dict.fromkeys(self._inexact))
            difference += (
                f"; the record has only a part of earlier answers, which may be the cause: {names}"
            )
        return CellReplay(
            cell_id=self._record.cell_id,
            call_id=self._record.call_id,
            steps=tuple(self._steps),
            recorded_steps=len(self._record.bursts),
            end=self._encode_result(),
            recorded_end=self._record.end,
            difference=difference,
            notes=tuple(self._notes),
        )

    async def _run_bursts(self, until: int | None) -> str:
        bursts = self._record.bursts
        if not bursts and self._record.end is not None:
            self._result = await self._cell.run_burst("start", inputs=ReplayedInputs(seed=_NO_SEED))
        for number, burst in enumerate(bursts[:until], start=1):
            if burst.is_lost and self._is_stopped_by_host:
                self._notes.append(f"step {number} did not end, so it is not replayed")
                return ""
            difference = await self._run_burst(number, burst)
            if difference:
                return f"step {number}: {difference}"
            if self._result is not None and number < len(bursts):
                end = end_text(encode_end(self._result, self._record.redaction))
                more = len(bursts) - number
                return f"step {number}: the program {end}; the record has {more} more steps"
        return ""

    @property
    def _is_stopped_by_host(self) -> bool:
        end = self._record.end
        return end is None or end.get("reason") in _HOST_REASONS

    async def _run_burst(self, number: int, burst: RecordedBurst) -> str:
        """Run a burst and return the first difference."""
        if burst.is_restored:
            failed = await self._cell.suspend()
            if failed is not None:
                self._result = failed
                return f"the program could not be suspended: {failed.error}"
        unknown = [each.id for each in burst.answers if each.id not in self._cell.open_ids]
        if unknown:
            return f"the record answers the request {unknown[0]}, which the program did not make"
        self._result = await self._cell.run_burst(
            burst.command,
            inputs=ReplayedInputs(seed=burst.seed, clock=burst.clock),
            answers=[(each.id, each.is_success, each.encoded) for each in burst.answers],
        )
        step = self._build_step(number, burst)
        self._steps.append(step)
        return self._compare(step, burst)

    def _build_step(self, number: int, burst: RecordedBurst) -> ReplayStep:
        redaction, done = self._record.redaction, self._cell.record
        calls = replayed_calls(done, redaction)
        answers = tuple(
            ReplayAnswer(
                id=each.id,
                name=self._names.get(each.id, "yield_control"),
                is_success=each.is_success,
                value=each.value,
                is_exact=each.is_exact,
            )
            for each in burst.answers
        )
        self._inexact += [answer.name for answer in answers if not answer.is_exact]
        self._names.update((call.id, call.name) for call in calls)
        return ReplayStep(
            number=number,
            cause=CAUSES[burst.command],
            is_restored=burst.is_restored,
            answers=answers,
            output=encode_output(self._cell.take_output(), redaction),
            calls=calls,
            yields=()
            if done is None
            else tuple(redaction.text(each.reason) for each in done.yields),
        )

    def _compare(self, step: ReplayStep, burst: RecordedBurst) -> str:
        recorded = [canonical_text(item) for item in burst.output]
        replayed = [canonical_text(item) for item in step.output]
        if burst.is_failed and self._is_stopped_by_host:
            # The host stopped the program somewhere in this burst.
            count = min(len(recorded), len(replayed))
            return find_difference("output", recorded[:count], replayed[:count])
        if len(recorded) < burst.output_count:
            # The output of an aborted leg is not recorded.
            del replayed[len(recorded) :]
        return (
            find_difference("output", recorded, replayed)
            or find_difference(
                "call",
                [call_text(call) for call in recorded_calls(burst)],
                [call_text(call) for call in step.calls],
            )
            or find_difference("yield", burst.yields, step.yields)
        )

    async def _compare_end(self) -> str:
        recorded, result = self._record.end, self._result
        if recorded is None:
            stop = self._record.stop
            self._notes.append(
                f"the program was {stop} there" if stop else "the record ends before the program"
            )
            return ""
        reason = recorded.get("reason")
        if reason == "snapshot_limit_exceeded" and result is None:
            self._result = result = await self._cell.suspend()
        if reason in _HOST_REASONS:
            if not isinstance(result, Failed) or result.reason != reason:
                self._notes.append(f"the host ended the program ({reason}), which is not replayed")
            return ""
        if result is None and self._cell.has_returned:
            # Only calls that the program did not await were left.
            result = Completed(value=self._cell.value)
        if result is None:
            return f"the program still waits; the record says that it {end_text(recorded)}"
        replayed = encode_end(result, self._record.redaction)
        if is_same_end(recorded, replayed):
            return ""
        return f"the program {end_text(replayed)}; the record says that it {end_text(recorded)}"

    def _encode_result(self) -> JsonObject | None:
        if self._result is None:
            return None
        return encode_end(copy_with(self._result, output=()), self._record.redaction)
