"""What a run counts, and how each result reports it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from nacre.code_mode.results import Telemetry
from nacre.sandbox.results import Reason, Usage
from nacre.tools import Catalog, CatalogCounters

if TYPE_CHECKING:
    from nacre.code_mode.mcp_servers import McpServers

# Cells that end at one of these are counted: a limit is too tight, or a model is lost.
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


@dataclass(kw_only=True, slots=True)
class SnapshotCounts:
    """What became of the snapshots of a run's cells."""

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
    """Counts up while the run goes on; each result has a copy."""

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

    def report(self, usage: Usage | None = None) -> Telemetry:
        # Tools of servers are known when a server is listed, and only as far as policy permits.
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
            cell=usage or Usage(),
        )
