"""What a runtime was configured with: a whole config document, or code mode's settings alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, TypeAlias, cast

from nacre.code_mode.activation import code_mode_config_for
from nacre.config.code_mode import CodeModeConfig, code_mode_config_from
from nacre.errors import ConfigError
from nacre.tools.policy import ToolPolicy, policy_from_config

if TYPE_CHECKING:
    from nacre.json_types import JsonObject
    from nacre.run_context import RunContext

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
