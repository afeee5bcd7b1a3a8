"""What operators measure, in the format of Prometheus: counted as it happens, or when asked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
)

from nacre.gateway.run_meter import RunMeter

if TYPE_CHECKING:
    from collections.abc import Callable

    from nacre.agent import AgentRun
    from nacre.bootstrap import System

CONTENT_TYPE: Final = CONTENT_TYPE_LATEST

_RUN_SECONDS: Final = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800)
_CALL_SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5, 30, 120)
# Callers may name any model of some providers; each name would be kept for ever.
_MAX_MODELS: Final = 100
_OTHER_MODELS: Final = "other"


# When each series began: twice as many of them, which nobody asks for.
disable_created_metrics()


class Metrics:
    """One gateway's, in a registry of its own."""

    def __init__(self, system: System) -> None:
        self._registry = CollectorRegistry()
        self._models: set[str] = set()
        self.runs = self._counter("nacre_runs", "Runs that ended.", "status")
        self.run_seconds = self._histogram(
            "nacre_run_duration_seconds", "From the start of a run to its end.", _RUN_SECONDS
        )
        self.first_text_seconds = self._histogram(
            "nacre_run_first_text_seconds",
            "From the start of a run to its first word.",
            _RUN_SECONDS,
        )
        self.model_requests = self._counter(
            "nacre_model_requests", "Requests that were sent to models.", "model"
        )
        self.model_retries = self._counter(
            "nacre_model_retries", "Requests to models that were made again."
        )
        self.tokens = self._counter("nacre_tokens", "Tokens as providers count.", "model", "kind")
        self.sent_bytes = self._counter(
            "nacre_model_sent_bytes",
            "Bytes that went to models: `tools` is the part of `payload` that describes tools.",
            "part",
        )
        self.tool_calls = self._counter(
            "nacre_tool_calls", "Tool calls that ended.", "source", "nested", "outcome"
        )
        self.tool_call_seconds = self._histogram(
            "nacre_tool_call_duration_seconds", "How long tool calls took.", _CALL_SECONDS, "source"
        )
        self.cells = self._counter("nacre_cells", "Programs that ended.", "status")
        self.suspensions = self._counter("nacre_cell_suspensions", "Snapshots that were taken.")
        self.approvals = self._counter("nacre_approvals", "Questions that closed.", "answer")
        self.http_requests = self._counter(
            "nacre_http_requests", "Requests that were answered.", "method", "route", "status"
        )
        self.http_seconds = self._histogram(
            "nacre_http_request_duration_seconds",
            "From a request to the first byte of its answer.",
            _CALL_SECONDS,
            "route",
        )
        self._add_gauges(system)
        self.close = system.agents.watch_runs(self._watch)

    def render(self) -> bytes:
        return generate_latest(self._registry)

    def model_label(self, model: str) -> str:
        """The model's name, as long as there are not too many of them."""
        if model in self._models:
            return model
        if len(self._models) >= _MAX_MODELS:
            return _OTHER_MODELS
        self._models.add(model)
        return model

    def _watch(self, run: AgentRun) -> None:
        run.events.listen(RunMeter(self).take)

    def _add_gauges(self, system: System) -> None:
        def live(state: str) -> Callable[[], float]:
            return lambda: sum(run.state == state for run in system.agents.runs())

        active = self._gauge("nacre_runs_active", "Runs that have not ended.", "state")
        for state in ("queued", "running", "waiting"):
            active.labels(state).set_function(live(state))
        self._gauge("nacre_cells_live", "Programs that run or wait.").set_function(
            lambda: len(system.runtime.cells())
        )
        self._gauge("nacre_approvals_pending", "Questions that are open.").set_function(
            lambda: len(system.approvals.pending)
        )
        servers = self._gauge("nacre_mcp_servers", "MCP servers, over all sessions.", "state")
        for state in ("idle", "starting", "ready", "failed"):
            servers.labels(state).set_function(_server_count(system, state))

    def _counter(self, name: str, about: str, *labels: str) -> Counter:
        return Counter(name, about, labels, registry=self._registry)

    def _gauge(self, name: str, about: str, *labels: str) -> Gauge:
        return Gauge(name, about, labels, registry=self._registry)

    def _histogram(
        self, name: str, about: str, buckets: tuple[float, ...], *labels: str
    ) -> Histogram:
        return Histogram(name, about, labels, buckets=buckets, registry=self._registry)


def _server_count(system: System, state: str) -> Callable[[], float]:
    return lambda: sum(server.state == state for server in system.mcp.status())
