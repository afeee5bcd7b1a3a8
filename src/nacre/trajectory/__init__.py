"""The events of a run: the event log for readers, and the redacted trajectory."""

from typing import TYPE_CHECKING

from nacre.lazy_exports import lazy_exports
from nacre.trajectory.events import (
    CALL_EVENT_KINDS,
    EVENT_KINDS,
    MAX_RUN_EVENTS,
    RUN_EVENT_KINDS,
    CallEventKind,
    EventKind,
    EventLog,
    RunEvent,
    RunEventKind,
    RunEventLog,
    TrajectoryEvent,
    TrajectoryFormatError,
    TrajectoryRecorder,
    continue_sequence,
    export_json_lines,
    import_json_lines,
    parse_event,
)

if TYPE_CHECKING:
    from nacre.trajectory.projection import CallNode, project

__all__ = [
    "CALL_EVENT_KINDS",
    "EVENT_KINDS",
    "MAX_RUN_EVENTS",
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
    "continue_sequence",
    "export_json_lines",
    "import_json_lines",
    "parse_event",
    "project",
]

# Imported on first use, by the readers of trajectories.
__getattr__ = lazy_exports(__name__, {"nacre.trajectory.projection": ("CallNode", "project")})
