"""What the keywords of one schema node cost a validator: their size, where it is not constant.

Measured with jsonschema-rs 0.60; one unit is a look at a value, some 6 ns.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from nacre.tools.input_checks.pattern_size import states_of
from nacre.tools.schema_references import listed, mapped

if TYPE_CHECKING:
    from nacre.json_types import JsonObject

_LOOKUP: Final = 3
_COMPARISON: Final = 50
# Numbers with a fraction are compared as exact fractions; 1e300 is a fraction of a thousand bits.
_FRACTION: Final = 100
_LONG_FRACTION: Final = 6_000
_PROPERTY_NAME: Final = 60
_PATTERN_CALL: Final = 5
_UNIQUE_ITEM: Final = 40
_MAX_PLAIN: Final = 1e15
_MIN_PLAIN: Final = 1e-9

_DIVISION: Final = 3
_BOUNDS: Final = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
_SIZED: Final = frozenset((
    *_BOUNDS, "multipleOf", "const", "enum", "uniqueItems", "required", "patternProperties",
    "propertyNames", "dependentRequired", "dependentSchemas", "dependencies",
))  # fmt: skip
"""The keywords whose cost is not that of a plain look."""


class Weight(NamedTuple):
    """What a node costs for a value itself, for each of its members, and for each of its items."""

    here: int = 0
    member: int = 0
    item: int = 0


def weight_per_value(node: JsonObject) -> Weight:
    """For every value that the node is applied to."""
    if _SIZED.isdisjoint(node):
        return Weight(1)
    dependent = [*mapped(node.get("dependentRequired")).values()]
    dependent += mapped(node.get("dependencies")).values()
    schemas = mapped(node.get("dependentSchemas"))
    here = (
        1
        + _LOOKUP * (len(schemas) + sum(1 + len(listed(names)) for names in dependent))
        + sum(number_work(node.get(key)) for key in _BOUNDS)
        + _DIVISION * number_work(node.get("multipleOf"))
        + _comparison_cost(node)
    )
    # It ends at the first name that is missing: so there are not more looks than members.
    member = _LOOKUP if "required" in node else 0
    member += _PATTERN_CALL * len(mapped(node.get("patternProperties")))
    member += _PROPERTY_NAME if "propertyNames" in node else 0
    return Weight(here, member, _UNIQUE_ITEM if node.get("uniqueItems") is True else 0)


def weight_per_character(node: JsonObject) -> Weight:
    """For every character of a text, or of a name, that patterns are matched with."""
    pattern = node.get("pattern")
    states = states_of(pattern) if isinstance(pattern, str) else 0
    return Weight(states + sum(map(states_of, mapped(node.get("patternProperties")))))


def weight_per_number(node: JsonObject) -> Weight:
    """For every number that is not a small integer; times what `number_work` says of it."""
    if _SIZED.isdisjoint(node):
        return Weight()
    here = sum(key in node for key in _BOUNDS) + _DIVISION * ("multipleOf" in node)
    here += _numbers_in([node.get("const"), node.get("enum")])
    return Weight(here, 0, 2 if node.get("uniqueItems") is True else 0)


def weight_per_error(node: JsonObject) -> Weight:
    """How many errors the node can make of one value; an error holds a copy of its `enum`."""
    if _SIZED.isdisjoint(node):
        return Weight(1)
    dependent = [*mapped(node.get("dependentRequired")).values()]
    dependent += mapped(node.get("dependencies")).values()
    named = len(listed(node.get("required"))) + sum(len(listed(names)) for names in dependent)
    return Weight(1 + named + sum(parts_of(node[key]) for key in ("enum", "const") if key in node))


def number_work(value: object) -> int:
    """What it takes to compare with this number; nothing for other values, and small integers."""
    if isinstance(value, float):
        is_plain = _MIN_PLAIN < value < _MAX_PLAIN or _MIN_PLAIN < -value < _MAX_PLAIN
        return _FRACTION if is_plain or not value else _LONG_FRACTION
    return _LONG_FRACTION if isinstance(value, int) and abs(value) > _MAX_PLAIN else 0


def parts_of(value: object, *, most: int = sys.maxsize) -> int:
    """How many values there are in a value, itself included, counted until there are `most`."""
    count, todo = 0, [value]
    while todo and count <= most:
        part = todo.pop()
        count += 1
        todo += mapped(part).values()
        todo += listed(part)
    return count


def _comparison_cost(node: JsonObject) -> int:
    options = listed(node.get("enum"))
    # Texts alone, and integers alone, are looked up in a table.
    if len({type(option) for option in options}) == 1 and isinstance(options[0], (str, int)):
        options = []
    if "const" in node:
        options.append(node["const"])
    return sum(_comparison(option) for option in options)


def _comparison(option: object) -> int:
    """What it takes to compare one option of an `enum` with a value, to its last part."""
    if option is None or isinstance(option, (str, bool)):
        return 1
    if isinstance(option, (dict, list)):
        parts = [*mapped(cast("object", option)).values(), *listed(cast("object", option))]
        return _COMPARISON + sum(_comparison(part) for part in parts)
    return _COMPARISON + number_work(option)


def _numbers_in(options: list[object]) -> int:
    count, todo = 0, options
    while todo:
        part = todo.pop()
        count += isinstance(part, (int, float)) and not isinstance(part, bool)
        todo += mapped(part).values()
        todo += listed(part)
    return count
