"""An object of a config document, read member by member; errors name the path, never a value."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeGuard, cast

from nacre.errors import ConfigError, MisplacedValueError

if TYPE_CHECKING:
    from collections.abc import Iterable

_PLAIN_KEY = re.compile(r"[A-Za-z_$][\w$-]*", re.ASCII)


class Fields:
    """Reads by key. A member that is null is one that is not there."""

    def __init__(self, value: object, path: str) -> None:
        self.members = object_without_showing(value, path)
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

    def one_of(self, *keys: str) -> str:
        """Which of the keys, that all mean the same, is used; the first if none is."""
        used = [key for key in keys if self.has(key)]
        if len(used) > 1:
            raise ConfigError(self.path, f"has both `{used[0]}` and `{used[1]}`; write one of them")
        return used[0] if used else keys[0]

    def text(self, key: str) -> str:
        """The text; empty where there is none."""
        value = self.get(key)
        return "" if value is None else _as_text(value, self.path_of(key))

    def texts(self, key: str) -> tuple[str, ...] | None:
        value = self.get(key)
        if value is None:
            return None
        if not isinstance(value, (list, tuple)):
            raise refused(self.path_of(key), value, "a list of texts")
        items = cast("list[object]", value)
        return tuple(
            _as_text(item, f"{self.path_of(key)}[{index}]") for index, item in enumerate(items)
        )

    def text_map(self, key: str) -> dict[str, str]:
        """Texts by name; a number counts as its text, as it does in VS Code."""
        path = self.path_of(key)
        members = object_without_showing(self.get(key), path)
        return {
            name: _as_text(_number_as_text(value), member_path(path, name))
            for name, value in members.items()
            if value is not None
        }

    def switch(self, key: str) -> bool | None:
        value = self.get(key)
        if value is None or isinstance(value, bool):
            return value
        raise refused(self.path_of(key), value, "true and false")

    def number(self, key: str, *, default: float, least: float, most: float) -> float:
        value = self.get(key)
        if value is None:
            return default
        allowed = f"numbers from {least:g} to {most:g}"
        if not isinstance(value, (int, float)) or isinstance(value, bool):
            raise refused(self.path_of(key), value, allowed)
        # So written because NaN is neither less nor more than anything.
        if not least <= value <= most:
            raise ConfigError(self.path_of(key), f"is {value}; allowed: {allowed}")
        return value


def object_without_showing(value: object, path: str) -> Mapping[str, object]:
    """What stands at `path`, empty where nothing does; raises ConfigError for anything else."""
    if value is None:
        return {}
    if not is_object(value):
        raise misplaced(path, value, "an object")
    return value


def is_object(value: object) -> TypeGuard[Mapping[str, object]]:
    """Whether a value is an object as JSON has them."""
    if not isinstance(value, Mapping):
        return False
    return all(isinstance(key, str) for key in cast("Mapping[object, object]", value))


def refused(path: str, value: object, allowed: str) -> ConfigError:
    return ConfigError(path, _refusal(value, allowed))


def misplaced(path: str, value: object, allowed: str) -> MisplacedValueError:
    """For a value where only an object, or a list of them, can stand."""
    return MisplacedValueError(path, _refusal(value, allowed), place=path)


def _refusal(value: object, allowed: str) -> str:
    return f"is {kind_of(value)}; allowed: {allowed}"


def kind_of(value: object) -> str:
    """What a value is, for a message that must not show it."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case int() | float():
            return "a number"
        case str():
            return "a text" if value else "an empty text"
        case list() | tuple():
            return "a list"
        case Mapping():
            return "an object"
        case _:
            return f"of type {type(value).__name__}"


def member_path(path: str, key: str) -> str:
    """`a.b`, or `a["odd key"]`."""
    if _PLAIN_KEY.fullmatch(key):
        return f"{path}.{key}" if path else key
    return f"{path}[{json.dumps(key)}]"


def _number_as_text(value: object) -> object:
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return value
    return json.dumps(value)


def _as_text(value: object, path: str) -> str:
    if not isinstance(value, str):
        raise refused(path, value, "text")
    return value
