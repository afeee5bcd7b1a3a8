"""The `tools.toolSearch` contract: defaults, clamps, boolean shorthand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal, cast, get_args

from nacre.config.code_mode import NumberLimit
from nacre.config.documents import shown
from nacre.config.nearest_keys import unknown_key
from nacre.errors import ConfigError

Mode = Literal["code", "tools"]

MODES: Final[tuple[Mode, ...]] = get_args(Mode)

LIMITS: Final[Mapping[str, NumberLimit]] = MappingProxyType(
    {
        "code_timeout_ms": NumberLimit(
            key="codeTimeoutMs", default=10_000, least=1_000, most=60_000
        ),
        # Clamped to `maxSearchLimit` as well.
        "search_default_limit": NumberLimit(key="searchDefaultLimit", default=8, least=1, most=50),
        "max_search_limit": NumberLimit(key="maxSearchLimit", default=20, least=1, most=50),
    }
)
"""The numeric fields of `ToolSearchConfig` by name: the one place where these numbers stand."""

KEYS: Final = ("enabled", "mode", *(limit.key for limit in LIMITS.values()))
"""Every key that the config file may hold. An object switches Tool Search on; `enabled: false` is
how its other settings stay written down meanwhile."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolSearchConfig:
    """The settings under `tools.toolSearch`, complete and within their limits.

    A number out of range is clamped; raises ConfigError, by field, for what is not allowed.
    """

    enabled: bool = False
    mode: Mode = "code"
    code_timeout_ms: int = LIMITS["code_timeout_ms"].default
    search_default_limit: int = LIMITS["search_default_limit"].default
    max_search_limit: int = LIMITS["max_search_limit"].default

    def __post_init__(self) -> None:
        _read_switch(self.enabled, "enabled")
        _read_mode(self.mode, "mode")
        for name, limit in LIMITS.items():
            self._set(name, _read_number(getattr(self, name), limit, name))
        self._set("search_default_limit", min(self.search_default_limit, self.max_search_limit))

    def _set(self, name: str, value: int) -> None:
        # Frozen, so this is how.
        object.__setattr__(self, name, value)


def tool_search_config_from(value: object, *, path: str = "tools.toolSearch") -> ToolSearchConfig:
    """Read what the config file has under `path`: nothing, a boolean or an object.

    A number out of range is clamped; raises ConfigError for a wrong type or an unknown key.
    """
    if value is None:
        return ToolSearchConfig()
    if isinstance(value, bool):
        return ToolSearchConfig(enabled=value)
    if not isinstance(value, Mapping):
        raise _refused(path, value, "true, false and an object")
    settings = cast("Mapping[object, object]", value)
    for key in settings:
        if key not in KEYS:
            raise unknown_key(path, key, KEYS)
    numbers = {
        name: _read_number(settings.get(limit.key, limit.default), limit, f"{path}.{limit.key}")
        for name, limit in LIMITS.items()
    }
    return ToolSearchConfig(
        enabled=_read_switch(settings.get("enabled", True), f"{path}.enabled"),
        mode=_read_mode(settings.get("mode", "code"), f"{path}.mode"),
        **numbers,
    )


def _read_switch(value: object, path: str) -> bool:
    if not isinstance(value, bool):
        raise _refused(path, value, "true and false")
    return value


def _read_mode(value: object, path: str) -> Mode:
    if value not in MODES:
        raise _refused(path, value, '"code" and "tools"')
    return value


def _read_number(value: object, limit: NumberLimit, path: str) -> int:
    # A boolean is an int to Python; 500.0 is how some writers of JSON spell 500.
    if isinstance(value, float) and value.is_integer():
        return limit.clamp(int(value))
    if not isinstance(value, int) or isinstance(value, bool):
        raise _refused(path, value, f"whole numbers from {limit.least} to {limit.most}")
    return limit.clamp(value)


def _refused(path: str, value: object, allowed: str) -> ConfigError:
    return ConfigError(path, f"is {shown(value)}; allowed: {allowed}")
