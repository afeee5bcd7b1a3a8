"""How much work a schema can ask for, for one value: a bound, known beforehand.

Schemas come from MCP servers too. One page of `anyOf` and `$ref` can ask for 2^40 looks at one
number, and a validator takes every one of them. What a node costs is the business of
`schema_weights`; here the costs are added up along the ways that a validator can take.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, cast

from nacre.tools.input_checks.schema_weights import weight_per_value
from nacre.tools.schema_references import listed, mapped, target_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from nacre.json_types import JsonObject
    from nacre.tools.input_checks.schema_weights import Weight

ENDLESS: Final = 1 << 60
"""Stands for every number of looks that is too large to matter."""

_MAX_NOTES: Final = 20_000
# A schema that goes on below this is taken for one that contains itself.
_MAX_PLAIN_DEPTH: Final = 24


class _Looks(NamedTuple):
    """Looks at a value itself, and along one way down through its members or its items."""

    here: int
    members: int
    items: int
    is_cut: bool
    """Whether the schema goes on below the depth that was asked for."""

    @property
    def total(self) -> int:
        return min(self.here + max(self.members, self.items), ENDLESS)


_ENDLESS_LOOKS: Final = _Looks(ENDLESS, 0, 0, is_cut=True)
_NO_LOOKS: Final = _Looks(0, 0, 0, is_cut=False)


class _TooManyNotesError(Exception):
    pass


class SchemaWork:
    """The bound for one schema. The work for a whole input is at most `looks(depth)` a part."""

    def __init__(
        self, schema: JsonObject, weigh: Callable[[JsonObject], Weight] = weight_per_value
    ) -> None:
        self._root = schema
        self._weigh = weigh
        self._notes: dict[tuple[int, int], _Looks] = {}
        # What does not depend on the depth any more.
        self._final: dict[int, _Looks] = {}
        self._next_depth = 0
        self._takes_all = False
        self.most_alternatives = 0
        """Looks at a value because of `anyOf` and `oneOf`: one error holds all that they find."""
        self.has_deep_alternatives = False
        """Whether alternatives also look at what is in a value."""
        self._levels: int | None = None
        looks = self.looks(_MAX_PLAIN_DEPTH)
        self.looks_at_any_depth = None if self._levels is None else looks
        """The bound for every input; None when it grows with the depth of the input."""

    @property
    def levels(self) -> int | None:
        """How far down an input is looked at; None for all the way."""
        return None if self._takes_all else self._levels

    @property
    def looks_at_root(self) -> int:
        """What the input itself costs, without its members."""
        return self._find(self._root, 0).here

    @property
    def breadth(self) -> int:
        """No less than the schemas that one member of the input is looked up in."""
        return self._notes[id(self._root), 0].total

    def looks(self, depth: int) -> int:
        """The most looks along one way from the root to a part that is `depth` levels below."""
        try:
            # From the bottom up: so a schema that contains itself is followed for one round only.
            while id(self._root) not in self._final and self._next_depth < depth:
                self._find(self._root, self._next_depth)
                self._next_depth += 1
            return self._find(self._root, depth).total
        except (_TooManyNotesError, RecursionError):
            return ENDLESS

    def looks_in_member(self, name: str, depth: int) -> int:
        """The most looks along one way through that member, `depth` levels below it."""
        try:
            return self._in_member(self._root, name, depth + 1, {})
        except (_TooManyNotesError, RecursionError):
            return ENDLESS

    def _in_member(self, node: JsonObject, name: str, depth: int, known: dict[int, int]) -> int:
        if id(node) not in known:
            looks = self._weigh(node).member + self._below(_member_schemas(node, name), depth)[0]
            for part in self._in_place(node):
                if isinstance(part, dict):
                    looks += self._in_member(cast("JsonObject", part), name, depth, known)
            known[id(node)] = min(looks, ENDLESS)
        return known[id(node)]

    def _find(self, schema: object, depth: int) -> _Looks:
        # Absent, or true or false, which needs no look at the value.
        if not isinstance(schema, dict):
            return _NO_LOOKS
        node = cast("JsonObject", schema)
        known = self._final.get(id(node)) or self._notes.get((id(node), depth))
        if known is not None:
            return known
        if len(self._notes) >= _MAX_NOTES:
            raise _TooManyNotesError
        # Found again before it is done: it leads to itself without a step down.
        self._notes[id(node), depth] = _ENDLESS_LOOKS
        looks = self._notes[id(node), depth] = self._count(node, depth)
        if not looks.is_cut:
            self._final[id(node)] = looks
            if node is self._root:
                self._levels = depth
        return looks

    def _count(self, node: JsonObject, depth: int) -> _Looks:
        if self._has_unknown_parts(node):
            return _ENDLESS_LOOKS
        here, members, items = self._weigh(node)
        is_cut = False
        # All the way down, whatever the schema says about the items.
        self._takes_all = self._takes_all or node.get("uniqueItems") is True
        for part in self._in_place(node):
            looks = self._find(part, depth)
            here += looks.here
            members += looks.members
            items += looks.items
            is_cut = is_cut or looks.is_cut
        if depth > 0:
            found, is_cut_below = self._below(_member_schemas(node), depth)
            members += found
            is_cut = is_cut or is_cut_below
            found, is_cut_below = self._below(_item_schemas(node), depth)
            items += found
            is_cut = is_cut or is_cut_below
        else:
            is_cut = is_cut or members > 0 or items > 0 or _has_children(node)
        if "anyOf" in node or "oneOf" in node:
            self.most_alternatives = max(self.most_alternatives, here)
            self.has_deep_alternatives |= is_cut or members > 0 or items > 0
        return _Looks(min(here, ENDLESS), min(members, ENDLESS), min(items, ENDLESS), is_cut)

    def _below(self, groups: Iterable[list[object]], depth: int) -> tuple[int, bool]:
        """Of each group one schema applies to a child, and every group has its turn."""
        total, is_cut = 0, False
        for group in groups:
            looks = [self._find(schema, depth - 1) for schema in group]
            total += max((found.total for found in looks), default=0)
            is_cut = is_cut or any(found.is_cut for found in looks)
        return total, is_cut

    def _has_unknown_parts(self, node: JsonObject) -> bool:
        """Whether a validator would go on with what is not found here."""
        if "$dynamicRef" in node or "$recursiveRef" in node:
            return True
        reference = node.get("$ref")
        if isinstance(reference, str) and target_of(self._root, reference) is None:
            return True
        return node is not self._root and isinstance(node.get("$id", node.get("id")), str)

    def _in_place(self, node: JsonObject) -> Iterator[object]:
        for key in ("allOf", "anyOf", "oneOf"):
            yield from listed(node.get(key))
        for key in ("not", "if", "then", "else"):
            if key in node:
                yield node[key]
        for key in ("dependentSchemas", "dependencies"):
            yield from mapped(node.get(key)).values()
        reference = node.get("$ref")
        if isinstance(reference, str):
            yield target_of(self._root, reference)


def _member_schemas(node: JsonObject, name: str | None = None) -> Iterator[list[object]]:
    """Groups of schemas for the members, or for the member of that name."""
    # A member has its own schema or that of the others, never both.
    own = mapped(node.get("properties"))
    others = node.get("additionalProperties")
    yield [*own.values(), others] if name is None else [own.get(name, others)]
    for schema in mapped(node.get("patternProperties")).values():
        yield [schema]
    for key in ("unevaluatedProperties", "propertyNames"):
        yield [node.get(key)]


def _item_schemas(node: JsonObject) -> Iterator[list[object]]:
    items = node.get("items")
    own = listed(items) if isinstance(items, list) else [items]
    yield [*listed(node.get("prefixItems")), *own, node.get("additionalItems")]
    for key in ("contains", "unevaluatedItems"):
        yield [node.get(key)]


def _has_children(node: JsonObject) -> bool:
    groups = (*_member_schemas(node), *_item_schemas(node))
    # Also true and false: they cost nothing, but the members are gone through.
    return any(isinstance(schema, (dict, bool)) for group in groups for schema in group)
