"""Paths of settings such as `agents.list[0].tools`, and errors for unknown keys."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Final, cast

from nacre.config.documents import shown
from nacre.config.fields import is_object, member_path
from nacre.errors import ConfigError, MisplacedValueError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from nacre.config.json5 import Key


MISSING: Final = object()
"""What stands where nothing does; null may stand somewhere."""

_STEP = re.compile(
    r"""\.(?P<name>[^.\[\]"]+)|\[(?P<place>\d{1,9})\]|\[(?P<text>"(?:[^"\\]|\\.)*")\]"""
)
_HOW: Final = 'write it like gateway.port, agents.list[0].model or models.providers["my.own"]'


def keys_from(path: str) -> tuple[Key, ...]:
    """The keys on the way; raises ConfigError for what is no path."""
    text = path if path.startswith("[") else f".{path}"
    keys: list[Key] = []
    place = 0
    while place < len(text):
        step = _STEP.match(text, place)
        if step is None:
            raise ConfigError(path, f"is no path of a setting; {_HOW}")
        keys.append(_parse_step(step, path))
        place = step.end()
    return tuple(keys)


def path_from_keys(keys: Sequence[Key]) -> str:
    """The path that has these keys."""
    path = ""
    for key in keys:
        path = f"{path}[{key}]" if isinstance(key, int) else member_path(path, key)
    return path


def value_at(document: object, keys: Sequence[Key]) -> object:
    """What stands there, or MISSING."""
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
        raise ConfigError(path, f"is no path of a setting; {_HOW}") from None


# What `difflib` takes for near by itself.
_MIN_SIMILARITY: Final = 0.6
_MAX_CHARACTERS: Final = 100


def nearest_key(
    key: str, known: Iterable[str], *, least_similarity: float = _MIN_SIMILARITY
) -> str | None:
    """The known key that is most like this one, whatever the case; None if none is."""
    # Only on the way to an error, so that a sound config does not pay for the import.
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
        problem = f"is no section of a configuration; {hint}"
        return MisplacedValueError(str(key)[:_MAX_CHARACTERS], problem, place=place)
    return MisplacedValueError(path, f"has the unknown key {shown(key)}; {hint}", place=place)
