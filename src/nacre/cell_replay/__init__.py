"""Deterministic replay: records what programs got and did, and runs them again without tools."""

from typing import TYPE_CHECKING

from nacre.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from nacre.cell_replay.record import RecordedCell, read_cells
    from nacre.cell_replay.recorder import CellRecorder, ProgramInfo
    from nacre.cell_replay.report import CellReplay, Replay, ReplayCall, ReplayStep
    from nacre.cell_replay.runner import replay

__all__ = [
    "CellRecorder",
    "CellReplay",
    "ProgramInfo",
    "RecordedCell",
    "Replay",
    "ReplayCall",
    "ReplayStep",
    "read_cells",
    "replay",
]

# Imported on first use: cells are recorded always, and replayed rarely.
__getattr__ = lazy_exports(
    __name__,
    {
        "nacre.cell_replay.record": ("RecordedCell", "read_cells"),
        "nacre.cell_replay.recorder": ("CellRecorder", "ProgramInfo"),
        "nacre.cell_replay.runner": ("replay",),
        "nacre.cell_replay.report": ("CellReplay", "Replay", "ReplayCall", "ReplayStep"),
    },
)
