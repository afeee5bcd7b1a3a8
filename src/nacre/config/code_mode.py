"""The `tools.codeMode` contract: defaults, clamps, boolean shorthand."""

from __future__ import annotations

import json
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Literal, TypeVar, cast, get_args

from nacre.config.contract_values import (
    NumberLimit,
    clamp_fields,
    read_numbers,
    read_settings,
    read_switch,
    refused,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

Language = Literal["javascript", "typescript"]
Runtime = Literal["quickjs-wasi"]
Mode = Literal["only"]

LANGUAGES: Final[tuple[Language, ...]] = get_args(Language)

_Text = TypeVar("_Text", bound=str)


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
        read_switch(self.enabled, "enabled")
        _read_only_value(self.runtime, "quickjs-wasi", "runtime")
        _read_only_value(self.mode, "only", "mode")
        self._set("languages", _read_languages(self.languages, "languages"))
        clamp_fields(self, LIMITS)
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
    settings = read_settings(value, keys=FIELDS, path=path)
    if isinstance(settings, bool):
        return CodeModeConfig(enabled=settings)
    numbers = read_numbers(settings, LIMITS, path=path)
    return CodeModeConfig(
        enabled=read_switch(settings.get("enabled", False), f"{path}.enabled"),
        runtime=_read_only_value(
            settings.get("runtime", "quickjs-wasi"), "quickjs-wasi", f"{path}.runtime"
        ),
        mode=_read_only_value(settings.get("mode", "only"), "only", f"{path}.mode"),
        languages=_read_languages(settings.get("languages", LANGUAGES), f"{path}.languages"),
        **numbers,
    )


def _read_only_value(value: object, allowed: _Text, path: str) -> _Text:
    if value != allowed:
        raise refused(path, value, f"only {json.dumps(allowed)}")
    return allowed


def _read_languages(value: object, path: str) -> tuple[Language, ...]:
    allowed = 'a list of "javascript", "typescript" or both'
    items = cast("list[object]", value if isinstance(value, (list, tuple)) else [])
    if not items:
        raise refused(path, cast("object", value), allowed)
    chosen: list[Language] = []
    for index, item in enumerate(items):
        if item not in LANGUAGES:
            raise refused(f"{path}[{index}]", item, '"javascript" and "typescript"')
        chosen.append(item)
    return tuple(dict.fromkeys(chosen))
