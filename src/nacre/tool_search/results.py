"""The results of calls with Tool Search, and the telemetry of a run."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from nacre.sandbox.results import Completed, Failed
from nacre.tools import OTHER_IDS, DirectResult

if TYPE_CHECKING:
    from collections.abc import Mapping

    from nacre.json_types import JsonObject
    from nacre.sandbox.results import ImageOutput
    from nacre.tool_search.catalog import BlockedCall
    from nacre.tool_search.model_surface import SurfaceMode


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolSearchResult:
    """The result of one call: its outcome, and problems on the way that the model should know.

    The outcome of `tool_search_code` is that of its program, the outcome of all other tools is a
    `DirectResult`. Neither the sandbox nor the tools know of blocked calls and missing servers.
    """

    outcome: Completed | Failed | DirectResult
    blocked_calls: tuple[BlockedCall, ...] = ()
    """Calls of a program that policy, a hook or a person denied, even if it caught the error."""
    unfinished_calls: tuple[str, ...] = ()
    """Calls of a program that were aborted at its end: ids of tools, or names of functions."""
    unavailable_servers: Mapping[str, str] = field(default_factory=dict[str, str])
    """MCP servers that could not be searched, and why."""

    @property
    def is_error(self) -> bool:
        return bool(self.code)

    @property
    def code(self) -> str:
        """The code of the error; empty if the call has completed."""
        return "" if isinstance(self.outcome, Completed) else self.outcome.code

    @property
    def error(self) -> str:
        """The message of the error; empty if the call has completed."""
        return "" if isinstance(self.outcome, Completed) else self.outcome.error

    @property
    def images(self) -> tuple[ImageOutput, ...]:
        """The images of a program. The JSON has only a marker for each."""
        return () if isinstance(self.outcome, DirectResult) else self.outcome.images

    def to_json(self) -> JsonObject:
        """Empty members are left out."""
        problems: JsonObject = {
            "unfinishedCalls": list(self.unfinished_calls),
            "blockedCalls": [call.to_json() for call in self.blocked_calls],
            "unavailableServers": dict(self.unavailable_servers),
        }
        return {
            **self._outcome_json(),
            **{name: value for name, value in problems.items() if value},
        }

    def _outcome_json(self) -> JsonObject:
        outcome = self.outcome
        if isinstance(outcome, DirectResult):
            return outcome.to_json()
        return {**outcome.outcome_json(), **outcome.output_json()}


@dataclass(kw_only=True, slots=True)
class RequestCounts:
    """Counts the requests to the provider."""

    requests: int = 0
    tool_bytes: int = 0
    prompt_bytes: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolSearchTelemetry:
    """The counts of a run at one moment."""

    mode: SurfaceMode
    fallback_reason: str = ""
    """Why the model sees the structured tools although the mode is `code`."""
    visible_tools: tuple[str, ...] = ()
    """The tools that the model sees."""
    tool_bytes: int = 0
    """The size of their definitions in one chat completion request."""
    direct_tool_bytes: int = 0
    """The size if the model saw every tool of the catalog, too."""
    requests: int = 0
    tool_bytes_sent: int = 0
    prompt_bytes_sent: int = 0
    catalog_size: int = 0
    sources: Mapping[str, int] = field(default_factory=dict[str, int])
    search_count: int = 0
    describe_count: int = 0
    call_count: int = 0
    called_tools: Mapping[str, int] = field(default_factory=dict[str, int])
    """The number of calls of each tool of the catalog, by id."""

    def to_json(self) -> JsonObject:
        wire: JsonObject = {
            "mode": self.mode,
            "visibleTools": list(self.visible_tools),
            "toolBytes": self.tool_bytes,
            "directToolBytes": self.direct_tool_bytes,
            "requests": self.requests,
            "toolBytesSent": self.tool_bytes_sent,
            "promptBytesSent": self.prompt_bytes_sent,
            "catalogSize": self.catalog_size,
            "sources": dict(self.sources),
            "searchCount": self.search_count,
            "describeCount": self.describe_count,
            "callCount": self.call_count,
            "calledTools": [
                {"id": tool_id, "source": _source_of(tool_id), "count": count}
                for tool_id, count in self.called_tools.items()
            ],
        }
        if self.fallback_reason:
            wire["fallbackReason"] = self.fallback_reason
        return wire


def _source_of(tool_id: str) -> str:
    """An id starts with the source of the tool."""
    return OTHER_IDS if tool_id == OTHER_IDS else tool_id.partition(":")[0]
