"""JavaScript names for MCP servers and their tools: `create_issue` is called `createIssue`."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections import Counter
from typing import TYPE_CHECKING, Final

from nacre.tools.javascript_names import OBJECT_MEMBERS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence, Set

# What a server offers besides its tools, and what every object has. Names such as `$api`, `$search`
# and `__proto__` cannot come about: `$` and `_` part words.
_RESERVED: Final = OBJECT_MEMBERS | {"resources", "prompts"}
_HASH_CHARACTERS: Final = 6

# The capitals at the start, but not the last of several if it begins a word: `HTML` of `HTMLPage`.
_FIRST_CAPITALS: Final = re.compile(r"\A(?:[A-Z]+(?![a-z])|[A-Z])")


def guest_names(names: Sequence[str], *, taken: Iterable[str] = ()) -> dict[str, str]:
    """An identifier for every name, each different; the same for equal sets of names.

    Names that would get the same identifier get one each with a hash of the name behind it, except
    one that is the identifier already. So whatever else comes and goes, no identifier passes from
    one tool to another unless that is its very name.
    """
    reserved = _RESERVED.union(taken)
    wanted = {name: _free(_camel_case(name), reserved) for name in names}
    claims = Counter(wanted.values())
    found = {
        name: identifier
        for name, identifier in wanted.items()
        if identifier and (claims[identifier] == 1 or identifier == name)
    }
    given = {*reserved, *found.values()}
    for name in sorted(wanted.keys() - found.keys()):
        found[name] = _free(f"{wanted[name]}_{_hash(name)}", given)
        given.add(found[name])
    return {name: found[name] for name in wanted}


def possible_guest_names(name: str) -> tuple[str, str]:
    """The identifiers that a name may get, alone and beside others that would get the same."""
    identifier = _free(_camel_case(name), _RESERVED)
    return identifier, f"{identifier}_{_hash(name)}"


def _free(identifier: str, reserved: Set[str]) -> str:
    while identifier in reserved:
        identifier += "_"
    return identifier


def _hash(name: str) -> str:
    return hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:_HASH_CHARACTERS]


def _camel_case(name: str) -> str:
    """The words of a name as one identifier; empty when it has none."""
    # Programs are written with composed characters; engines compare code points.
    composed = unicodedata.normalize("NFC", name)
    words = "".join(
        character if _is_part_of_word(character) else " " for character in composed
    ).split(" ")
    identifier = ""
    for word in filter(None, words):
        identifier += _next_word(word, identifier)
    identifier = unicodedata.normalize("NFC", identifier)
    return identifier if not identifier or identifier.isidentifier() else f"_{identifier}"


def _next_word(word: str, before: str) -> str:
    if not before:
        return _FIRST_CAPITALS.sub(lambda capitals: capitals.group().lower(), word)
    if before[-1].isdigit() and word[0].isdigit():
        # `v1_2` is not `v12`.
        return f"_{word}"
    # `GET_ISSUE` reads as `getIssue`.
    return word[0].upper() + (word[1:].lower() if word.isupper() else word[1:])


def _is_part_of_word(character: str) -> bool:
    return character != "_" and f"_{character}".isidentifier()
