"""What keywords cost: the size of those that a validator goes through one by one."""

from typing import Any

import pytest

from nacre.json_types import JsonValue
from nacre.tools.input_checks.schema_weights import (
    Weight,
    number_work,
    parts_of,
    weight_per_character,
    weight_per_error,
    weight_per_number,
    weight_per_value,
)

MANY: list[JsonValue] = [f"name{index}" for index in range(1000)]


def test_a_node_of_plain_keywords_is_one_look() -> None:
    assert weight_per_value({"type": "string", "maxLength": 5, "title": "x"}) == Weight(1)


@pytest.mark.parametrize(
    "node",
    [
        {"enum": [{"a": index} for index in range(1000)]},
        {"enum": [*MANY, 5]},
        {"enum": [index + 0.5 for index in range(1000)]},
        {"const": [*range(1000)]},
        {"dependentRequired": {str(name): ["a"] for name in MANY}},
        {"dependentRequired": {"a": MANY}},
        {"dependencies": {"a": MANY}},
        {"dependentSchemas": dict.fromkeys(map(str, MANY), True)},
    ],
)
def test_what_is_gone_through_one_by_one_weighs_as_much_as_it_is_long(node: dict[str, Any]) -> None:
    assert weight_per_value(node).here > 1000


@pytest.mark.parametrize("options", [MANY, [*range(1000)]])
def test_an_enum_of_texts_or_of_integers_is_one_look(options: list[Any]) -> None:
    assert weight_per_value({"enum": options}).here == 1


def test_names_are_looked_up_for_members_that_are_there() -> None:
    assert weight_per_value({"required": MANY}) == Weight(1, 3, 0)
    assert (
        weight_per_value({"patternProperties": dict.fromkeys(map(str, MANY), True)}).member == 5000
    )
    assert weight_per_value({"propertyNames": {}}).member > 0
    assert weight_per_value({"uniqueItems": True}).item > 0
    assert weight_per_value({"uniqueItems": False}).item == 0


def test_patterns_weigh_by_their_states() -> None:
    node: dict[str, Any] = {"pattern": "a{100}", "patternProperties": {"b{50}": {}, "c": {}}}
    assert weight_per_character(node) == Weight(151)
    assert weight_per_character({"pattern": 5}) == Weight(0)


def test_numbers_are_compared_with_bounds_and_with_numbers_among_the_options() -> None:
    assert weight_per_number({"minimum": 1, "maximum": 5}) == Weight(2)
    assert weight_per_number({"enum": [1, True, "x", {"a": [2, 3.5]}]}) == Weight(3)
    assert weight_per_number({"type": "number"}) == Weight(0)


def test_errors_are_as_many_as_names_that_can_be_missing() -> None:
    assert weight_per_error({"required": MANY}) == Weight(1001)
    assert weight_per_error({"dependentRequired": {"a": MANY, "b": MANY}}) == Weight(2001)
    # Itself, its options, and the list that they are in.
    assert weight_per_error({"enum": MANY}) == Weight(1002)
    assert weight_per_error({"type": "string"}) == Weight(1)


def test_numbers_far_from_one_take_longest_to_compare() -> None:
    assert number_work(5) == number_work(True) == number_work("5") == number_work(None) == 0
    assert 0 < number_work(0.5) == number_work(-7.25) == number_work(0.0)
    assert number_work(0.5) < number_work(1e300) == number_work(-1e-300) == number_work(10**400)


def test_parts_are_counted_until_there_are_enough() -> None:
    assert parts_of({"a": [1, {"b": 2}], "c": None}) == 6
    assert parts_of([0] * 1000, most=10) == 11
