"""Local references in a JSON Schema: their targets, and how often each is used."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Final, cast
from urllib.parse import unquote

if TYPE_CHECKING:
    from collections.abc import Iterable

_MAX_REFERENCE_CHARACTERS: Final = 1_000
_MAX_PARTS: Final = 20_000
_INDEX = re.compile(r"0|[1-9][0-9]{0,8}")


def as_list(value: object) -> list[object]:
    """The items of an array; an empty list for other values."""
    return list(cast("Iterable[object]", value)) if isinstance(value, (list, tuple)) else []


def as_dict(value: object) -> dict[str, object]:
    """The object; an empty dict for other values."""
    return cast("dict[str, object]", value) if isinstance(value, dict) else {}


def target_of(root: object, reference: str) -> object:
    """The target of a local reference; None if it does not exist or is not local."""
    pointer = reference.removeprefix("#")
    is_local = reference.startswith("#") and (not pointer or pointer.startswith("/"))
    if not is_local or len(reference) > _MAX_REFERENCE_CHARACTERS:
        return None
    found = root
    for step in pointer.split("/")[1:]:
        key = unquote(step).replace("~1", "/").replace("~0", "~")
        if isinstance(found, dict):
            found = as_dict(cast("object", found)).get(key)
        elif isinstance(found, list) and _INDEX.fullmatch(key):
            items = cast("list[object]", found)
            found = items[int(key)] if int(key) < len(items) else None
        else:
            return None
    return found


def count_references(root: object) -> Counter[str]:
    """How often the schema uses each reference; only its first parts are counted."""
    uses: Counter[str] = Counter()
    todo, visited = [root], 0
    while todo and visited < _MAX_PARTS:
        part = todo.pop()
        visited += 1
        if isinstance(part, dict):
            node = as_dict(cast("object", part))
            reference = node.get("$ref")
            if isinstance(reference, str):
                uses[reference] += 1
            todo.extend(node.values())
        elif isinstance(part, (list, tuple)):
            todo.extend(as_list(cast("object", part)))
    return uses
