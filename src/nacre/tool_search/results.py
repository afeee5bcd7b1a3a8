"""The results of calls with Tool Search, and the telemetry of a run."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias, cast

from nacre.json_types import NotJsonError, encode_json
from nacre.sandbox.results import Output, Position, output_to_wire
from nacre.tools import OTHER_IDS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from nacre.json_types import JsonObject, JsonValue
    from nacre.tool_search.catalog_access import BlockedCall
    from nacre.tool_search.model_surface import SurfaceMode


@dataclass(frozen=True, kw_only=True, slots=True)
class _Result:
    """What every result may have; left out of its JSON while there is nothing to say."""

    output: tuple[Output, ...] = ()
    """What a program wrote."""
    blocked_calls: tuple[BlockedCall, ...] = ()
    """Calls of a program that policy, a hook or a person refused, caught by it or not."""
    unavailable_servers: Mapping[str, str] = field(default_factory=dict[str, str])
    """MCP servers that could not be searched, and why."""

    def _rest_json(self) -> JsonObject:
        known: JsonObject = {
            "output": [output_to_wire(item) for item in self.output],
            "blockedCalls": [call.to_json() for call in self.blocked_calls],
            "unavailableServers": dict(self.unavailable_servers),
        }
        return {key: value for key, value in known.items() if value}


@dataclass(frozen=True, kw_only=True, slots=True)
class Completed(_Result):
    """The model has what it asked for."""

    value: object = None
    """As the tool returned it where the tool is direct-only, else JSON."""
    unfinished_calls: int = 0
    """Calls that a program did not wait for and that still run."""

    def to_json(self) -> JsonObject:
        """What JSON cannot hold is named by its type; `value` has it."""
        wire: JsonObject = {"status": "completed", "value": self._json_value()}
        if self.unfinished_calls:
            wire["unfinishedCalls"] = self.unfinished_calls
        return {**wire, **self._rest_json()}

    def _json_value(self) -> JsonValue:
        try:
            encode_json(self.value)
        except NotJsonError:
            return {"type": type(self.value).__name__}
        return cast("JsonValue", self.value)


@dataclass(frozen=True, kw_only=True, slots=True)
class Failed(_Result):
    """There is no value; `error` says what happened and what to do."""

    error: str
    code: str
    """A tool's (`unknown_tool`, `blocked_by_hook`, ...) or a program's (`timeout`, ...)."""
    reason: str = ""
    """The finer name of what went wrong with a program."""
    details: Mapping[str, object] = field(default_factory=dict[str, object])
    """What a tool's error says besides, `toolId` first."""
    position: Position | None = None
    """Where in the program."""

    def to_json(self) -> JsonObject:
        wire: JsonObject = {"status": "failed", "error": self.error, "code": self.code}
        if self.reason:
            wire["reason"] = self.reason
        if self.position is not None:
            wire["line"] = self.position.line
            wire["column"] = self.position.column
        return {**cast("JsonObject", dict(self.details)), **wire, **self._rest_json()}


ToolSearchResult: TypeAlias = Completed | Failed


@dataclass(kw_only=True, slots=True)
class RequestCounts:
    """What went to the provider; only ever grows."""

    requests: int = 0
    tool_bytes: int = 0
    prompt_bytes: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolSearchTelemetry:
    """The state of a run's counts at one moment."""

    mode: SurfaceMode
    fallback_reason: str = ""
    """Why the model is shown the structured tools where code was asked for."""
    visible_tools: tuple[str, ...] = ()
    """The tools whose schemas the model sees before it asks for any."""
    tool_bytes: int = 0
    """What their definitions take in one request, as chat completions have them."""
    direct_tool_bytes: int = 0
    """What they would take if every tool of the catalog were shown as well."""
    requests: int = 0
    tool_bytes_sent: int = 0
    prompt_bytes_sent: int = 0
    catalog_size: int = 0
    sources: Mapping[str, int] = field(default_factory=dict[str, int])
    search_count: int = 0
    describe_count: int = 0
    call_count: int = 0
    called_tools: Mapping[str, int] = field(default_factory=dict[str, int])
    """How often each tool of the catalog was called, by id."""

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
    """An id begins with where the tool comes from."""
    return OTHER_IDS if tool_id == OTHER_IDS else tool_id.partition(":")[0]
