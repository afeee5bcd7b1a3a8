"""Redaction, spans, debug logs and the watchdog of the event loop."""

from typing import TYPE_CHECKING

from nacre.lazy_exports import lazy_exports
from nacre.telemetry.debug_flags import (
    DEBUG_LOGGER_NAME,
    DebugFlags,
    PayloadLog,
    debug_log,
    get_debug_flags,
)
from nacre.telemetry.redaction import (
    REDACTED,
    Redaction,
    format_log_line,
    is_amount,
    is_secret_key,
    remove_secrets,
)
from nacre.telemetry.spans import (
    AttributeValue,
    Span,
    SpanName,
    TraceContext,
    chat_span,
    codex_turn_span,
    current_trace,
    end_turn_span,
    execute_tool_span,
    note_answer,
    note_codex_turn,
    span,
    start_span,
    turn_span,
)

if TYPE_CHECKING:
    from nacre.telemetry.loop_watchdog import STALL_SECONDS, LoopStall, LoopWatchdog
    from nacre.telemetry.recent_logs import RecentLogs, keep_recent_logs

__all__ = [
    "DEBUG_LOGGER_NAME",
    "REDACTED",
    "STALL_SECONDS",
    "AttributeValue",
    "DebugFlags",
    "LoopStall",
    "LoopWatchdog",
    "PayloadLog",
    "RecentLogs",
    "Redaction",
    "Span",
    "SpanName",
    "TraceContext",
    "chat_span",
    "codex_turn_span",
    "current_trace",
    "debug_log",
    "end_turn_span",
    "execute_tool_span",
    "format_log_line",
    "get_debug_flags",
    "is_amount",
    "is_secret_key",
    "keep_recent_logs",
    "note_answer",
    "note_codex_turn",
    "remove_secrets",
    "span",
    "start_span",
    "turn_span",
]

# Imported on first use: only the gateway needs them.
__getattr__ = lazy_exports(
    __name__,
    {
        "nacre.telemetry.loop_watchdog": ("STALL_SECONDS", "LoopStall", "LoopWatchdog"),
        "nacre.telemetry.recent_logs": ("RecentLogs", "keep_recent_logs"),
    },
)
