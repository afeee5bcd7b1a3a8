"""Reads objects of foreign files member by member; errors name the path, never a value."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, cast

from nacre.config.setting_paths import describe_kind, member_path, object_at
from nacre.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable


class Fields:
    """Reads by key. A null member counts as missing."""

    def __init__(self, value: object, path: str) -> None:
        self.members = object_at(value, path)
        self.path = path

    def path_of(self, key: str) -> str:
        return member_path(self.path, key)

    def has(self, key: str) -> bool:
        return self.members.get(key) is not None

    def get(self, key: str) -> object:
        return self.members.get(key)

    def others(self, known: Iterable[str]) -> list[str]:
        """The keys of the object that are not known, in their order."""
        return [key for key in self.members if key not in frozenset(known)]

    def text(self, key: str) -> str:
        """The text; empty if it is missing."""
        value = self.get(key)
        return "" if value is None else _as_text(value, self.path_of(key))

    def texts(self, key: str) -> tuple[str, ...] | None:
        value = self.get(key)
        if value is None:
            return None
        if not isinstance(value, (list, tuple)):
            raise reject_value(self.path_of(key), value, "a list of texts")
        items = cast("list[object]", value)
        return tuple(
            _as_text(item, f"{self.path_of(key)}[{index}]") for index, item in enumerate(items)
        )

    def text_map(self, key: str) -> dict[str, str]:
        """Texts by name; a number becomes text, as in VS Code."""
        path = self.path_of(key)
        members = object_at(self.get(key), path)
        return {
            name: _as_text(_number_as_text(value), member_path(path, name))
            for name, value in members.items()
            if value is not None
        }

    def switch(self, key: str) -> bool | None:
        value = self.get(key)
        if value is None or isinstance(value, bool):
            return value
        raise reject_value(self.path_of(key), value, "true and false")

    def number(self, key: str, *, default: float, least: float, most: float) -> float:
        value = self.get(key)
        if value is None:
            return default
        allowed = f"numbers from {least:g} to {most:g}"
        if not isinstance(value, (int, float)) or isinstance(value, bool):
            raise reject_value(self.path_of(key), value, allowed)
        # NaN fails this comparison; two comparisons with `or` would accept it.
        if not least <= value <= most:
            raise ConfigError(self.path_of(key), f"is {value}; allowed: {allowed}")
        return value


def reject_value(path: str, value: object, allowed: str) -> ConfigError:
    return ConfigError(path, f"is {describe_kind(value)}; allowed: {allowed}")


def _number_as_text(value: object) -> object:
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return value
    return json.dumps(value)


def _as_text(value: object, path: str) -> str:
    if not isinstance(value, str):
        raise reject_value(path, value, "text")
    return value
