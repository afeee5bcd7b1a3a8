"""What a call of the model comes to: a value, or what went wrong; both say what else happened."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias, cast

from nacre.json_types import NotJsonError, encode_json
from nacre.sandbox.results import Output, Position, output_to_wire

if TYPE_CHECKING:
    from collections.abc import Mapping

    from nacre.json_types import JsonObject, JsonValue
    from nacre.tool_search.catalog_access import BlockedCall


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
