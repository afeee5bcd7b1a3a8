"""The `tools.codeMode` contract: defaults, clamps, boolean shorthand."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal, TypeVar, cast, get_args

from nacre.config.documents import shown
from nacre.config.nearest_keys import unknown_key
from nacre.errors import ConfigError

Language = Literal["javascript", "typescript"]
Runtime = Literal["quickjs-wasi"]
Mode = Literal["only"]

LANGUAGES: Final[tuple[Language, ...]] = get_args(Language)

_Text = TypeVar("_Text", bound=str)


@dataclass(frozen=True, kw_only=True, slots=True)
class NumberLimit:
    """A numeric setting: its key in the config file, its default, and what it is clamped to."""

    key: str
    default: int
    least: int
    most: int

    def clamp(self, number: int) -> int:
        return max(self.least, min(number, self.most))


def _number(key: str, default: int, least: int, most: int) -> NumberLimit:
    return NumberLimit(key=key, default=default, least=least, most=most)


LIMITS: Final[Mapping[str, NumberLimit]] = MappingProxyType(
    {
        "timeout_ms": _number("timeoutMs", 10_000, 100, 60_000),
        "memory_limit_bytes": _number("memoryLimitBytes", 67_108_864, 1_048_576, 1_073_741_824),
        "max_output_bytes": _number("maxOutputBytes", 65_536, 1_024, 10_485_760),
        "max_snapshot_bytes": _number("maxSnapshotBytes", 10_485_760, 1_024, 268_435_456),
        "max_pending_tool_calls": _number("maxPendingToolCalls", 16, 1, 128),
        "snapshot_ttl_seconds": _number("snapshotTtlSeconds", 900, 1, 86_400),
        # Clamped to `maxSearchLimit` as well.
        "search_default_limit": _number("searchDefaultLimit", 8, 1, 50),
        "max_search_limit": _number("maxSearchLimit", 50, 1, 50),
        # How much of the `exec` description may list callable names; ours, not the original's.
        "name_index_bytes": _number("nameIndexBytes", 1_800, 0, 65_536),
    }
)
"""The numeric fields of `CodeModeConfig` by name: the one place where these numbers stand."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CodeModeConfig:
    """The settings under `tools.codeMode`, complete and within their limits.

    A number out of range is clamped; raises ConfigError, by field, for what is not allowed.
    """

    enabled: bool = False
    runtime: Runtime = "quickjs-wasi"
    mode: Mode = "only"
    languages: tuple[Language, ...] = LANGUAGES
    timeout_ms: int = LIMITS["timeout_ms"].default
    memory_limit_bytes: int = LIMITS["memory_limit_bytes"].default
    max_output_bytes: int = LIMITS["max_output_bytes"].default
    max_snapshot_bytes: int = LIMITS["max_snapshot_bytes"].default
    max_pending_tool_calls: int = LIMITS["max_pending_tool_calls"].default
    snapshot_ttl_seconds: int = LIMITS["snapshot_ttl_seconds"].default
    search_default_limit: int = LIMITS["search_default_limit"].default
    max_search_limit: int = LIMITS["max_search_limit"].default
    name_index_bytes: int = LIMITS["name_index_bytes"].default

    def __post_init__(self) -> None:
        _read_switch(self.enabled, "enabled")
        _read_only_value(self.runtime, "quickjs-wasi", "runtime")
        _read_only_value(self.mode, "only", "mode")
        self._set("languages", _read_languages(self.languages, "languages"))
        for name, limit in LIMITS.items():
            self._set(name, _read_number(getattr(self, name), limit, name))
        self._set("search_default_limit", min(self.search_default_limit, self.max_search_limit))

    def _set(self, name: str, value: object) -> None:
        # Frozen, so this is how.
        object.__setattr__(self, name, value)


FIELDS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "enabled": "enabled",
        "runtime": "runtime",
        "mode": "mode",
        "languages": "languages",
        **{limit.key: name for name, limit in LIMITS.items()},
    }
)
"""Every key that the config file may hold, and the field of `CodeModeConfig` that it sets."""


def code_mode_config_from(value: object, *, path: str = "tools.codeMode") -> CodeModeConfig:
    """Read what the config file has under `path`: nothing, a boolean or an object.

    A number out of range is clamped; raises ConfigError for a wrong type or an unknown key.
    """
    if value is None:
        return CodeModeConfig()
    if isinstance(value, bool):
        return CodeModeConfig(enabled=value)
    if not isinstance(value, Mapping):
        raise _refused(path, value, "true, false and an object")
    settings = cast("Mapping[object, object]", value)
    for key in settings:
        if key not in FIELDS:
            raise unknown_key(path, key, FIELDS)
    numbers = {
        name: _read_number(settings.get(limit.key, limit.default), limit, f"{path}.{limit.key}")
        for name, limit in LIMITS.items()
    }
    return CodeModeConfig(
        enabled=_read_switch(settings.get("enabled", False), f"{path}.enabled"),
        runtime=_read_only_value(
            settings.get("runtime", "quickjs-wasi"), "quickjs-wasi", f"{path}.runtime"
        ),
        mode=_read_only_value(settings.get("mode", "only"), "only", f"{path}.mode"),
        languages=_read_languages(settings.get("languages", LANGUAGES), f"{path}.languages"),
        **numbers,
    )


def _read_switch(value: object, path: str) -> bool:
    if not isinstance(value, bool):
        raise _refused(path, value, "true and false")
    return value


def _read_only_value(value: object, allowed: _Text, path: str) -> _Text:
    if value != allowed:
        raise _refused(path, value, f"only {json.dumps(allowed)}")
    return allowed


def _read_languages(value: object, path: str) -> tuple[Language, ...]:
    allowed = 'a list of "javascript", "typescript" or both'
    items = cast("list[object]", value if isinstance(value, (list, tuple)) else [])
    if not items:
        raise _refused(path, cast("object", value), allowed)
    chosen: list[Language] = []
    for index, item in enumerate(items):
        if item not in LANGUAGES:
            raise _refused(f"{path}[{index}]", item, '"javascript" and "typescript"')
        chosen.append(item)
    return tuple(dict.fromkeys(chosen))


def _read_number(value: object, limit: NumberLimit, path: str) -> int:
    # A boolean is an int to Python; 500.0 is how some writers of JSON spell 500.
    if isinstance(value, float) and value.is_integer():
        return limit.clamp(int(value))
    if not isinstance(value, int) or isinstance(value, bool):
        raise _refused(path, value, f"whole numbers from {limit.least} to {limit.most}")
    return limit.clamp(value)


def _refused(path: str, value: object, allowed: str) -> ConfigError:
    return ConfigError(path, f"is {shown(value)}; allowed: {allowed}")
