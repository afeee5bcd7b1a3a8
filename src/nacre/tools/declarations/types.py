"""Converts JSON Schema to TypeScript types.

What a type cannot say (ranges, formats, defaults) is in comments; what is in neither (`not`, `if`,
patterns) is checked when a tool is called.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from nacre.lazy_dataclasses import dataclass
from nacre.tools.declarations.typescript import (
    INDEX_KEY,
    MAX_LITERAL_CHARACTERS,
    NEVER,
    NULL,
    UNKNOWN,
    Member,
    TypeNames,
    TypeText,
    array_of,
    intersection_of,
    literal_of,
    object_of,
    one_line,
    pascal_case,
    property_key,
    short_json,
    tuple_of,
    union_of,
)
from nacre.tools.definition import as_dict, as_list, count_references, target_of

if TYPE_CHECKING:
    from collections.abc import Iterator


_MAX_DESCRIPTION_CHARACTERS: Final = 1_000
_MAX_DEFAULT_CHARACTERS: Final = 80
_MAX_FORMAT_CHARACTERS: Final = 40


def comment_of(schema: object, *, root: object) -> str:
    """The comment for a schema, safely escaped; empty if there is nothing to say."""
    node = as_dict(schema)
    text = one_line(_description(node, root), max_characters=_MAX_DESCRIPTION_CHARACTERS)
    notes = ", ".join(_notes(node))
    return f"{text} ({notes})".lstrip() if notes else text


def _description(node: dict[str, object], root: object) -> str:
    found = node.get("description")
    reference = node.get("$ref")
    if found is None and isinstance(reference, str):
        found = as_dict(target_of(root, reference)).get("description")
    return found if isinstance(found, str) else ""


def _notes(node: dict[str, object]) -> Iterator[str]:
    least, most = _number(node.get("minimum")), _number(node.get("maximum"))
    if least and most:
        yield f"{least} to {most}"
    elif least or most:
        yield f"at least {least}" if least else f"at most {most}"
    kind = node.get("format")
    if isinstance(kind, str) and kind:
        yield one_line(kind, max_characters=_MAX_FORMAT_CHARACTERS)
    default = node.get("default")
    if default is not None:
        shown = short_json(default, max_characters=_MAX_DEFAULT_CHARACTERS)
        text = shown if shown is not None else "too long to show"
        yield f"default {one_line(text, max_characters=2 * _MAX_DEFAULT_CHARACTERS)}"


def _number(value: object) -> str:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return (short_json(value, max_characters=30) or "") if is_number else ""


MAX_TYPE_CHARACTERS: Final = 16_000
"""The approximate limit for one type, including comments and named types."""

_MAX_DEPTH: Final = 20
# JSON Schema has seven types.
_MAX_KINDS: Final = 7
_MAX_ENUM_CHARACTERS: Final = 2_000
# A type of this size is easier to read inline than by name, even if it is used often.
_MAX_INLINE_CHARACTERS: Final = 60
# The cost of a schema and a member, in addition to their names, values and comments.
_COST_OF_TYPE: Final = 8
_COST_OF_MEMBER: Final = 12

_SHORTENED: Final = TypeText("unknown /* shortened */", "union")
_UNRESOLVED: Final = TypeText("unknown /* unresolved reference */", "union")
_ANY_OBJECT: Final = object_of([Member(key=INDEX_KEY, value=UNKNOWN)])
_PLAIN_TYPES: Final = {
    "string": TypeText("string"),
    "number": TypeText("number"),
    "integer": TypeText("number"),
    "boolean": TypeText("boolean"),
    "null": NULL,
}
_OBJECT_KEYS: Final = ("properties", "required", "additionalProperties", "patternProperties")
_ARRAY_KEYS: Final = ("items", "prefixItems")
# These add no information if there are other parts.
_BARE_TYPES: Final = frozenset({*_PLAIN_TYPES.values(), _ANY_OBJECT, array_of(UNKNOWN)})


@dataclass(frozen=True, kw_only=True, slots=True)
class RenderedType:
    """A type and its named types: recursive types, and long types that are used repeatedly."""

    text: str
    named: tuple[str, ...] = ()
    """Complete statements: `type Tree = { children: Tree[] };`."""
    comments: tuple[tuple[str, str], ...] = ()
    """The comments of the outermost members, by key; empty unless requested."""


def type_of(
    schema: object,
    *,
    name: str = "Value",
    names: TypeNames | None = None,
    max_characters: int = MAX_TYPE_CHARACTERS,
) -> RenderedType:
    """The type of what a schema allows; never fails, whatever the schema is.

    `name` is what the type is called should it contain itself, and how named parts start.
    """
    return _SchemaReader(schema, name, names or TypeNames(), max_characters).read()


def input_type_of(
    schema: object, *, name: str, names: TypeNames, max_characters: int = MAX_TYPE_CHARACTERS
) -> RenderedType:
    """Like `type_of`, with separate comments of the outermost members for `@param` lines."""
    reader = _SchemaReader(schema, name, names, max_characters, has_comments_apart=True)
    return reader.read()


class _SchemaReader:
    """Converts one schema. A budget of characters limits both the work and the text."""

    def __init__(
        self,
        root: object,
        name: str,
        names: TypeNames,
        max_characters: int,
        *,
        has_comments_apart: bool = False,
    ) -> None:
        self._root = root
        self._root_name = name
        self._names = names
        self._has_comments_apart = has_comments_apart
        self._left = max_characters
        # At deeper levels, members are only counted.
        self._least_left = -max_characters // 4
        self._uses = count_references(root)
        self._open: dict[int, str | None] = {}
        """Schemas in progress; recursive ones have a name."""
        self._done: dict[int, TypeText] = {}
        self._named: list[str] = []
        self._comments: list[tuple[str, str]] = []

    def read(self) -> RenderedType:
        found = self._read_shared(self._root, self._root_name, 0, frozenset(), uses=1)
        return RenderedType(
            text=found.text, named=tuple(self._named), comments=tuple(self._comments)
        )

    def _read_shared(
        self, schema: object, name: str, depth: int, chain: frozenset[int], *, uses: int
    ) -> TypeText:
        """The type of a referenced schema, by name if it has one."""
        key = id(schema)
        self._open[key] = None
        found = self._read(schema, depth, chain | {key})
        claimed = self._open.pop(key)
        is_long = len(found.text) > _MAX_INLINE_CHARACTERS or "\n" in found.text
        if claimed is None and uses > 1 and is_long:
            claimed = self._names.claim(name)
        if claimed is not None:
            self._named.append(f"type {claimed} = {found.text};")
            found = TypeText(claimed)
        self._done[key] = found
        return found

    def _reference(self, reference: str, depth: int, chain: frozenset[int]) -> TypeText:
        target = target_of(self._root, reference)
        if target is None:
            return _UNRESOLVED
        key = id(target)
        if key in chain:
            # A schema that refers only to itself means nothing.
            return UNKNOWN
        name = self._root_name + pascal_case(reference.rsplit("/", 1)[-1])
        if key in self._open:
            claimed = self._open[key] or self._names.claim(
                self._root_name if target is self._root else name
            )
            self._open[key] = claimed
            return TypeText(claimed)
        if key in self._done:
            self._left -= len(self._done[key].text)
            return self._done[key] if self._left > 0 else _SHORTENED
        return self._read_shared(target, name, depth, chain, uses=self._uses[reference])

    def _read(self, schema: object, depth: int, chain: frozenset[int]) -> TypeText:
        """The type of a schema; `chain` are the enclosing schemas of the same value."""
        if isinstance(schema, bool):
            return UNKNOWN if schema else NEVER
        if not isinstance(schema, dict):
            return UNKNOWN
        if depth > _MAX_DEPTH or self._left <= 0:
            return _SHORTENED
        self._left -= _COST_OF_TYPE
        node = cast("dict[str, object]", schema)
        parts = list(self._parts(node, depth, chain))
        others = [part for part in parts if part not in _BARE_TYPES and part != UNKNOWN]
        found = intersection_of(others or parts)
        return union_of([found, NULL]) if node.get("nullable") is True else found

    def _parts(
        self, node: dict[str, object], depth: int, chain: frozenset[int]
    ) -> Iterator[TypeText]:
        """The types in a schema that must all hold."""
        reference = node.get("$ref", node.get("$recursiveRef"))
        if isinstance(reference, str):
            yield self._reference(reference, depth + 1, chain)
        if "const" in node:
            yield self._enum([node["const"]], node, depth)
        elif isinstance(node.get("enum"), (list, tuple)):
            yield self._enum(as_list(node["enum"]), node, depth)
        else:
            yield self._own_type(node, depth)
        for key in ("anyOf", "oneOf"):
            if as_list(node.get(key)):
                yield union_of(self._alternatives(node[key], depth + 1, chain))
        yield from self._alternatives(node.get("allOf"), depth + 1, chain)
        if "not" in node and node["not"] in (True, {}):
            yield NEVER

    def _alternatives(
        self, schemas: object, depth: int, chain: frozenset[int]
    ) -> Iterator[TypeText]:
        for schema in as_list(schemas):
            if self._left <= 0:
                yield _SHORTENED
                return
            yield self._read(schema, depth, chain)

    def _own_type(self, node: dict[str, object], depth: int) -> TypeText:
        kinds = node.get("type")
        if isinstance(kinds, str):
            return self._of_kind(kinds, node, depth)
        several = {kind: None for kind in as_list(kinds)[:_MAX_KINDS] if isinstance(kind, str)}
        if several:
            return union_of(self._of_kind(kind, node, depth) for kind in several)
        if any(key in node for key in _OBJECT_KEYS):
            return self._object(node, depth)
        return self._array(node, depth) if any(key in node for key in _ARRAY_KEYS) else UNKNOWN

    def _of_kind(self, kind: str, node: dict[str, object], depth: int) -> TypeText:
        match kind:
            case "object":
                return self._object(node, depth)
            case "array":
                return self._array(node, depth)
            case _:
                return _PLAIN_TYPES.get(kind, UNKNOWN)

    def _array(self, node: dict[str, object], depth: int) -> TypeText:
        items = node.get("items", True)
        first, rest = as_list(node.get("prefixItems")), node.get("items", False)
        if as_list(items):
            first, rest = as_list(items), node.get("additionalItems", False)
        if not first:
            return array_of(self._read(items, depth + 1, frozenset()))
        return tuple_of(
            self._alternatives(first, depth + 1, frozenset()),
            rest=None if rest is False else self._read(rest, depth + 1, frozenset()),
        )

    def _object(self, node: dict[str, object], depth: int) -> TypeText:
        members = list(self._members(node, depth))
        others = self._other_members(node, depth)
        if others is None:
            is_described = bool(members) or node.get("additionalProperties") is False
            is_input = depth == 0 and self._has_comments_apart
            return object_of(members) if is_described or is_input else _ANY_OBJECT
        index = Member(key=INDEX_KEY, value=others)
        if others == UNKNOWN or not members:
            is_open = bool(members) and members[-1].key == INDEX_KEY
            return object_of(members if is_open else [*members, index])
        # A separate type, because an index signature must be compatible with all other members.
        return intersection_of([object_of(members), object_of([index])])

    def _members(self, node: dict[str, object], depth: int) -> Iterator[Member]:
        schemas = as_dict(node.get("properties"))
        required = [name for name in as_list(node.get("required")) if isinstance(name, str)]
        is_required = frozenset(required)
        left_out = 0
        for name in dict.fromkeys((*map(str, schemas), *required)):
            if self._left <= self._least_left or len(name) > MAX_LITERAL_CHARACTERS:
                left_out += 1
            else:
                schema = schemas.get(name, True)
                yield self._member(name, schema, depth, is_optional=name not in is_required)
        if left_out:
            note = TypeText(f"unknown /* shortened: {left_out} more */")
            yield Member(key=INDEX_KEY, value=note)

    def _member(self, name: str, schema: object, depth: int, *, is_optional: bool) -> Member:
        key = property_key(name)
        comment = comment_of(schema, root=self._root) if self._left > 0 else ""
        self._left -= len(key) + len(comment) + _COST_OF_MEMBER
        value = self._read(schema, depth + 1, frozenset())
        if depth == 0 and self._has_comments_apart:
            self._comments.append((key, comment))
            comment = ""
        return Member(key=key, value=value, is_optional=is_optional, comment=comment)

    def _other_members(self, node: dict[str, object], depth: int) -> TypeText | None:
        """The type of additional members; None if the schema has no rule for them."""
        schemas = list(as_dict(node.get("patternProperties")).values())
        additional = node.get("additionalProperties", False)
        if additional is not False:
            schemas.append(additional)
        if not schemas:
            return None
        return union_of(self._alternatives(schemas, depth + 1, frozenset()))

    def _enum(self, values: list[object], node: dict[str, object], depth: int) -> TypeText:
        found: dict[TypeText, None] = {}
        characters = 0
        for shown, value in enumerate(values):
            literal = literal_of(value)
            if literal is None or characters > _MAX_ENUM_CHARACTERS:
                base = self._own_type(node, depth).text
                note = TypeText(f"{base} /* shortened: {len(values) - shown} more */", "union")
                return union_of([*found, note])
            found[literal] = None
            characters += len(literal.text)
            self._left -= len(literal.text)
        return union_of(found)
