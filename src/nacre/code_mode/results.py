"""The results of `exec` and `wait`, and the telemetry of a run that each of them has."""

from __future__ import annotations

from collections import Counter
from dataclasses import field
from typing import TYPE_CHECKING, Final, TypeAlias

from nacre.lazy_dataclasses import dataclass
from nacre.sandbox import results as cell_results
from nacre.sandbox.results import PendingRequest, Reason, Usage
from nacre.tools import CatalogCounters

if TYPE_CHECKING:
    from collections.abc import Mapping

    from nacre.code_mode.mcp_servers import McpServers
    from nacre.json_types import JsonObject
    from nacre.tools import Catalog

_MAX_LISTED_TOOLS: Final = 10
# Cells that end with one of these are counted: the limit is too low, or the model is lost.
_LIMIT_REASONS: Final[frozenset[Reason]] = frozenset(
    {
        "memory_limit_exceeded",
        "output_limit_exceeded",
        "snapshot_limit_exceeded",
        "timeout",
        "too_many_pending_tool_calls",
        "too_many_suspended_runs",
    }
)


@dataclass(frozen=True, kw_only=True, slots=True)
class PendingToolCall(PendingRequest):
    """A nested call without a result. Its input is not part of the JSON for the model."""

    call_id: str
    tool_id: str
    is_awaiting_client: bool = False

    @property
    def is_awaiting_approval(self) -> bool:
        return self.is_with_person and not self.is_awaiting_client

    @property
    def is_awaiting_somebody(self) -> bool:
        """Whether the call continues only when a person or a client has answered."""
        return self.is_with_person or self.is_awaiting_client

    def to_json(self) -> JsonObject:
        wire: JsonObject = {"id": self.call_id, "toolId": self.tool_id}
        if self.is_awaiting_approval:
            wire["awaitingApproval"] = True
        if self.is_awaiting_client:
            wire["awaitingClient"] = True
        return wire


@dataclass(frozen=True, kw_only=True, slots=True)
class Telemetry:
    """The catalog of a run, and how it was used so far."""

    catalog_size: int = 0
    sources: Mapping[str, int] = field(default_factory=dict[str, int])
    visible_tools: tuple[str, ...] = ()
    exec_count: int = 0
    wait_count: int = 0
    search_count: int = 0
    describe_count: int = 0
    call_count: int = 0
    called_tools: Mapping[str, int] = field(default_factory=dict[str, int])
    """The number of calls of each tool of the catalog, by id."""
    snapshots: Mapping[str, int] = field(default_factory=dict[str, int])
    """The number of snapshots that were taken, restored, dropped and expired."""
    limit_failures: Mapping[str, int] = field(default_factory=dict[str, int])
    """The number of cells that ended at a limit, by reason."""

    def to_json(self, usage: Usage | None = None) -> JsonObject:
        """`usage` is the usage of a cell."""
        wire: JsonObject = {
            "catalogSize": self.catalog_size,
            "sources": dict(self.sources),
            "visibleTools": list(self.visible_tools),
            "execCount": self.exec_count,
            "waitCount": self.wait_count,
            "searchCount": self.search_count,
            "describeCount": self.describe_count,
            "callCount": self.call_count,
        }
        # Empty members are left out: results are stored with every call.
        for key, counts in (
            ("calledTools", _select_most_called(self.called_tools)),
            ("snapshots", self.snapshots),
            ("limitFailures", self.limit_failures),
        ):
            if counts:
                wire[key] = dict(counts)
        return {**wire, **(usage or Usage()).to_json()}


def _select_most_called(counts: Mapping[str, int]) -> dict[str, int]:
    """The most called tools, and the rest as `other`: a run may call hundreds of tools."""
    ordered = sorted(counts.items(), key=lambda item: -item[1])
    listed = dict(ordered[:_MAX_LISTED_TOOLS])
    others = sum(count for _, count in ordered[_MAX_LISTED_TOOLS:])
    return {**listed, "other": listed.get("other", 0) + others} if others else listed


# The results of the sandbox, with the telemetry of the run. The sandbox cannot add it: it knows
# nothing of runs and tools.


@dataclass(frozen=True, kw_only=True, slots=True)
class Completed(cell_results.Completed):
    """The program returned, and all its calls and timers are done."""

    telemetry: Telemetry = field(default_factory=Telemetry)

    def telemetry_json(self) -> JsonObject:
        return self.telemetry.to_json(self.usage)


@dataclass(frozen=True, kw_only=True, slots=True)
class Waiting(cell_results.Waiting):
    """The program is suspended. Continue it with `wait` and its `cell_id`."""

    pending: tuple[PendingToolCall, ...] = ()
    telemetry: Telemetry = field(default_factory=Telemetry)

    def telemetry_json(self) -> JsonObject:
        return self.telemetry.to_json(self.usage)


@dataclass(frozen=True, kw_only=True, slots=True)
class Failed(cell_results.Failed):
    """There is no value. `error` says what happened and what to do."""

    telemetry: Telemetry = field(default_factory=Telemetry)

    def telemetry_json(self) -> JsonObject:
        return self.telemetry.to_json(self.usage)


CodeModeResult: TypeAlias = Completed | Waiting | Failed


# The counts of a run.


@dataclass(kw_only=True, slots=True)
class SnapshotCounts:
    """Counts the snapshots of a run's cells."""

    taken: int = 0
    restored: int = 0
    dropped: int = 0
    expired: int = 0

    def to_json(self) -> dict[str, int]:
        """The counts that are not zero."""
        counts = {
            "taken": self.taken,
            "restored": self.restored,
            "dropped": self.dropped,
            "expired": self.expired,
        }
        return {name: count for name, count in counts.items() if count}


@dataclass(kw_only=True, slots=True)
class RunTelemetry:
    """Counts the use of a run. Each result has a copy of the counts."""

    catalog: Catalog
    mcp: McpServers
    visible_tools: tuple[str, ...]
    counters: CatalogCounters = field(default_factory=CatalogCounters)
    snapshots: SnapshotCounts = field(default_factory=SnapshotCounts)
    limit_failures: Counter[str] = field(default_factory=Counter[str])
    exec_count: int = 0
    wait_count: int = 0

    def count_failure(self, reason: Reason) -> None:
        if reason in _LIMIT_REASONS:
            self.limit_failures[reason] += 1

    def report(self) -> Telemetry:
        """The counts as they are now."""
        # The tools of a server are known when it has listed them, and only if policy permits them.
        sources = {**self.catalog.source_counts, "mcp": self.mcp.tool_count}
        return Telemetry(
            catalog_size=sum(sources.values()),
            sources=sources,
            visible_tools=self.visible_tools,
            exec_count=self.exec_count,
            wait_count=self.wait_count,
            search_count=self.counters.searches,
            describe_count=self.counters.describes,
            call_count=self.counters.calls,
            called_tools=dict(self.counters.called),
            snapshots=self.snapshots.to_json(),
            limit_failures=dict(self.limit_failures),
        )
