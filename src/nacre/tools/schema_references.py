"""References inside one JSON Schema: where they lead, and how often each is made."""

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


def listed(value: object) -> list[object]:
    """The items of an array; none of anything else."""
    return list(cast("Iterable[object]", value)) if isinstance(value, (list, tuple)) else []


def mapped(value: object) -> dict[str, object]:
    """The members of an object; none of anything else."""
    return cast("dict[str, object]", value) if isinstance(value, dict) else {}


def target_of(root: object, reference: str) -> object:
    """The schema that a local reference names; None when there is none, or it is elsewhere."""
    pointer = reference.removeprefix("#")
    is_local = reference.startswith("#") and (not pointer or pointer.startswith("/"))
    if not is_local or len(reference) > _MAX_REFERENCE_CHARACTERS:
        return None
    found = root
    for step in pointer.split("/")[1:]:
        key = unquote(step).replace("~1", "/").replace("~0", "~")
        if isinstance(found, dict):
            found = mapped(cast("object", found)).get(key)
        elif isinstance(found, list) and _INDEX.fullmatch(key):
            items = cast("list[object]", found)
            found = items[int(key)] if int(key) < len(items) else None
        else:
            return None
    return found


def count_references(root: object) -> Counter[str]:
    """How often each reference is made anywhere in the schema, as far as a bounded look goes."""
    uses: Counter[str] = Counter()
    todo, looks = [root], 0
    while todo and looks < _MAX_PARTS:
        part = todo.pop()
        looks += 1
        if isinstance(part, dict):
            node = mapped(cast("object", part))
            reference = node.get("$ref")
            if isinstance(reference, str):
                uses[reference] += 1
            todo.extend(node.values())
        elif isinstance(part, (list, tuple)):
            todo.extend(listed(cast("object", part)))
    return uses
