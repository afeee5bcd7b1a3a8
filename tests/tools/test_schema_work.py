"""The bound on looks: never below what a validator does, and small for sound schemas."""

from typing import Any

import pytest

from nacre.tools.schema_work import ENDLESS, SchemaWork, size_of

TEXT: dict[str, Any] = {"type": "string"}


@pytest.mark.parametrize(
    ("schema", "looks"),
    [
        ({}, 1),
        ({"properties": {f"p{index}": TEXT for index in range(1000)}}, 2),
        ({"properties": {"a": {"items": TEXT}}, "additionalProperties": TEXT}, 3),
        ({"items": TEXT, "contains": TEXT, "properties": {"a": TEXT}}, 3),
        ({"allOf": [TEXT, TEXT], "if": TEXT, "then": TEXT, "not": TEXT}, 6),
        ({"patternProperties": {"a": TEXT, "b": TEXT}, "propertyNames": TEXT}, 4),
        ({"prefixItems": [TEXT, {"items": TEXT}], "items": TEXT}, 3),
        ({"dependentSchemas": {"a": TEXT}, "dependencies": {"b": ["c"], "d": TEXT}}, 3),
        ({"$ref": "#/$defs/a~1b/0", "$defs": {"a/b": [{"anyOf": [TEXT, TEXT]}]}}, 4),
        ({"$ref": "#/$defs/x%20y", "$defs": {"x y": TEXT}}, 2),
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


def test_parts_and_depth_of_a_value_are_counted() -> None:
    assert size_of({"a": [1, {"b": 2}], "c": "text"}, most=100) == (6, 3)
    assert size_of(5, most=100) == (1, 0)


def test_counting_ends_when_there_are_enough() -> None:
    count, depth = size_of([[0] * 1000], most=10)
    assert (count, depth) == (1002, 1)
