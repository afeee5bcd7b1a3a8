"""Names of tools: JavaScript identifiers for programs, and suggestions for a misspelt name."""

from __future__ import annotations

import hashlib
import heapq
import re
import unicodedata
from collections import Counter
from functools import lru_cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence, Set

    from nacre.tools.definition import Tool


HELPER_NAMES: Final = frozenset({"search", "describe", "call"})
"""The helper functions of the `tools` object; no tool can have these names there."""

_OBJECT_MEMBERS: Final = frozenset(
    {
        # Read by `await` and by `JSON.stringify`.
        "then",
        "toJSON",
        # Members of `Object.prototype`.
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

_RESERVED_NAMES: Final = HELPER_NAMES | _OBJECT_MEMBERS
_MAX_CACHED_NAMES: Final = 20_000
_PLAIN_NAME: Final = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*")

# An MCP server object has `resources` and `prompts` besides its tools. Names such as `$api`,
# `$search` and `__proto__` cannot occur, because `$` and `_` separate words.
_RESERVED_GUEST_NAMES: Final = _OBJECT_MEMBERS | {"resources", "prompts"}
_HASH_CHARACTERS: Final = 6
# Leading capitals, except the last one if it begins a word: `HTML` in `HTMLPage`.
_FIRST_CAPITALS: Final = re.compile(r"\A(?:[A-Z]+(?![a-z])|[A-Z])")

_MAX_COMPARED_CHARACTERS: Final = 200
# Comparing two names letter by letter is slow; letter pairs select the names to compare.
_MAX_COMPARED_NAMES: Final = 40
_MIN_SIMILARITY: Final = 0.6
_BITS: Final = tuple(1 << bit for bit in range(256))
_SEPARATORS: Final = bytes(code for code in range(128) if not chr(code).isalnum())


# Successive catalogs contain mostly the same tools.
@lru_cache(maxsize=_MAX_CACHED_NAMES)
def safe_name(tool_name: str) -> str | None:
    """A JavaScript identifier for the tool, or None if `tools` cannot have such a member.

    Reserved words are allowed: `tools.delete(input)` is valid JavaScript.
    """
    name = tool_name if _PLAIN_NAME.fullmatch(tool_name) else _to_identifier(tool_name)
    # Engines define members such as `__proto__` and `__defineGetter__`.
    return None if name in _RESERVED_NAMES or name.startswith("__") else name


def convenience_names(tools: Iterable[Tool]) -> dict[str, str]:
    """Tool ids by safe name, without the names that two tools share."""
    ids: dict[str, str] = {}
    ambiguous: set[str] = set()
    for tool in tools:
        name = safe_name(tool.name)
        if name is not None and ids.setdefault(name, tool.id) != tool.id:
            ambiguous.add(name)
    for name in ambiguous:
        del ids[name]
    return ids


def _to_identifier(name: str) -> str:
    # Programs are written with composed characters; engines compare code points.
    composed = unicodedata.normalize("NFC", name)
    safe = "".join(character if _may_follow(character) else "_" for character in composed)
    return safe if _may_start(safe[:1]) else f"_{safe}"


def _may_start(character: str) -> bool:
    return character == "$" or character.isidentifier()


def _may_follow(character: str) -> bool:
    return character == "$" or f"_{character}".isidentifier()


def assign_guest_names(names: Sequence[str], *, taken: Iterable[str] = ()) -> dict[str, str]:
    """A unique camel-case identifier for each name of an MCP server or tool.

    The result depends only on the set of names. If several names give the same identifier, a hash
    of the name is appended, except to a name that equals the identifier. So an identifier never
    moves from one tool to another when tools are added or removed, unless it is the other's name.
    """
    reserved = _RESERVED_GUEST_NAMES.union(taken)
    candidates = {name: _avoid(reserved, _camel_case(name)) for name in names}
    counts = Counter(candidates.values())
    assigned = {
        name: identifier
        for name, identifier in candidates.items()
        if identifier and (counts[identifier] == 1 or identifier == name)
    }
    used = {*reserved, *assigned.values()}
    for name in sorted(candidates.keys() - assigned.keys()):
        assigned[name] = _avoid(used, f"{candidates[name]}_{_hash(name)}")
        used.add(assigned[name])
    return {name: assigned[name] for name in candidates}


def possible_guest_names(name: str) -> tuple[str, str]:
    """The identifiers that `assign_guest_names` may return for a name: without and with a hash."""
    identifier = _avoid(_RESERVED_GUEST_NAMES, _camel_case(name))
    return identifier, f"{identifier}_{_hash(name)}"


def _avoid(reserved: Set[str], identifier: str) -> str:
    while identifier in reserved:
        identifier += "_"
    return identifier


def _hash(name: str) -> str:
    return hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:_HASH_CHARACTERS]


def _camel_case(name: str) -> str:
    """The words of a name as one identifier; empty if it has no words."""
    composed = unicodedata.normalize("NFC", name)
    words = "".join(
        character if _is_part_of_word(character) else " " for character in composed
    ).split(" ")
    identifier = ""
    for word in filter(None, words):
        identifier += _capitalize(word, identifier)
    identifier = unicodedata.normalize("NFC", identifier)
    return identifier if not identifier or identifier.isidentifier() else f"_{identifier}"


def _capitalize(word: str, before: str) -> str:
    if not before:
        return _FIRST_CAPITALS.sub(lambda capitals: capitals.group().lower(), word)
    if before[-1].isdigit() and word[0].isdigit():
        # `v1_2` differs from `v12`.
        return f"_{word}"
    # `GET_ISSUE` becomes `getIssue`.
    return word[0].upper() + (word[1:].lower() if word.isupper() else word[1:])


def _is_part_of_word(character: str) -> bool:
    return character != "_" and f"_{character}".isidentifier()


class NearestNames:
    """Finds names similar to a text, ignoring case and separators; fast over thousands of names."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names = tuple(dict.fromkeys(names))
        self._letters = [_letters(name) for name in self._names]
        self._signatures = [_signature(letters) for letters in self._letters]

    def nearest(self, text: str, limit: int) -> list[str]:
        """Similar names, most similar first; equally similar names in their original order."""
        wanted = _letters(text)
        if not wanted:
            return []
        # Imported here because only error paths need it.
        from difflib import SequenceMatcher

        matcher = SequenceMatcher(autojunk=False)
        matcher.set_seq2(wanted.decode())
        similar: list[tuple[float, int]] = []
        for position in self._candidates(_signature(wanted)):
            matcher.set_seq1(self._letters[position].decode())
            similarity = matcher.ratio()
            if similarity >= _MIN_SIMILARITY:
                similar.append((-similarity, position))
        return [self._names[position] for _, position in sorted(similar)[:limit]]

    def _candidates(self, wanted: int) -> list[int]:
        size = wanted.bit_count()
        # The Dice coefficient of the two sets of letter pairs.
        overlaps = (
            ((wanted & signature).bit_count() * 2 / (size + signature.bit_count()), -position)
            for position, signature in enumerate(self._signatures)
            if wanted & signature
        )
        return [-position for _, position in heapq.nlargest(_MAX_COMPARED_NAMES, overlaps)]


def _letters(name: str) -> bytes:
    encoded = name[:_MAX_COMPARED_CHARACTERS].lower().encode(errors="replace")
    return encoded.translate(None, delete=_SEPARATORS)


def _signature(letters: bytes) -> int:
    """The set of letter pairs as bits; a single letter is paired with a space."""
    signature = 0
    # `hash` would differ between processes.
    for first, second in zip(letters, letters[1:] or b" ", strict=False):
        signature |= _BITS[(first * 31 + second) & 255]
    return signature
