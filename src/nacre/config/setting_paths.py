"""Paths such as `agents.list[0].tools`, values in errors, and objects read member by member."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, TypeAlias, TypeGuard, cast

from nacre.errors import ConfigError, MisplacedValueError
from nacre.lazy_exports import lazy_pattern

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Key: TypeAlias = str | int
"""The key of a member of an object, or the index of an item of a list."""

MISSING: Final = object()
"""The value of a member that does not exist; null is a value."""

_PLAIN_KEY = lazy_pattern(r"[A-Za-z_$][\w$-]*", re.ASCII)
_STEP = lazy_pattern(
    r"""\.(?P<name>[^.\[\]"]+)|\[(?P<place>\d{1,9})\]|\[(?P<text>"(?:[^"\\]|\\.)*")\]"""
)
_HOW: Final = 'write it like gateway.port, agents.list[0].model or models.providers["my.own"]'


def keys_from(path: str) -> tuple[Key, ...]:
    """The keys of a path. Raises ConfigError if it is invalid."""
    text = path if path.startswith("[") else f".{path}"
    keys: list[Key] = []
    place = 0
    while place < len(text):
        step = _STEP.match(text, place)
        if step is None:
            raise ConfigError(path, f"is not the path of a setting; {_HOW}")
        keys.append(_parse_step(step, path))
        place = step.end()
    return tuple(keys)


def path_from_keys(keys: Sequence[Key]) -> str:
    """The path of these keys."""
    path = ""
    for key in keys:
        path = f"{path}[{key}]" if isinstance(key, int) else member_path(path, key)
    return path


def value_at(document: object, keys: Sequence[Key]) -> object:
    """The value at these keys, or MISSING."""
    here = document
    for key in keys:
        if isinstance(key, str):
            here = here.get(key, MISSING) if is_object(here) else MISSING
        elif isinstance(here, list):
            items = cast("list[object]", here)
            here = items[key] if key < len(items) else MISSING
        else:
            here = MISSING
    return here


def _parse_step(step: re.Match[str], path: str) -> Key:
    if step["place"] is not None:
        return int(step["place"])
    if step["name"] is not None:
        return step["name"]
    try:
        return str(json.loads(step["text"]))
    except ValueError:
        raise ConfigError(path, f"is not the path of a setting; {_HOW}") from None


# An address with a password may be in any setting by mistake.
_USER_IN_URL = lazy_pattern(r"://[^\s\"]{1,2048}@")
_MAX_SHOWN: Final = 60


def format_value(value: object) -> str:
    """A value in a message: its JSON, truncated, without the user of a URL."""
    try:
        text = _USER_IN_URL.sub("://***@", json.dumps(value, ensure_ascii=False))
    except (TypeError, ValueError, RecursionError):
        text = f"of type {type(value).__name__}"
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}…"


def object_at(value: object, path: str) -> Mapping[str, object]:
    """The object at `path`, empty for null; raises ConfigError for anything else."""
    if value is None:
        return {}
    if not is_object(value):
        raise reject_misplaced(path, value, "an object")
    return value


def is_object(value: object) -> TypeGuard[Mapping[str, object]]:
    """Whether a value is a JSON object."""
    if not isinstance(value, Mapping):
        return False
    return all(isinstance(key, str) for key in cast("Mapping[object, object]", value))


def reject_misplaced(path: str, value: object, allowed: str) -> MisplacedValueError:
    """The error for a value in the place of an object or a list of objects."""
    return MisplacedValueError(path, _refusal(value, allowed), place=path)


def _refusal(value: object, allowed: str) -> str:
    return f"is {describe_kind(value)}; allowed: {allowed}"


def describe_kind(value: object) -> str:
    """The kind of a value, for a message that must not show it."""
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


# The default of `difflib`.
_MIN_SIMILARITY: Final = 0.6
_MAX_CHARACTERS: Final = 100


def nearest_key(
    key: str, known: Iterable[str], *, least_similarity: float = _MIN_SIMILARITY
) -> str | None:
    """The most similar known key, ignoring case; None if there is none."""
    # Imported here, because only errors need it.
    from difflib import get_close_matches

    by_lower_case = {name.lower(): name for name in known}
    near = get_close_matches(
        key[:_MAX_CHARACTERS].lower(), by_lower_case, n=1, cutoff=least_similarity
    )
    return by_lower_case[near[0]] if near else None


def unknown_key(path: str, key: object, known: Iterable[str]) -> MisplacedValueError:
    """The error for a key of the object at `path`; an empty path is the document itself."""
    names = tuple(known)
    near = nearest_key(str(key), names)
    hint = f"did you mean `{near}`?" if near else f"known: {', '.join(names)}"
    place = member_path(path, str(key))
    if not path:
        problem = f"is not a section of a configuration; {hint}"
        return MisplacedValueError(str(key)[:_MAX_CHARACTERS], problem, place=place)
    return MisplacedValueError(
        path, f"has the unknown key {format_value(key)}; {hint}", place=place
    )


class Fields:
    """Reads an object of a foreign file by key; errors name the path, never a value.

    A null member counts as missing.
    """

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
