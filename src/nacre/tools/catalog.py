"""The catalog: the tools of a run as ordered entries, with names, lookup, search and a digest."""

from __future__ import annotations

import hashlib
import heapq
import unicodedata
from collections import Counter
from dataclasses import field
from functools import cached_property, lru_cache
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Final, assert_never
from weakref import WeakValueDictionary

from nacre.errors import CatalogError
from nacre.json_types import encode_json
from nacre.lazy_dataclasses import dataclass
from nacre.lazy_exports import lazy_pattern
from nacre.tools.definition import (
    CORE_OWNER,
    GUEST_SOURCES,
    SOURCES,
    Tool,
    ToolSource,
    tool_digest,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence, Set

    from nacre.json_types import JsonObject

CONTROL_NAMES: Final = frozenset(
    {"exec", "wait", "tool_search_code", "tool_search", "tool_describe", "tool_call"}
)
"""The control tools. The catalog excludes them, so that a program cannot call itself."""
SHELL_NAME: Final = "exec"
"""The shell tool has the same name as the control tool, but the catalog contains it."""

OTHER_IDS: Final = "other"
MAX_COUNTED_IDS: Final = 256

_EXCLUDED_NAMES: Final = CONTROL_NAMES - {SHELL_NAME}
_ID_PREFIXES: Final = tuple(f"{source}:" for source in SOURCES)
_MAX_NEAREST_CHARACTERS: Final = 200
# Indexing so many entries takes a few milliseconds; a larger index is used only if cached.
_MAX_ENTRIES_INDEXED_AT_ONCE: Final = 100

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
_PLAIN_NAME: Final = lazy_pattern(r"[A-Za-z_$][A-Za-z0-9_$]*")

# An MCP server object has `resources` and `prompts` besides its tools. Names such as `$api`,
# `$search` and `__proto__` cannot occur, because `$` and `_` separate words.
_RESERVED_GUEST_NAMES: Final = _OBJECT_MEMBERS | {"resources", "prompts"}
_HASH_CHARACTERS: Final = 6
# Leading capitals, except the last one if it begins a word: `HTML` in `HTMLPage`.
_FIRST_CAPITALS: Final = lazy_pattern(r"\A(?:[A-Z]+(?![a-z])|[A-Z])")

_MAX_COMPARED_CHARACTERS: Final = 200
# Comparing two names letter by letter is slow; letter pairs select the names to compare.
_MAX_COMPARED_NAMES: Final = 40
_MIN_SIMILARITY: Final = 0.6
_BITS: Final = tuple(1 << bit for bit in range(256))
_SEPARATORS: Final = bytes(code for code in range(128) if not chr(code).isalnum())


@dataclass(frozen=True, kw_only=True, slots=True, weakref_slot=True)
class CatalogEntry:
    """A tool in search results and in `ALL_TOOLS`, without its schema."""

    id: str
    name: str
    label: str | None
    description: str
    source: ToolSource
    source_name: str | None
    """The plugin, MCP server or client application that provides it; None for a core tool."""
    tool: Tool

    def to_json(self) -> JsonObject:
        entry: JsonObject = {"id": self.id, "name": self.name}
        if self.label is not None:
            entry["label"] = self.label
        entry["description"] = self.description
        entry["source"] = self.source
        if self.source_name is not None:
            entry["sourceName"] = self.source_name
        return entry


def _no_calls() -> dict[str, int]:
    return {}


@dataclass(kw_only=True, slots=True)
class CatalogCounters:
    """How often the cells of a run searched, described and called tools."""

    searches: int = 0
    describes: int = 0
    calls: int = 0
    called: dict[str, int] = field(default_factory=_no_calls)
    """Calls by tool id. Ids beyond the first 256 share the entry `other`."""

    def count_call(self, tool_id: str) -> None:
        self.calls += 1
        is_known = tool_id in self.called or len(self.called) < MAX_COUNTED_IDS
        counted_id = tool_id if is_known else OTHER_IDS
        self.called[counted_id] = self.called.get(counted_id, 0) + 1

    def to_json(self) -> JsonObject:
        """The counters as part of the `telemetry` of a result."""
        return {
            "searches": self.searches,
            "describes": self.describes,
            "calls": self.calls,
            "called": {**self.called},
        }


# A cache by the identity of the tool. When the tools of one server change, most tools of the new
# catalog are the same. An entry refers to its tool, so the tool's identity is not reused.
_ENTRIES: Final[WeakValueDictionary[int, CatalogEntry]] = WeakValueDictionary()


class Catalog:
    """The entries of one run, in order; immutable. Create it with `build_catalog`."""

    def __init__(self, entries: tuple[CatalogEntry, ...]) -> None:
        self.entries = entries
        self._by_id = {entry.id: entry for entry in entries}

    @property
    def size(self) -> int:
        return len(self.entries)

    @cached_property
    def guest_entries(self) -> tuple[CatalogEntry, ...]:
        """The entries that programs see; MCP tools are available under `MCP` instead."""
        return self.entries_from(GUEST_SOURCES)

    def entries_from(self, sources: Iterable[ToolSource]) -> tuple[CatalogEntry, ...]:
        wanted = frozenset(sources)
        return tuple(entry for entry in self.entries if entry.source in wanted)

    @cached_property
    def source_counts(self) -> dict[ToolSource, int]:
        counts = Counter(entry.source for entry in self.entries)
        return {source: counts[source] for source in SOURCES}

    @cached_property
    def names(self) -> dict[str, str]:
        """Tool ids by the names for programs: `tools.<name>(input)`."""
        return convenience_names(entry.tool for entry in self.guest_entries)

    @cached_property
    def index_json(self) -> bytes:
        """The JSON of `ALL_TOOLS`."""
        return encode_json([entry.to_json() for entry in self.guest_entries])

    @cached_property
    def names_json(self) -> bytes:
        return encode_json(self.names)

    @cached_property
    def digest(self) -> str:
        """A digest of what programs see of the catalog."""
        return hashlib.sha256(self.index_json).hexdigest()

    @cached_property
    def search_digest(self) -> str:
        """A digest of everything that affects search results, including schemas and MCP tools.

        It is computed from the digests of the tools, which are cached.
        """
        # Ids contain no line breaks.
        digest = hashlib.sha256("\n".join(entry.id for entry in self.entries).encode())
        digest.update(b"".join(tool_digest(entry.tool) for entry in self.entries))
        return digest.hexdigest()

    def by_id(self, tool_id: str) -> CatalogEntry | None:
        return self._by_id.get(tool_id)

    def resolve(self, id_or_name: str) -> CatalogEntry | None:
        """Find a tool by its id, its name or its convenience name.

        An ambiguous name finds nothing.
        """
        entry = self._by_id.get(id_or_name)
        # A tool may have a name that looks like the id of another one; such a name is ignored.
        if entry is None and not id_or_name.startswith(_ID_PREFIXES):
            entry = self._by_exact_name(id_or_name)
        return entry if entry is not None and entry.source in GUEST_SOURCES else None

    def _by_exact_name(self, name: str) -> CatalogEntry | None:
        same_name = self._guest_entries_by_name.get(name, ())
        if same_name:
            return same_name[0] if len(same_name) == 1 else None
        return self._by_id.get(self.names.get(name, ""))

    def nearest(self, text: str, limit: int = 3) -> list[str]:
        """Suggestions for an unknown id or name, most similar first."""
        owner, name = _split_id(text[:_MAX_NEAREST_CHARACTERS])
        ids: list[str] = []
        for near in self._nearest_names.nearest(name, limit):
            same_name = self._guest_entries_by_name[near]
            ids += [entry.id for entry in sorted(same_name, key=lambda it: it.tool.owner != owner)]
        if len(ids) < limit:
            ids += [entry.id for entry in self._quick_search(name, limit)]
        return list(dict.fromkeys(ids))[:limit]

    def _quick_search(self, query: str, limit: int) -> list[CatalogEntry]:
        # Imported on first use: few programs misspell a name.
        from nacre.tools.catalog_search import cached_index, index_of

        is_small = len(self.guest_entries) <= _MAX_ENTRIES_INDEXED_AT_ONCE
        index = index_of(self) if is_small else cached_index(self)
        return [] if index is None else index.search_words(query, limit)

    @cached_property
    def _guest_entries_by_name(self) -> dict[str, list[CatalogEntry]]:
        by_name: dict[str, list[CatalogEntry]] = {}
        for entry in self.guest_entries:
            by_name.setdefault(entry.name, []).append(entry)
        return by_name

    @cached_property
    def _nearest_names(self) -> NearestNames:
        return NearestNames(self._guest_entries_by_name)


def build_catalog(tools: Iterable[Tool]) -> Catalog:
    """Build a catalog; the order depends only on the set of tools.

    Raises CatalogError if two tools have the same id.
    """
    entries = tuple(_make_entry(tool) for tool in _sort_tools(tools))
    _refuse_duplicates(entries)
    return Catalog(entries)


def is_control_tool(tool: Tool) -> bool:
    """Whether it is a control tool of the core; a plugin may have its own `wait` tool."""
    return tool.name in _EXCLUDED_NAMES and _is_core(tool)


def _is_excluded(tool: Tool) -> bool:
    return tool.catalog_mode == "direct-only" or is_control_tool(tool)


def _is_core(tool: Tool) -> bool:
    return tool.source == "openclaw" and tool.owner == CORE_OWNER


def _group_of(tool: Tool) -> int:
    """The position of its group: core, bundled plugins, other plugins, MCP, client."""
    match tool.source:
        case "openclaw":
            return 0 if tool.owner == CORE_OWNER else 1 if tool.is_bundled else 2
        case "mcp":
            return 3
        case "client":
            return 4
        case _:
            assert_never(tool.source)


def _sort_tools(tools: Iterable[Tool]) -> Iterator[Tool]:
    """Sort by group, owner and name."""
    # Grouping by owner first is much faster than one sort of all tools.
    by_group_and_owner: dict[tuple[int, str], list[Tool]] = {}
    of_provider: dict[tuple[ToolSource, str, bool], list[Tool]] = {}
    for tool in tools:
        if _is_excluded(tool):
            continue
        provider = (tool.source, tool.owner, tool.is_bundled)
        others = of_provider.get(provider)
        if others is None:
            others = by_group_and_owner.setdefault((_group_of(tool), tool.owner), [])
            of_provider[provider] = others
        others.append(tool)
    for _, owned in sorted(by_group_and_owner.items(), key=itemgetter(0)):
        owned.sort(key=attrgetter("name"))
        yield from owned


def _make_entry(tool: Tool) -> CatalogEntry:
    known = _ENTRIES.get(id(tool))
    if known is not None:
        return known
    entry = CatalogEntry(
        id=tool.id,
        name=tool.name,
        label=tool.label,
        description=tool.description,
        source=tool.source,
        source_name=None if _is_core(tool) else tool.owner,
        tool=tool,
    )
    _ENTRIES[id(tool)] = entry
    return entry


def _refuse_duplicates(entries: tuple[CatalogEntry, ...]) -> None:
    # A plugin may be both bundled and installed, so equal ids need not be adjacent.
    first_with: dict[str, CatalogEntry] = {}
    for entry in entries:
        first = first_with.setdefault(entry.id, entry)
        if first is not entry:
            raise CatalogError(
                f"two tools have the id {entry.id!r}: one of {_describe_owner(first)}, "
                f"one of {_describe_owner(entry)}; rename or remove one of them"
            )


def _describe_owner(entry: CatalogEntry) -> str:
    match entry.source:
        case "openclaw":
            if entry.source_name is None:
                return "the core"
            kind = "bundled plugin" if entry.tool.is_bundled else "plugin"
            return f"the {kind} {entry.source_name!r}"
        case "mcp":
            return f"the MCP server {entry.source_name!r}"
        case "client":
            return f"the application {entry.source_name!r}"
        case _:
            assert_never(entry.source)


def _split_id(text: str) -> tuple[str, str]:
    """The owner and the name in an id, in `owner:name` or in a plain name."""
    if text.startswith(_ID_PREFIXES):
        text = text.partition(":")[2]
    owner, colon, name = text.partition(":")
    return (owner, name) if colon else ("", text)


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
