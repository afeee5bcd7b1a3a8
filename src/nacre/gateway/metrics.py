"""Prometheus metrics of requests and runs, the access log, and the log of failed runs."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Final, cast

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
)

from nacre.gateway import ACCESS_LOG
from nacre.json_types import get_text
from nacre.telemetry import format_log_line

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from nacre.agent import AgentRun, RunEvent, RunEventKind, SharedSessions
    from nacre.bootstrap import System
    from nacre.json_types import JsonObject, JsonValue
    from nacre.telemetry import LoopStall

logger = logging.getLogger(__name__)
access_logger = logging.getLogger(ACCESS_LOG)


class RunMeter:
    """Counts the events of a run. It must receive each event once."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._started: float | None = None
        self._has_text = False
        self._sources: dict[str, str] = {}
        self._handlers: Mapping[RunEventKind, Callable[[RunEvent], None]] = {
            "run.started": self._on_start,
            "text.delta": self._on_text,
            "model.started": self._on_request,
            "message.completed": self._on_usage,
            "retry": lambda _event: metrics.model_retries.inc(),
            "call.started": self._on_call,
            "call.ended": self._on_call_end,
            "cell.suspended": lambda _event: metrics.suspensions.inc(),
            "cell.ended": lambda event: metrics.cells.labels(get_text(event.data, "status")).inc(),
            "approval.answered": lambda event: metrics.approvals.labels(
                get_text(event.data, "answer")
            ).inc(),
            "run.completed": self._on_end,
            "run.failed": self._on_end,
            "run.aborted": self._on_end,
        }

    def handle(self, event: RunEvent) -> None:
        handler = self._handlers.get(event.kind)
        if handler is not None:
            handler(event)

    def _on_start(self, event: RunEvent) -> None:
        self._started = event.time

    def _on_end(self, event: RunEvent) -> None:
        self._metrics.runs.labels(event.kind.removeprefix("run.")).inc()
        if self._started is not None:
            self._metrics.run_seconds.observe(event.time - self._started)

    def _on_text(self, event: RunEvent) -> None:
        if not self._has_text and self._started is not None:
            self._has_text = True
            self._metrics.first_text_seconds.observe(event.time - self._started)

    def _on_request(self, event: RunEvent) -> None:
        metrics, data = self._metrics, event.data
        metrics.model_requests.labels(metrics.model_label(get_text(data, "model"))).inc()
        metrics.sent_bytes.labels("tools").inc(_number(data, "toolBytes"))
        metrics.sent_bytes.labels("payload").inc(_number(data, "payloadBytes"))

    def _on_usage(self, event: RunEvent) -> None:
        data = event.data
        usage = cast("JsonObject", data.get("usage") or {})
        model = self._metrics.model_label(get_text(data, "model"))
        for kind, key in (
            ("input", "inputTokens"),
            ("output", "outputTokens"),
            ("cached", "cachedTokens"),
        ):
            self._metrics.tokens.labels(model, kind).inc(_number(usage, key))

    def _on_call(self, event: RunEvent) -> None:
        self._sources[get_text(event.data, "toolCallId")] = get_text(event.data, "source")

    def _on_call_end(self, event: RunEvent) -> None:
        data = event.data
        source = self._sources.pop(get_text(data, "toolCallId"), "") or "unknown"
        nested = "yes" if data.get("parentToolCallId") else "no"
        outcome = get_text(data, "outcome") or "unknown"
        self._metrics.tool_calls.labels(source, nested, outcome).inc()
        seconds = _number(data, "durationMs") / 1000
        self._metrics.tool_call_seconds.labels(source).observe(seconds)


def _number(data: JsonObject, key: str) -> float:
    value: JsonValue = data.get(key)
    # A counter must not decrease, even if a provider reports negative numbers.
    return max(0.0, float(value)) if isinstance(value, int | float) else 0.0


CONTENT_TYPE: Final = CONTENT_TYPE_LATEST

