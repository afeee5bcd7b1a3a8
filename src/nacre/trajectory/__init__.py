"""The record of what a run did: events, calls as a tree, export; knows nothing of tools."""

from nacre.trajectory.events import (
    EVENT_KINDS,
    EventKind,
    TrajectoryEvent,
    TrajectoryFormatError,
    export_json_lines,
    import_json_lines,
)
from nacre.trajectory.projection import CallNode, project
from nacre.trajectory.recorder import TrajectoryRecorder

__all__ = [
    "EVENT_KINDS",
    "CallNode",
    "EventKind",
    "TrajectoryEvent",
    "TrajectoryFormatError",
    "TrajectoryRecorder",
    "export_json_lines",
    "import_json_lines",
    "project",
]
