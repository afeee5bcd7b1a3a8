"""Redaction, spans and debug logs."""

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
    current_trace,
    span,
    start_span,
)

__all__ = [
    "DEBUG_LOGGER_NAME",
    "REDACTED",
    "AttributeValue",
    "DebugFlags",
    "PayloadLog",
    "Redaction",
    "Span",
    "SpanName",
    "TraceContext",
    "current_trace",
    "debug_log",
    "format_log_line",
    "get_debug_flags",
    "is_amount",
    "is_secret_key",
    "remove_secrets",
    "span",
    "start_span",
]
