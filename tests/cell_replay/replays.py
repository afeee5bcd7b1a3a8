"""Replays for tests: the record is exported and imported, as from a file."""

from collections.abc import Callable
from typing import Any

from nacre import Runtime
from nacre.cell_replay import CellReplay, Replay, replay
from nacre.json_types import JsonObject
from nacre.trajectory import (
    TrajectoryEvent,
    TrajectoryRecorder,
    export_json_lines,
    import_json_lines,
)


def record_of(trajectory: TrajectoryRecorder) -> tuple[TrajectoryEvent, ...]:
    return import_json_lines("\n".join(export_json_lines(trajectory.events)))


async def replay_all(runtime: Runtime, trajectory: TrajectoryRecorder, **options: Any) -> Replay:
    return await replay(record_of(trajectory), sandbox=runtime.sandbox, **options)


async def replay_one(
    runtime: Runtime, trajectory: TrajectoryRecorder, **options: Any
) -> CellReplay:
    """The replay of a run with one cell."""
    replayed = await replay_all(runtime, trajectory, **options)
    (cell,) = replayed.cells
    return cell


def changed_bursts(
    events: tuple[TrajectoryEvent, ...], change: Callable[[JsonObject], None]
) -> tuple[TrajectoryEvent, ...]:
    """The record after `change` edited the data of each `replay.bursts` event."""
    for event in events:
        if event.kind == "replay.bursts":
            change(event.data)
    return events
