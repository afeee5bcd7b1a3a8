"""What the contracts of `tools.*` read alike: boolean shorthand, switches, clamped numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from nacre.config.documents import shown
from nacre.config.fields import misplaced
from nacre.config.setting_paths import unknown_key
from nacre.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Collection


@dataclass(frozen=True, kw_only=True, slots=True)
class NumberLimit:
    """A numeric setting: its key in the config file, its default, and what it is clamped to."""

    key: str
    default: int
    least: int
    most: int

    def clamp(self, number: int) -> int:
        return max(self.least, min(number, self.most))


def read_settings(
    value: object, *, keys: Collection[str], path: str
) -> bool | Mapping[object, object]:
    """What the config file has under `path`: a boolean, which nothing stands for as well, or an
    object; raises ConfigError for a wrong type or an unknown key."""
    if value is None or isinstance(value, bool):
        return bool(value)
    if not isinstance(value, Mapping):
        raise misplaced(path, value, "true, false and an object")
    settings = cast("Mapping[object, object]", value)
    for key in settings:
        if key not in keys:
            raise unknown_key(path, key, keys)
    return settings


def read_switch(value: object, path: str) -> bool:
    if not isinstance(value, bool):
        raise refused(path, value, "true and false")
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
        # Frozen, so this is how.
        object.__setattr__(config, name, _read_number(getattr(config, name), limit, name))


def refused(path: str, value: object, allowed: str) -> ConfigError:
    """The error for a value that is not allowed; shows it."""
    return ConfigError(path, f"is {shown(value)}; allowed: {allowed}")


def _read_number(value: object, limit: NumberLimit, path: str) -> int:
    # A boolean is an int to Python; 500.0 is how some writers of JSON spell 500.
    if isinstance(value, float) and value.is_integer():
        return limit.clamp(int(value))
    if not isinstance(value, int) or isinstance(value, bool):
        raise refused(path, value, f"whole numbers from {limit.least} to {limit.most}")
    return limit.clamp(value)
