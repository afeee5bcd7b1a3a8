"""The settings of code mode: defaults, ranges, boolean shorthand."""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Literal, TypeVar, cast, get_args

from nacre.config.setting_paths import format_value, reject_misplaced, unknown_key
from nacre.errors import ConfigError
from nacre.lazy_dataclasses import dataclass

if TYPE_CHECKING:
    from collections.abc import Collection

Language = Literal["javascript", "typescript"]
Runtime = Literal["quickjs-wasi"]
Mode = Literal["only"]

LANGUAGES: Final[tuple[Language, ...]] = get_args(Language)

Protection = Literal[
    "parent_death_signal",
    "surroundings_cleared",
    "descriptors_closed",
    "single_thread",
    "executable_memory_sealed",
    "no_new_executable_memory",
    "capabilities_dropped",
    "no_new_privileges",
    "not_dumpable",
    "landlock",
    "resource_limits",
    "seccomp",
]
"""A protection of the processes that run programs."""
PROTECTIONS: Final[tuple[Protection, ...]] = get_args(Protection)

MAX_SUSPENDED_CELLS: Final = 64
"""How many cells of a runtime may be suspended at once, by default."""
MAX_SUSPENDED_LIMIT: Final = 100_000

_Text = TypeVar("_Text", bound=str)


@dataclass(frozen=True, kw_only=True, slots=True)
class NumberLimit:
    """A numeric setting: its key in the config file, its default, and its range."""

    key: str
    default: int
    least: int
    most: int
    description: str

    def clamp(self, number: int) -> int:
        """The number, or the nearest one that is allowed."""
        return max(self.least, min(number, self.most))


def read_settings(
    value: object, *, keys: Collection[str], path: str
) -> bool | Mapping[object, object]:
    """Read the value at `path`: a boolean (false for None), or an object.

    Raises ConfigError for a wrong type or an unknown key.
    """
    if value is None or isinstance(value, bool):
        return bool(value)
    if not isinstance(value, Mapping):
        raise reject_misplaced(path, value, "true, false and an object")
    settings = cast("Mapping[object, object]", value)
    for key in settings:
        if key not in keys:
            raise unknown_key(path, key, keys)
    return settings


def read_switch(value: object, path: str) -> bool:
    if not isinstance(value, bool):
        raise refuse_value(path, value, "true and false")
    return value


def read_numbers(
    settings: Mapping[object, object], limits: Mapping[str, NumberLimit], *, path: str
) -> dict[str, int]:
    """The numeric settings by the name of their field, clamped; defaults for those not there."""
    return {
        name: _read_number(settings.get(limit.key, limit.default), limit, f"{path}.{limit.key}")
        for name, limit in limits.items()
    }


def clamp_fields(config: object, limits: Mapping[str, NumberLimit]) -> None:
    """Check and clamp the numeric fields of a configuration that is being made."""
    for name, limit in limits.items():
        # A frozen dataclass needs `object.__setattr__`.
        object.__setattr__(config, name, _read_number(getattr(config, name), limit, name))


def refuse_value(path: str, value: object, allowed: str) -> ConfigError:
    """The error for a value that is not allowed; shows it."""
    return ConfigError(path, f"is {format_value(value)}; allowed: {allowed}")


def _read_number(value: object, limit: NumberLimit, path: str) -> int:
    # In Python a boolean is an int. Some programs write 500 as 500.0.
    if isinstance(value, float) and value.is_integer():
        return limit.clamp(int(value))
    if not isinstance(value, int) or isinstance(value, bool):
        raise refuse_value(path, value, f"whole numbers from {limit.least} to {limit.most}")
    return limit.clamp(value)


