"""A line in the log for each run that fails: its caller may not say why to whoever operates it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from nacre.telemetry.redaction import format_log_line

if TYPE_CHECKING:
    from nacre.agent import AgentRun, RunEvent

logger = logging.getLogger(__name__)


def log_failures(run: AgentRun) -> None:
    """Have the run told when it fails; one that somebody aborts has not failed."""
    asked_model = ""

    def handle(event: RunEvent) -> None:
        nonlocal asked_model
        if event.kind == "run.started":
            asked_model = str(event.data["model"])
        elif event.kind == "run.failed":
            _log_failure(
                run.id, str(event.data.get("model") or asked_model), str(event.data.get("error"))
            )

    run.events.listen(handle)


def _log_failure(run_id: str, model: str, reason: str) -> None:
    # Callers may name any model, so it is not ours either.
    is_named = not model or model in reason
    told = "" if is_named else f" ({format_log_line(model)})"
    logger.warning("the run %s%s failed: %s", run_id, told, format_log_line(reason))
