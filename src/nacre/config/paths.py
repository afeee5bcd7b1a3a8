"""The path of a setting as people write it: `agents.list[0].tools`, `a["odd key"].b`."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Final, cast

from nacre.config.fields import is_object, member_path
from nacre.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

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
