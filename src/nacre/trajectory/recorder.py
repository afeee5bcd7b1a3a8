"""Records the redacted trajectory of a run."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from nacre.telemetry import Redaction
from nacre.trajectory.event_log import EventLog
from nacre.trajectory.events import TrajectoryEvent

if TYPE_CHECKING:
    from nacre.json_types import JsonObject, JsonValue
    from nacre.run_context import RunContext
    from nacre.trajectory.events import EventKind

logger = logging.getLogger(__name__)

# The measured memory of an event with a few members.
_BYTES_PER_EVENT: Final = 600
_MAX_BYTES: Final = 128 * 1024 * 1024


class TrajectoryRecorder(EventLog[TrajectoryEvent]):
    """The trajectory of one run; its first event is `run.started`."""

    def __init__(
        self,
        context: RunContext,
        *,
        redaction: Redaction | None = None,
        max_events: int = 100_000,
        max_bytes: int = _MAX_BYTES,
    ) -> None:
        super().__init__(max_events=max_events, max_bytes=max_bytes)
        self.context = context
        self._redaction = Redaction() if redaction is None else redaction
        self.record("run.started", data=_run_data(context))

    def record(
        self,
        kind: EventKind,
        *,
        call_id: str = "",
        parent_id: str = "",
        data: JsonObject | None = None,
    ) -> None:
        """Append an event with a redacted copy of `data`. Never raises because of the data."""
        redacted, size = self._redact_data(data) if data else ({}, 0)
        self._append(
            lambda sequence, now: TrajectoryEvent(
                sequence=sequence,
                time=now,
                kind=kind,
                call_id=call_id,
                parent_id=parent_id,
                data=redacted,
            ),
            size + _BYTES_PER_EVENT,
        )

    def _redact_data(self, data: JsonObject) -> tuple[JsonObject, int]:
        redacted: JsonObject = {}
        total = 0
        for key, value in data.items():
            try:
                # Each member has its own limits, so that a large result does not displace others.
                redacted[key], size = self._redact_member(key, value)
            except Exception:
                logger.exception("a %s cannot be recorded under %r", type(value).__name__, key)
                redacted[key], size = f"[{type(value).__name__}, cannot be recorded]", 0
            total += size
        return redacted, total

    def _redact_member(self, key: str, value: JsonValue) -> tuple[JsonValue, int]:
        if key == "input" and not self._redaction.keep_inputs:
            return self._redaction.input(value), 0
        if isinstance(value, str):
            text = self._redaction.text(value)
            return text, len(text)
        return self._redaction.sized_value(value)


def _run_data(context: RunContext) -> JsonObject:
    identity: JsonObject = {
        "agentId": context.agent_id,
        "sessionId": context.session_id,
        "sessionKey": context.session_key,
        "runId": context.run_id,
        "sender": context.sender,
        "channel": context.channel,
    }
    return {key: value for key, value in identity.items() if value}
