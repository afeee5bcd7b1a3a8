"""The bound on looks: never below what a validator does, and small for sound schemas."""

from typing import Any

import pytest

from nacre.tools.input_checks.schema_weights import weight_per_error
from nacre.tools.input_checks.schema_work import ENDLESS, SchemaWork

TEXT: dict[str, Any] = {"type": "string"}


@pytest.mark.parametrize(
    ("schema", "looks"),
    [
        ({}, 1),
        ({"properties": {f"p{index}": TEXT for index in range(1000)}}, 2),
        ({"properties": {"a": {"items": TEXT}}, "additionalProperties": TEXT}, 3),
        ({"items": TEXT, "contains": TEXT, "properties": {"a": TEXT}}, 3),
        ({"allOf": [TEXT, TEXT], "if": TEXT, "then": TEXT, "not": TEXT}, 6),
        ({"patternProperties": {"a": TEXT, "b": TEXT}}, 3 + 2 * 5),
        ({"propertyNames": TEXT}, 2 + 60),
        ({"prefixItems": [TEXT, {"items": TEXT}], "items": TEXT}, 3),
        ({"dependentSchemas": {"a": TEXT}, "dependencies": {"b": ["c"], "d": TEXT}}, 3 + 4 * 3),
        ({"$ref": "#/$defs/a~1b/0", "$defs": {"a/b": [{"anyOf": [TEXT, TEXT]}]}}, 4),
        ({"$ref": "#/$defs/x%20y", "$defs": {"x y": TEXT}}, 2),
        ({"$ref": "#/$defs/x/1500", "$defs": {"x": [TEXT] * 1501}}, 2),
        ({"properties": {"$id": TEXT, "$ref": TEXT}}, 2),
    ],
)
def test_looks_are_counted_along_the_worst_way(schema: dict[str, Any], looks: int) -> None:
    assert SchemaWork(schema).looks_at_any_depth == looks


def test_a_schema_that_contains_itself_costs_more_the_deeper_the_input_is() -> None:
    work = SchemaWork({"properties": {"a": {"$ref": "#"}}})
    assert work.looks_at_any_depth is None
    assert [work.looks(depth) for depth in (0, 1, 2, 100)] == [1, 3, 5, 201]


def test_branches_double_at_every_level() -> None:
    branch: dict[str, Any] = {"properties": {"a": {"$ref": "#"}}}
    work = SchemaWork({"anyOf": [branch, branch]})
    assert work.looks(10) > 2**10
    assert work.looks(200) == ENDLESS


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {"$ref": "other.json"},
        {"$ref": "#/nowhere"},
        {"$ref": f"#/$defs/{'x' * 2000}", "$defs": {"x" * 2000: TEXT}},
        {"properties": {"a": {"$dynamicRef": "#b"}}},
        {"properties": {"a": {"$id": "x", "$ref": "#/b"}}},
        {
            "$ref": "#/$defs/d0",
            "$defs": {f"d{index}": {"$ref": f"#/$defs/d{index + 1}"} for index in range(5000)},
        },
    ],
)
def test_what_cannot_be_followed_counts_as_endless(schema: dict[str, Any]) -> None:
    assert SchemaWork(schema).looks(3) == ENDLESS


@pytest.mark.parametrize(
    ("schema", "levels"),
    [
        ({"type": "object"}, 0),
        ({"properties": {"a": {"type": "array"}}}, 1),
        ({"properties": {"a": {"items": TEXT}}}, 2),
        ({"patternProperties": {"^a": True}}, 1),
        ({"required": ["a"]}, 1),
        ({"properties": {"a": {"uniqueItems": True}}}, None),
        ({"properties": {"a": {"$ref": "#"}}}, None),
    ],
)
def test_an_input_is_looked_at_as_far_down_as_the_schema_goes(
    schema: dict[str, Any], levels: int | None
) -> None:
    assert SchemaWork(schema).levels == levels


def test_a_member_costs_what_its_own_schemas_cost() -> None:
    dear = {"allOf": [TEXT] * 50}
    schema: dict[str, Any] = {
        "properties": {"dear": dear, "cheap": TEXT},
        "additionalProperties": {"items": TEXT},
        "allOf": [{"properties": {"cheap": TEXT}}],
    }
    work = SchemaWork(schema)
    found = [work.looks_in_member(name, 3) for name in ("dear", "cheap", "other")]
    assert found == [51, 2, 2]


def test_alternatives_that_look_into_a_value_are_told_from_those_that_do_not() -> None:
    flat = SchemaWork({"properties": {"a": {"anyOf": [TEXT, TEXT]}}}, weight_per_error)
    assert (flat.most_alternatives, flat.has_deep_alternatives) == (3, False)
    deep = SchemaWork({"properties": {"a": {"oneOf": [TEXT, {"items": TEXT}]}}}, weight_per_error)
    assert deep.has_deep_alternatives
