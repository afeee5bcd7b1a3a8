"""JavaScript identifiers for tools."""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from nacre.tools.definition import Tool


HELPER_NAMES: Final = frozenset({"search", "describe", "call"})
"""What `tools` offers itself; no tool takes these places."""

OBJECT_MEMBERS: Final = frozenset(
    {
        "then",
        "toJSON",
        "constructor",
        "prototype",
        "hasOwnProperty",
        "isPrototypeOf",
        "propertyIsEnumerable",
        "toLocaleString",
        "toString",
        "valueOf",
    }
)
"""Awaiting an object reads `then`, printing one reads `toJSON`, and programs use the members of
`Object.prototype` without a thought of tools."""

_TAKEN_NAMES: Final = HELPER_NAMES | OBJECT_MEMBERS
_NAMES_KEPT: Final = 20_000
_PLAIN_NAME: Final = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*")


# The tools of one catalog are mostly those of the next.
@lru_cache(maxsize=_NAMES_KEPT)
def safe_name(tool_name: str) -> str | None:
    """A JavaScript identifier made from the name; None when it may not be a member of `tools`.

    Reserved words are fine: after a dot, `tools.delete(input)`, every word is.
    """
    name = tool_name if _PLAIN_NAME.fullmatch(tool_name) else _identifier(tool_name)
    # `__proto__`, `__defineGetter__`, and whatever else engines keep there.
    return None if name in _TAKEN_NAMES or name.startswith("__") else name


def convenience_names(tools: Iterable[Tool]) -> dict[str, str]:
    """Tool ids by safe name; a name that two tools would have is left out for both."""
    ids: dict[str, str] = {}
    ambiguous: set[str] = set()
    for tool in tools:
        name = safe_name(tool.name)
        if name is not None and ids.setdefault(name, tool.id) != tool.id:
            ambiguous.add(name)
    for name in ambiguous:
        del ids[name]
    return ids


def _identifier(name: str) -> str:
    # Programs are written with composed characters; engines compare code points.
    composed = unicodedata.normalize("NFC", name)
    safe = "".join(character if _may_follow(character) else "_" for character in composed)
    return safe if _may_start(safe[:1]) else f"_{safe}"


def _may_start(character: str) -> bool:
    return character == "$" or character.isidentifier()


def _may_follow(character: str) -> bool:
    return character == "$" or f"_{character}".isidentifier()
