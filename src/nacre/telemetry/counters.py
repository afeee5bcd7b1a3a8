"""How often a run searched, described and called what is in its catalog."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from nacre.json_types import JsonObject

OTHER_IDS: Final = "other"
MAX_DISTINCT_IDS: Final = 256


def _no_calls() -> dict[str, int]:
    return {}


@dataclass(kw_only=True, slots=True)
class CatalogCounters:
    """Counts over all cells of a run; only ever grows."""

    searches: int = 0
    describes: int = 0
    calls: int = 0
    called: dict[str, int] = field(default_factory=_no_calls)
    """Calls by tool id. Ids beyond the first 256 share the entry `other`."""

    def count_call(self, tool_id: str) -> None:
        self.calls += 1
        is_known = tool_id in self.called or len(self.called) < MAX_DISTINCT_IDS
        counted = tool_id if is_known else OTHER_IDS
        self.called[counted] = self.called.get(counted, 0) + 1

    def to_json(self) -> JsonObject:
        """As the `telemetry` of a result has it; ids and numbers only."""
        return {
            "searches": self.searches,
            "describes": self.describes,
            "calls": self.calls,
            "called": {**self.called},
        }
