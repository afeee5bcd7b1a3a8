"""A plugin as operators see it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from nacre.json_types import JsonObject

PluginState = Literal["loaded", "disabled", "failed"]


@dataclass(frozen=True, kw_only=True, slots=True)
class PluginStatus:
    """Whether it is there, what it brought, and why it is not there."""

    id: str
    state: PluginState
    origin: str
    """Its folder, or the entry point that names it."""
    version: str = ""
    description: str = ""
    tool_names: tuple[str, ...] = ()
    hook_events: tuple[str, ...] = ()
    namespaces: tuple[str, ...] = ()
    problem: str = ""

    def to_json(self) -> JsonObject:
        return {
            "id": self.id,
            "state": self.state,
            "origin": self.origin,
            "version": self.version,
            "description": self.description,
            "tools": list(self.tool_names),
            "hooks": list(self.hook_events),
            "namespaces": list(self.namespaces),
            "problem": self.problem,
        }