_RUN_SECONDS: Final = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800)
_CALL_SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5, 30, 120)
_STALL_SECONDS: Final = (0.25, 0.5, 1, 2.5, 5, 10)
# Clients can use any model of some providers, and each name would be kept forever.
_MAX_MODELS: Final = 100
_OTHER_MODELS: Final = "other"


# The creation times would double the number of series.
disable_created_metrics()


class Metrics:
    """The metrics of one gateway, in a registry of its own."""

    def __init__(self, system: System) -> None:
        self._registry = CollectorRegistry()
        self._models: set[str] = set()
        self.runs = self._counter("nacre_runs", "Runs that ended.", "status")
        self.run_seconds = self._histogram(
            "nacre_run_duration_seconds", "Time from the start of a run to its end.", _RUN_SECONDS
        )
        self.first_text_seconds = self._histogram(
            "nacre_run_first_text_seconds",
            "Time from the start of a run to its first text.",
            _RUN_SECONDS,
        )
        self.model_requests = self._counter("nacre_model_requests", "Requests to models.", "model")
        self.model_retries = self._counter("nacre_model_retries", "Repeated requests to models.")
        self.tokens = self._counter("nacre_tokens", "Tokens, as providers count.", "model", "kind")
        self.sent_bytes = self._counter(
            "nacre_model_sent_bytes",
            "Bytes sent to models: `tools` is the part of `payload` that describes tools.",
            "part",
        )
        self.tool_calls = self._counter(
            "nacre_tool_calls", "Tool calls that ended.", "source", "nested", "outcome"
        )
        self.tool_call_seconds = self._histogram(
            "nacre_tool_call_duration_seconds", "Duration of tool calls.", _CALL_SECONDS, "source"
        )
        self.cells = self._counter("nacre_cells", "Programs that ended.", "status")
        self.suspensions = self._counter("nacre_cell_suspensions", "Snapshots of programs.")
        self.approvals = self._counter("nacre_approvals", "Closed approvals.", "answer")
        self.http_requests = self._counter(
            "nacre_http_requests", "Answered HTTP requests.", "method", "route", "status"
        )
        self.http_seconds = self._histogram(
            "nacre_http_request_duration_seconds",
            "Time from a request to the first byte of its response.",
            _CALL_SECONDS,
            "route",
        )
        self.loop_stall_seconds = self._histogram(
            "nacre_loop_stall_seconds",
            "Times in which the event loop ran no task, from 0.1 seconds on.",
            _STALL_SECONDS,
        )
        self.stall_count = 0
        self.longest_stall_seconds = 0.0
        self._add_gauges(system)
        self.close = system.agents.watch_runs(self._watch)

    def render(self) -> bytes:
        return generate_latest(self._registry)

    def observe_stall(self, stall: LoopStall) -> None:
        self.loop_stall_seconds.observe(stall.seconds)
        self.stall_count += 1
        self.longest_stall_seconds = max(self.longest_stall_seconds, stall.seconds)

    def model_label(self, model: str) -> str:
        """The model's name, or `other` if there are too many or it has control characters."""
        if model in self._models:
            return model
        if len(self._models) >= _MAX_MODELS or not model.isprintable():
            return _OTHER_MODELS
        self._models.add(model)
        return model

    def _watch(self, run: AgentRun) -> None:
        run.events.subscribe(RunMeter(self).handle)

    def _add_gauges(self, system: System) -> None:
        def live(state: str) -> Callable[[], float]:
            return lambda: sum(run.state == state for run in system.agents.runs())

        active = self._gauge("nacre_runs_active", "Runs that have not ended.", "state")
        for state in ("queued", "running", "waiting"):
            active.labels(state).set_function(live(state))
        self._gauge("nacre_cells_live", "Running and waiting programs.").set_function(
            lambda: len(system.runtime.cells())
        )
        self._gauge("nacre_approvals_pending", "Pending approvals.").set_function(
            lambda: len(system.approvals.pending)
        )
        if (shared := system.agents.shared) is not None:
            self._add_shared_gauges(shared)
        servers = self._gauge("nacre_mcp_servers", "MCP servers of all sessions.", "state")
        for state in ("idle", "starting", "ready", "failed"):
            servers.labels(state).set_function(_server_count(system, state))

    def _add_shared_gauges(self, shared: SharedSessions) -> None:
        gauges: tuple[tuple[str, str, Callable[[], float]], ...] = (
            (
                "nacre_leases_held",
                "Sessions that this gateway serves.",
                lambda: shared.held_count,
            ),
            (
                "nacre_takeovers",
                "Sessions that this gateway has taken over since it started.",
                lambda: shared.takeover_count,
            ),
            (
                "nacre_inbox_open",
                "Messages and answers that no gateway has read, at the last look.",
                lambda: shared.open_items,
            ),
            (
                "nacre_remote_event_lag_seconds",
                "How long the last event of another gateway took to get here.",
                lambda: shared.remote.lag_seconds,
            ),
        )
        for name, description, value in gauges:
            self._gauge(name, description).set_function(value)

    def _counter(self, name: str, description: str, *labels: str) -> Counter:
        return Counter(name, description, labels, registry=self._registry)

    def _gauge(self, name: str, description: str, *labels: str) -> Gauge:
        return Gauge(name, description, labels, registry=self._registry)

    def _histogram(
        self, name: str, description: str, buckets: tuple[float, ...], *labels: str
    ) -> Histogram:
        return Histogram(name, description, labels, buckets=buckets, registry=self._registry)


