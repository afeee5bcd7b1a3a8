"""The events of a run: the log that readers follow, and the redacted trajectory with its calls."""

from nacre.trajectory.event_log import EventLog, RunEventLog
from nacre.trajectory.events import (
    CALL_EVENT_KINDS,
    EVENT_KINDS,
    RUN_EVENT_KINDS,
    CallEventKind,
    EventKind,
    RunEvent,
    RunEventKind,
    TrajectoryEvent,
    TrajectoryFormatError,
    export_json_lines,
    import_json_lines,
)
from nacre.trajectory.projection import CallNode, project
from nacre.trajectory.recorder import TrajectoryRecorder

__all__ = [
    "CALL_EVENT_KINDS",
    "EVENT_KINDS",
    "RUN_EVENT_KINDS",
    "CallEventKind",
    "CallNode",
    "EventKind",
    "EventLog",
    "RunEvent",
    "RunEventKind",
    "RunEventLog",
    "TrajectoryEvent",
    "TrajectoryFormatError",
    "TrajectoryRecorder",
    "export_json_lines",
    "import_json_lines",
    "project",
]
