"""What `OPENCLAW_DEBUG_CODE_MODE` shows: whether a run is in code mode, what its cells do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from nacre.telemetry.debug_flags import debug_flags, debug_log

if TYPE_CHECKING:
    from nacre.code_mode.run import CodeModeRun
    from nacre.json_types import JsonValue
    from nacre.trajectory import TrajectoryEvent

# What is said of an event; inputs, results and output stay out of logs.
_LOGGED_KEYS: Final = (
    "runId", "toolId", "language", "status", "reason", "outcome", "errorCode", "durationMs",
    "snapshotBytes", "model", "toolNames", "toolBytes", "payloadBytes", "finishReason",
    "calledNames",
)  # fmt: skip


def log_run_if_enabled(run: CodeModeRun) -> None:
    """Log the run's surface now, and its cells and their calls as they come."""
    if not debug_flags().code_mode:
        return
    log = debug_log("code_mode")
    sources = ", ".join(f"{count} {name}" for name, count in run.telemetry().sources.items())
    log.info(
        "run %s: code mode is %s; the model sees %s; the catalog has %s",
        run.context.run_id,
        "active" if run.is_code_mode else "not active",
        ", ".join(run.visible_names) or "no tools",
        sources or "no tools",
    )
    run.trajectory.subscribe(lambda event: log.info("%s", _format_event(event)))


def _format_event(event: TrajectoryEvent) -> str:
    told = {key: event.data.get(key) for key in _LOGGED_KEYS}
    said = [
        f"{key}={_format_value(value)}"
        for key, value in told.items()
        if value not in (None, "", [])
    ]
    parent = f"in {event.parent_id}" if event.parent_id else ""
    return " ".join(filter(None, [event.kind, event.call_id, parent, *said]))


def _format_value(value: JsonValue) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)