def _server_count(system: System, state: str) -> Callable[[], float]:
    return lambda: sum(server.state == state for server in system.mcp.status())


def log_failures(run: AgentRun) -> None:
    """Log the failure of a run. An aborted run has not failed."""
    model_id = ""

    def handle(event: RunEvent) -> None:
        nonlocal model_id
        if event.kind == "run.started":
            model_id = str(event.data["model"])
        elif event.kind == "run.failed":
            _log_failure(
                run.id, str(event.data.get("model") or model_id), str(event.data.get("error"))
            )

    run.events.subscribe(handle)


def _log_failure(run_id: str, model: str, reason: str) -> None:
    # Clients choose the model, so its name is untrusted, too.
    is_named = not model or model in reason
    shown = "" if is_named else f" ({format_log_line(model)})"
    logger.warning("the run %s%s failed: %s", run_id, shown, format_log_line(reason))


_UNMATCHED: Final = "unmatched"
_METHODS: Final = frozenset(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"))


class RequestMeter:
    """Counts and logs all requests, including rejected ones."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = time.perf_counter()
        status: int | None = None

        async def send_and_count(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                self._count(scope, message["status"], time.perf_counter() - started)
            await send(message)

        try:
            await self._app(scope, receive, send_and_count)
        finally:
            _log_request(scope, status, time.perf_counter() - started)

    def _count(self, scope: Scope, status: int, seconds: float) -> None:
        # By route, not by path: paths with ids would create a series each.
        route = getattr(scope.get("route"), "path", _UNMATCHED)
        self._metrics.http_requests.labels(_method(scope), route, str(status)).inc()
        self._metrics.http_seconds.labels(route).observe(seconds)


def _log_request(scope: Scope, status: int | None, seconds: float) -> None:
    """Log the request at the end of its response, which for a stream may be late."""
    if access_logger.isEnabledFor(logging.INFO):
        # Still percent-encoded, so it has no line ends; without the query.
        path = scope.get("raw_path", b"").partition(b"?")[0].decode("ascii", "replace")
        shown = "no response" if status is None else str(status)
        access_logger.info("%s %s %s %.0f ms", _method(scope), path, shown, seconds * 1000)


def _method(scope: Scope) -> str:
    return scope["method"] if scope["method"] in _METHODS else "other"
