"""The code mode settings and the tool policy of a run, from a config document or settings alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, TypeAlias, cast

from nacre.config.code_mode import CodeModeConfig, code_mode_config_from
from nacre.config.documents import tool_settings
from nacre.errors import ConfigError
from nacre.tools import Tool, ToolPolicy, is_control_tool, policy_from_config

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nacre.json_types import JsonObject
    from nacre.run_context import RunContext


def is_code_mode_active(
    config: CodeModeConfig,
    *,
    tools: Sequence[Tool],
    has_servers: bool = False,
    tools_disabled: bool = False,
) -> bool:
    """Whether the model is shown `exec` and `wait`; `tools` is what policy left of this run's.

    A run without tools has nothing to hide, so it stays without tools.
    """
    if not config.enabled or tools_disabled:
        return False
    return has_servers or not all(is_control_tool(tool) for tool in tools)


def code_mode_config_for(config: Mapping[str, object], agent_id: str) -> CodeModeConfig:
    """The settings of one agent: `tools.codeMode`, and over it, key by key, the agent's own.

    An agent is an entry of `agents.list` by its `id`, or a member of `agents` by its name. A
    boolean only switches code mode on or off. Raises ConfigError with the path of the setting.
    """
    merged: dict[str, object] = {}
    for path, value in tool_settings(config, agent_id, "codeMode"):
        merged.update(_read_settings(value, path))
    return code_mode_config_from(merged)


def _read_settings(value: object, path: str) -> dict[str, object]:
    # Read for its own path, so that a fault is reported where it was made.
    code_mode_config_from(value, path=path)
    if isinstance(value, bool):
        return {"enabled": value}
    return dict(cast("Mapping[str, object]", value or {}))


ConfigInput: TypeAlias = "RunConfig | CodeModeConfig | Mapping[str, object] | bool | None"

# A mapping with one of these is a config document; any other holds settings of code mode.
_DOCUMENT_KEYS: Final = frozenset(
    ("tools", "agents", "models", "mcp", "plugins", "messages", "gateway", "storage")
)


@dataclass(frozen=True, kw_only=True, slots=True)
class RunConfig:
    """Settings by agent, and the policy of a run."""

    document: Mapping[str, object] = field(default_factory=dict[str, object])
    settings: CodeModeConfig | None = None
    """Given without a document; they hold for every agent."""

    def code_mode_for(self, context: RunContext) -> CodeModeConfig:
        if self.settings is not None:
            return self.settings
        return code_mode_config_for(self.document, context.agent_id)

    def policy_for(self, context: RunContext) -> ToolPolicy:
        return policy_from_config(self.document, context)

    def to_json(self) -> JsonObject:
        """The document, for namespaces that read their own part of it."""
        return cast("JsonObject", dict(self.document))


def run_config_from(config: ConfigInput) -> RunConfig:
    """In a document code mode is off unless it says `enabled: true`, as the contract has it. Who
    gives settings alone, or nothing, asks for code mode by making a runtime: it is on unless they
    say `enabled: false`."""
    if isinstance(config, RunConfig):
        return config
    if config is None:
        return RunConfig(settings=CodeModeConfig(enabled=True))
    if isinstance(config, CodeModeConfig):
        return RunConfig(settings=replace(config, enabled=True))
    if isinstance(config, bool):
        return RunConfig(settings=CodeModeConfig(enabled=config))
    if not isinstance(config, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ConfigError("config", f"is a {type(config).__name__}; allowed: an object")
    if _DOCUMENT_KEYS.isdisjoint(config):
        return RunConfig(settings=code_mode_config_from({"enabled": True, **config}, path="config"))
    return RunConfig(document=config)
