"""The code mode settings and the tool policy of a run, from a config document or settings alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, TypeAlias, cast

from nacre.config import CodeModeConfig, ToolsConfig, code_mode_config_from, tools_config_from
from nacre.errors import ConfigError
from nacre.tools import Tool, is_control_tool

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
    """Whether the model sees `exec` and `wait`; `tools` are those that policy permits.

    A run without tools stays without tools.
    """
    if not config.enabled or tools_disabled:
        return False
    return has_servers or not all(is_control_tool(tool) for tool in tools)


ConfigInput: TypeAlias = "RunConfig | CodeModeConfig | Mapping[str, object] | bool | None"

# A mapping with one of these keys is a config document, any other has settings of code mode.
_DOCUMENT_KEYS: Final = frozenset(
    ("tools", "agents", "models", "mcp", "plugins", "messages", "gateway", "storage")
)


@dataclass(frozen=True, kw_only=True, slots=True)
class RunConfig:
    """The settings of a run: those of a document by agent, or the same for every agent."""

    document: Mapping[str, object] = field(default_factory=dict[str, object])
    tools: ToolsConfig | None = None
    """Used instead of the document's, for every agent."""

    def tools_for(self, context: RunContext) -> ToolsConfig:
        """Raises ConfigError for a document that is not valid."""
        return self.tools or tools_config_from(self.document, context.agent_id)

    def to_json(self) -> JsonObject:
        """The document, for namespaces that read their own part of it."""
        return cast("JsonObject", dict(self.document))


def run_config_from(config: ConfigInput) -> RunConfig:
    """Read a configuration. In a document code mode is off unless it has `enabled: true`. With
    settings alone, or none, it is on unless they have `enabled: false`."""
    if isinstance(config, RunConfig):
        return config
    if config is None:
        return _with_settings(CodeModeConfig(enabled=True))
    if isinstance(config, CodeModeConfig):
        return _with_settings(replace(config, enabled=True))
    if isinstance(config, bool):
        return _with_settings(CodeModeConfig(enabled=config))
    if not isinstance(config, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ConfigError("config", f"is a {type(config).__name__}; allowed: an object")
    if _DOCUMENT_KEYS.isdisjoint(config):
        return _with_settings(code_mode_config_from({"enabled": True, **config}, path="config"))
    return RunConfig(document=config)


def _with_settings(settings: CodeModeConfig) -> RunConfig:
    return RunConfig(tools=ToolsConfig(code_mode=settings))
