"""Counts what happens in one run."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from nacre.agent import RunEvent, RunEventKind
    from nacre.gateway.metrics import Metrics
    from nacre.json_types import JsonObject, JsonValue


class RunMeter:
    """Listens to the events of a run; is told of all of them, and of each once."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._started: float | None = None
        self._has_text = False
        self._sources: dict[str, str] = {}
        self._takers: Mapping[RunEventKind, Callable[[RunEvent], None]] = {
            "run.started": self._take_start,
            "text.delta": self._take_text,
            "model.started": self._take_request,
            "message.completed": self._take_usage,
            "retry": lambda _event: metrics.model_retries.inc(),
            "call.started": self._take_call,
            "call.ended": self._take_call_end,
            "cell.suspended": lambda _event: metrics.suspensions.inc(),
            "cell.ended": lambda event: metrics.cells.labels(_text(event.data, "status")).inc(),
            "approval.answered": lambda event: metrics.approvals.labels(
                _text(event.data, "answer")
            ).inc(),
            "run.completed": self._take_end,
            "run.failed": self._take_end,
            "run.aborted": self._take_end,
        }

    def take(self, event: RunEvent) -> None:
        taker = self._takers.get(event.kind)
        if taker is not None:
            taker(event)

    def _take_start(self, event: RunEvent) -> None:
        self._started = event.time

    def _take_end(self, event: RunEvent) -> None:
        self._metrics.runs.labels(event.kind.removeprefix("run.")).inc()
        if self._started is not None:
            self._metrics.run_seconds.observe(event.time - self._started)

    def _take_text(self, event: RunEvent) -> None:
        if not self._has_text and self._started is not None:
            self._has_text = True
            self._metrics.first_text_seconds.observe(event.time - self._started)

    def _take_request(self, event: RunEvent) -> None:
        metrics, data = self._metrics, event.data
        metrics.model_requests.labels(metrics.model_label(_text(data, "model"))).inc()
        metrics.sent_bytes.labels("tools").inc(_number(data, "toolBytes"))
        metrics.sent_bytes.labels("payload").inc(_number(data, "payloadBytes"))

    def _take_usage(self, event: RunEvent) -> None:
        data = event.data
        usage = cast("JsonObject", data.get("usage") or {})
        model = self._metrics.model_label(_text(data, "model"))
        for kind, key in (
            ("input", "inputTokens"),
            ("output", "outputTokens"),
            ("cached", "cachedTokens"),
        ):
            self._metrics.tokens.labels(model, kind).inc(_number(usage, key))

    def _take_call(self, event: RunEvent) -> None:
        self._sources[_text(event.data, "toolCallId")] = _text(event.data, "source")

    def _take_call_end(self, event: RunEvent) -> None:
        data = event.data
        source = self._sources.pop(_text(data, "toolCallId"), "") or "unknown"
        nested = "yes" if data.get("parentToolCallId") else "no"
        outcome = _text(data, "outcome") or "unknown"
        self._metrics.tool_calls.labels(source, nested, outcome).inc()
        seconds = _number(data, "durationMs") / 1000
        self._metrics.tool_call_seconds.labels(source).observe(seconds)


def _text(data: JsonObject, key: str) -> str:
    value = data.get(key)
    return value if isinstance(value, str) else ""


def _number(data: JsonObject, key: str) -> float:
    value: JsonValue = data.get(key)
    # A counter only grows, whatever a provider claims.
    return max(0.0, float(value)) if isinstance(value, int | float) else 0.0
