"""What operators see: redaction, spans and counters; knows nothing of tools, hooks and runs."""

from nacre.telemetry.counters import CatalogCounters
from nacre.telemetry.redaction import Redaction
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
    "AttributeValue",
    "CatalogCounters",
    "Redaction",
    "Span",
    "SpanName",
    "TraceContext",
    "current_trace",
    "span",
    "start_span",
]
