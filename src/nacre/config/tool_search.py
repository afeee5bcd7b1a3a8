"""The settings of Tool Search: defaults, ranges, boolean shorthand."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Literal, get_args

from nacre.config.code_mode import (
    NumberLimit,
    clamp_fields,
    read_numbers,
    read_settings,
    read_switch,
    refuse_value,
)
from nacre.lazy_dataclasses import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping

ToolSearchMode = Literal["code", "tools"]

MODES: Final[tuple[ToolSearchMode, ...]] = get_args(ToolSearchMode)

LIMITS: Final[Mapping[str, NumberLimit]] = MappingProxyType(
    {
        "code_timeout_ms": NumberLimit(
            key="codeTimeoutMs",
            default=10_000,
            least=1_000,
            most=60_000,
            description="Time limit of a program.",
        ),
        "search_default_limit": NumberLimit(
            key="searchDefaultLimit",
            default=8,
            least=1,
            most=50,
            description="Results of a search that gives no limit; at most `maxSearchLimit`.",
        ),
        "max_search_limit": NumberLimit(
            key="maxSearchLimit",
            default=20,
            least=1,
            most=50,
            description="Maximum number of results of a search.",
        ),
    }
)
"""The numeric fields of `ToolSearchConfig` by name: the only place where these numbers are."""

KEYS: Final = ("enabled", "mode", *(limit.key for limit in LIMITS.values()))
"""Every key of the object. An object turns Tool Search on, unless it has `enabled: false`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolSearchConfig:
    """The settings under `tools.toolSearch`, complete and within their limits.

    A number out of range is clamped; raises ConfigError, by field, for other invalid values.
    """

    enabled: bool = False
    mode: ToolSearchMode = "code"
    code_timeout_ms: int = LIMITS["code_timeout_ms"].default
    search_default_limit: int = LIMITS["search_default_limit"].default
    max_search_limit: int = LIMITS["max_search_limit"].default

    def __post_init__(self) -> None:
        read_switch(self.enabled, "enabled")
        _read_mode(self.mode, "mode")
        clamp_fields(self, LIMITS)
        default_limit = min(self.search_default_limit, self.max_search_limit)
        # Frozen, so this is how.
        object.__setattr__(self, "search_default_limit", default_limit)


def tool_search_config_from(value: object, *, path: str = "tools.toolSearch") -> ToolSearchConfig:
    """Read the value at `path` of the config file: None, a boolean or an object.

    A number out of range is clamped; raises ConfigError for a wrong type or an unknown key.
    """
    settings = read_settings(value, keys=KEYS, path=path)
    if isinstance(settings, bool):
        return ToolSearchConfig(enabled=settings)
    numbers = read_numbers(settings, LIMITS, path=path)
    return ToolSearchConfig(
        enabled=read_switch(settings.get("enabled", True), f"{path}.enabled"),
        mode=_read_mode(settings.get("mode", "code"), f"{path}.mode"),
        **numbers,
    )


def _read_mode(value: object, path: str) -> ToolSearchMode:
    if value not in MODES:
        raise refuse_value(path, value, '"code" and "tools"')
    return value