LIMITS: Final[Mapping[str, NumberLimit]] = MappingProxyType(
    {
        "timeout_ms": NumberLimit(
            key="timeoutMs",
            default=10_000,
            least=100,
            most=60_000,
            description="Time limit of one leg (`exec` or `wait`).",
        ),
        "memory_limit_bytes": NumberLimit(
            key="memoryLimitBytes",
            default=67_108_864,
            least=1_048_576,
            most=1_073_741_824,
            description="Memory that a program can allocate.",
        ),
        "max_output_bytes": NumberLimit(
            key="maxOutputBytes",
            default=65_536,
            least=1_024,
            most=10_485_760,
            description="Output and value of a program together.",
        ),
        "max_snapshot_bytes": NumberLimit(
            key="maxSnapshotBytes",
            default=10_485_760,
            least=1_024,
            most=268_435_456,
            description="Size of a suspended VM, compressed.",
        ),
        "max_pending_tool_calls": NumberLimit(
            key="maxPendingToolCalls",
            default=16,
            least=1,
            most=128,
            description="Calls that run at once; further calls are queued.",
        ),
        "snapshot_ttl_seconds": NumberLimit(
            key="snapshotTtlSeconds",
            default=900,
            least=1,
            most=86_400,
            description="How long a suspended cell waits for `wait`.",
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
            default=50,
            least=1,
            most=50,
            description="Maximum number of results of a search.",
        ),
        # Not a setting of OpenClaw.
        "name_index_bytes": NumberLimit(
            key="nameIndexBytes",
            default=1_800,
            least=0,
            most=65_536,
            description="Bytes of tool names in the description of `exec`.",
        ),
    }
)
"""The numeric fields of `CodeModeConfig` by name: the only place where these numbers are."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CodeModeConfig:
    """The settings under `tools.codeMode`, complete and within their limits.

    A number out of range is clamped; raises ConfigError, by field, for other invalid values.
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
    # Not a setting of OpenClaw.
    durable: bool = False

    def __post_init__(self) -> None:
        read_switch(self.enabled, "enabled")
        read_switch(self.durable, "durable")
        _read_only_value(self.runtime, "quickjs-wasi", "runtime")
        _read_only_value(self.mode, "only", "mode")
        self._set("languages", _read_languages(self.languages, "languages"))
        clamp_fields(self, LIMITS)
        self._set("search_default_limit", min(self.search_default_limit, self.max_search_limit))

    def _set(self, name: str, value: object) -> None:
        # A frozen dataclass needs `object.__setattr__`.
        object.__setattr__(self, name, value)


FIELDS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "enabled": "enabled",
        "runtime": "runtime",
        "mode": "mode",
        "languages": "languages",
        **{limit.key: name for name, limit in LIMITS.items()},
        "durable": "durable",
    }
)
"""Every key that the config file may hold, and the field of `CodeModeConfig` that it sets."""


def code_mode_config_from(value: object, *, path: str = "tools.codeMode") -> CodeModeConfig:
    """Read the value at `path` of the config file: None, a boolean or an object.

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
        durable=read_switch(settings.get("durable", False), f"{path}.durable"),
        **numbers,
    )


def required_protections_from(document: Mapping[str, object]) -> tuple[Protection, ...] | None:
    """Read `sandbox.require` of a config document; None if it is not set. Raises ConfigError."""
    section = document.get("sandbox")
    if section is None:
        return None
    settings = read_settings(
        section,
        keys=("executor", "ray", "require", "snapshotKeys", "maxSuspendedCells"),
        path="sandbox",
    )
    if isinstance(settings, bool):
        raise reject_misplaced("sandbox", section, "an object")
    value = settings.get("require")
    if value is None:
        return None
    items = cast("list[object]", value) if isinstance(value, list) else [None]
    if not all(item in PROTECTIONS for item in items):
        allowed = f"a list of {', '.join(PROTECTIONS)}"
        raise refuse_value("sandbox.require", cast("object", value), allowed)
    return tuple(cast("list[Protection]", items))


def _read_only_value(value: object, allowed: _Text, path: str) -> _Text:
    if value != allowed:
        raise refuse_value(path, value, f"only {json.dumps(allowed)}")
    return allowed


def _read_languages(value: object, path: str) -> tuple[Language, ...]:
    allowed = 'a list of "javascript", "typescript" or both'
    items = cast("list[object]", value if isinstance(value, (list, tuple)) else [])
    if not items:
        raise refuse_value(path, cast("object", value), allowed)
    chosen: list[Language] = []
    for index, item in enumerate(items):
        if item not in LANGUAGES:
            raise refuse_value(f"{path}[{index}]", item, '"javascript" and "typescript"')
        chosen.append(item)
    return tuple(dict.fromkeys(chosen))
