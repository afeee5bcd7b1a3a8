"""Which checks are made: those that cannot hold up the event loop for long."""

from typing import Any, cast

import pytest

from nacre.json_types import JsonObject, JsonValue
from nacre.tools.input_checks.check_cost import MAX_PARTS, CheckCost


def items(schema: dict[str, Any]) -> JsonObject:
    return {"type": "object", "properties": {"l": {"type": "array", "items": schema}}}


def of_list(*values: object) -> JsonObject:
    return {"l": cast("JsonValue", [*values])}


def of_names(count: int) -> JsonObject:
    return {f"a{index}": 1 for index in range(count)}


INTEGER: dict[str, Any] = {"type": "integer"}
ROW: dict[str, Any] = {
    "type": "object",
    "properties": {f"p{index}": {"anyOf": [INTEGER, {"type": "null"}]} for index in range(10)},
    "required": ["p1", "p2"],
    "additionalProperties": False,
}
MAIL = r"^[\w.+-]{1,64}@[\w-]{1,255}$"
LETTER: JsonObject = {
    "type": "object",
    "properties": {"mail": {"type": "string", "pattern": MAIL}, "body": {"type": "string"}},
}


@pytest.mark.parametrize(
    ("schema", "given"),
    [
        ({"type": "object"}, {"l": [1] * 4_000_000}),
        ({"type": "object", "properties": {"l": {"type": "array"}}}, {"l": [1] * 4_000_000}),
        (items(ROW), {"l": [{f"p{index}": index for index in range(10)}] * 10_000}),
        (items({"type": "number"}), {"l": [0.37] * 200_000}),
        (items({"enum": [f"value{index}" for index in range(5000)]}), {"l": ["value1"] * 100_000}),
        (LETTER, {"mail": "a@b", "body": "x" * 5_000_000}),
    ],
)
def test_ordinary_schemas_take_large_inputs(schema: JsonObject, given: JsonObject) -> None:
    cost = CheckCost(schema)
    assert cost.problem() == ""
    assert cost.verdict(given) == "cheap"


@pytest.mark.parametrize(
    ("schema", "given"),
    [
        (items(INTEGER), {"l": [1] * MAX_PARTS}),
        (items({"anyOf": [{"const": f"k{i}"} for i in range(59)]}), {"l": [1] * 200_000}),
        (items({"type": "array", "uniqueItems": True}), {"l": [[[1] * 1000]] * 230}),
        ({"patternProperties": {f"^(a|b{i})+$": True for i in range(60)}}, of_names(200_000)),
        (items({"minimum": 0.5}), {"l": [1.5] * 200_000}),
        (LETTER, {"mail": "a" * 5_000_000}),
        (items({"pattern": "[ab]*a[ab]{5000}x"}), {"l": ["ab" * 10_000]}),
    ],
)
def test_an_input_that_is_too_large_for_its_schema_is_at_fault(
    schema: JsonObject, given: JsonObject
) -> None:
    cost = CheckCost(schema)
    assert cost.problem() == ""
    assert cost.verdict(given) == "input_too_large"


@pytest.mark.parametrize(
    ("schema", "given"),
    [
        (items({"enum": [{"a": index} for index in range(5000)]}), {"l": [{"a": 4999}] * 100}),
        (items({"enum": [index + 0.5 for index in range(1000)]}), {"l": [999.5] * 1000}),
        (items({"enum": [*range(1000)]}), {"l": [1e300] * 1000}),
        (items({"multipleOf": 1e-300}), {"l": [1] * 1000}),
        (
            items({"dependentRequired": {f"a{i}": list(of_names(100)) for i in range(100)}}),
            {"l": [of_names(100)] * 500},
        ),
    ],
)
def test_a_schema_that_is_too_costly_for_small_inputs_is_at_fault(
    schema: JsonObject, given: JsonObject
) -> None:
    cost = CheckCost(schema)
    assert cost.problem() == ""
    assert cost.verdict(given) == "schema_too_costly"


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        ({"required": [f"r{index}" for index in range(200_000)]}, "more than 20,000 parts"),
        ({"properties": {"a": {"pattern": "((a{100}){100}){10}"}}}, "patterns are too large"),
        ({"properties": {"a": {"$ref": "#/x"}}}, "a `$ref` does not exist"),
    ],
)
def test_some_schemas_are_never_applied(schema: JsonObject, problem: str) -> None:
    assert problem in CheckCost(schema).problem()


def test_members_are_weighed_one_by_one_only_where_that_is_cheap() -> None:
    dear: dict[str, Any] = {"enum": [{"a": index} for index in range(2000)]}
    schema: dict[str, Any] = {"properties": {"dear": dear, "l": {"items": INTEGER}}}
    given: JsonObject = {"dear": {"a": 1}, **of_list(*[1] * 1000)}
    assert CheckCost(schema).verdict(given) == "cheap"
    wide: dict[str, Any] = {**schema, "allOf": [{"title": "x"}] * 4000}
    assert CheckCost(wide).verdict(given) == "schema_too_costly"


def test_errors_are_listed_only_where_all_of_them_are_few_and_small() -> None:
    plain, many = CheckCost(items(ROW)), [{"p1": "x"}] * 50_000
    assert plain.can_list_errors(of_list(*many[:50]))
    assert not plain.can_list_errors(of_list(*many))
    assert not plain.can_list_errors(of_list("x" * 10_000_000))
    names: dict[str, Any] = {"required": list(of_names(15_000))}
    assert not CheckCost(names).can_list_errors({})


def test_one_error_is_cheap_unless_it_holds_those_of_many_alternatives() -> None:
    given = of_list("x" * 1_000_000)
    assert CheckCost(items({"anyOf": [INTEGER] * 3})).can_find_first_error(given)
    assert not CheckCost(items({"anyOf": [INTEGER] * 200})).can_find_first_error(given)
    assert not CheckCost(items({"anyOf": [{"items": INTEGER}]})).can_find_first_error(given)
    assert not CheckCost(items(INTEGER)).can_find_first_error(of_list(*[1] * 50_000))
