"""What Tool Search was configured with: a whole config document, or its settings alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, TypeAlias, cast

from nacre.config.code_mode import code_mode_config_from
from nacre.config.documents import tool_settings
from nacre.config.tool_search import ToolSearchConfig, tool_search_config_from
from nacre.errors import ConfigError
from nacre.tools.policy import ToolPolicy, policy_from_config

if TYPE_CHECKING:
    from collections.abc import Callable

    from nacre.run_context import RunContext

ConfigInput: TypeAlias = ToolSearchConfig | Mapping[str, object] | bool | None

# A mapping with one of these is a config document; any other holds settings of Tool Search.
_DOCUMENT_KEYS: Final = frozenset(
    ("tools", "agents", "models", "mcp", "plugins", "messages", "gateway", "storage")
)


@dataclass(frozen=True, kw_only=True, slots=True)
class RunConfig:
    """Settings by agent, and the policy of a run."""

    document: Mapping[str, object] = field(default_factory=dict[str, object])
    settings: ToolSearchConfig | None = None
    """Given without a document; they hold for every agent."""

    def tool_search_for(self, context: RunContext) -> ToolSearchConfig:
        if self.settings is not None:
            return self.settings
        return tool_search_config_for(self.document, context.agent_id)

    def is_code_mode_on_for(self, context: RunContext) -> bool:
        return is_code_mode_on(self.document, context.agent_id)

    def policy_for(self, context: RunContext) -> ToolPolicy:
        return policy_from_config(self.document, context)


def run_config_from(config: ConfigInput) -> RunConfig:
    """In a document Tool Search is off unless it says otherwise, as the contract has it. Who gives
    settings alone, or nothing, asks for it by opening it: on unless they say `enabled: false`."""
    if config is None:
        return RunConfig(settings=ToolSearchConfig(enabled=True))
    if isinstance(config, ToolSearchConfig):
        return RunConfig(settings=replace(config, enabled=True))
    if isinstance(config, bool):
        return RunConfig(settings=ToolSearchConfig(enabled=config))
    if not isinstance(config, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ConfigError("config", f"is a {type(config).__name__}; allowed: an object")
    if _DOCUMENT_KEYS.isdisjoint(config):
        return RunConfig(settings=tool_search_config_from(config, path="config"))
    return RunConfig(document=config)


def tool_search_config_for(document: Mapping[str, object], agent_id: str) -> ToolSearchConfig:
    """The settings of one agent: `tools.toolSearch`, and over it, key by key, the agent's own.

    A boolean only switches it on or off. Raises ConfigError with the path of the setting.
    """
    merged: dict[str, object] = {"enabled": False}
    for path, value in tool_settings(document, agent_id, "toolSearch"):
        merged.update(_read_settings(value, path, tool_search_config_from, is_on_as_object=True))
    return tool_search_config_from(merged)


def is_code_mode_on(document: Mapping[str, object], agent_id: str) -> bool:
    """Whether code mode, which goes before Tool Search, is on for the agent; raises ConfigError."""
    merged: dict[str, object] = {}
    for path, value in tool_settings(document, agent_id, "codeMode"):
        merged.update(_read_settings(value, path, code_mode_config_from, is_on_as_object=False))
    return merged.get("enabled") is True


def _read_settings(
    value: object, path: str, read: Callable[..., object], *, is_on_as_object: bool
) -> dict[str, object]:
    # Read for its own path, so that a fault is reported where it was made.
    read(value, path=path)
    if value is None:
        return {}
    if isinstance(value, bool):
        return {"enabled": value}
    settings = dict(cast("Mapping[str, object]", value))
    return {"enabled": True, **settings} if is_on_as_object else settings
