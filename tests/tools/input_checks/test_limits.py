"""The limits: ordinary schemas take large inputs, and hostile ones are refused before a check."""

from collections import OrderedDict
from typing import Any, cast

import pytest

from nacre.json_types import JsonObject, JsonValue
from nacre.tools.input_checks.validation import (
    MAX_INPUT_VALUES,
    Fanout,
    InputSize,
    SchemaLimits,
    character_cost,
    count_states,
    measure,
    number_cost,
    value_cost,
)


def items(schema: dict[str, Any]) -> JsonObject:
    return {"type": "object", "properties": {"l": {"type": "array", "items": schema}}}


def of_list(*values: object) -> JsonObject:
    return {"l": cast("JsonValue", [*values])}


def of_names(count: int) -> JsonObject:
    return {f"a{index}": 1 for index in range(count)}


TEXT: dict[str, Any] = {"type": "string"}
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
SHAPE: dict[str, Any] = {
    "anyOf": [{"properties": {"kind": {"const": f"shape{index}"}}} for index in range(20)]
}
MANY: list[JsonValue] = [f"name{index}" for index in range(1000)]


@pytest.mark.parametrize(
    ("schema", "given"),
    [
        ({"type": "object"}, {"l": [1] * 4_000_000}),
        ({"type": "object", "properties": {"l": {"type": "array"}}}, {"l": [1] * 4_000_000}),
        (items(ROW), {"l": [{f"p{index}": index for index in range(10)}] * 10_000}),
        (items({"type": "number"}), {"l": [0.37] * 200_000}),
        (items({"minimum": 0.0, "maximum": 1.0}), {"l": [0.37] * 50_000}),
        (items({"maximum": 2**53 - 1}), {"l": [10**18] * 200_000}),
        (items({"enum": [f"value{index}" for index in range(5000)]}), {"l": ["value1"] * 100_000}),
        (items(SHAPE), {"l": [{"kind": "shape19"}] * 20_000}),
        (LETTER, {"mail": "a@b", "body": "x" * 5_000_000}),
    ],
)
def test_ordinary_schemas_take_large_inputs(schema: JsonObject, given: JsonObject) -> None:
    limits = SchemaLimits(schema)
    assert limits.problem == ""
    assert limits.verdict(given) == "ok"


@pytest.mark.parametrize(
    ("schema", "given"),
    [
        (items(INTEGER), {"l": [1] * MAX_INPUT_VALUES}),
        (items({"anyOf": [{"const": f"k{i}"} for i in range(59)]}), {"l": [1] * 200_000}),
        (items({"type": "array", "uniqueItems": True}), {"l": [[[1] * 1000]] * 230}),
        ({"patternProperties": {f"^(a|b{i})+$": True for i in range(60)}}, of_names(200_000)),
        (items({"minimum": 0.5}), {"l": [1.5] * 200_000}),
        (items({"minimum": 0}), {"l": [10**4000] * 10}),
        (LETTER, {"mail": "a" * 5_000_000}),
        (items({"pattern": "[ab]*a[ab]{5000}x"}), {"l": ["ab" * 10_000]}),
    ],
)
def test_an_input_that_is_too_large_for_its_schema_is_at_fault(
    schema: JsonObject, given: JsonObject
) -> None:
    limits = SchemaLimits(schema)
    assert limits.problem == ""
    assert limits.verdict(given) == "input_too_large"


@pytest.mark.parametrize(
    ("schema", "given"),
    [
        (items({"enum": [{"a": index} for index in range(5000)]}), {"l": [{"a": 4999}] * 100}),
        (items({"enum": [index + 0.5 for index in range(1000)]}), {"l": [999.5] * 1000}),
        (items({"enum": [*range(1000)]}), {"l": [1e300] * 1000}),
        (items({"enum": [*range(1000)]}), {"l": [1.5] * 1000}),
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
    limits = SchemaLimits(schema)
    assert limits.problem == ""
    assert limits.verdict(given) == "schema_too_costly"


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        ({"required": [f"r{index}" for index in range(200_000)]}, "more than 20,000 parts"),
        ({"properties": {"a": {"pattern": "((a{100}){100}){10}"}}}, "patterns are too large"),
        ({"properties": {"a": {"$ref": "#/x"}}}, "a `$ref` does not exist"),
    ],
)
def test_some_schemas_are_never_applied(schema: JsonObject, problem: str) -> None:
    assert problem in SchemaLimits(schema).problem


def test_members_are_measured_one_by_one_only_where_they_are_few() -> None:
    costly: dict[str, Any] = {"enum": [{"a": index} for index in range(2000)]}
    schema: dict[str, Any] = {"properties": {"costly": costly, "l": {"items": INTEGER}}}
    given: JsonObject = {"costly": {"a": 1}, **of_list(*[1] * 1000)}
    assert SchemaLimits(schema).verdict(given) == "ok"
    wide: dict[str, Any] = {**schema, "allOf": [{"title": "x"}] * 4000}
    assert SchemaLimits(wide).verdict(given) == "schema_too_costly"
    many: JsonObject = {**given, **of_names(100)}
    assert SchemaLimits(schema).verdict(many) == "schema_too_costly"


def test_errors_are_listed_only_where_all_of_them_are_few_and_small() -> None:
    plain, many = SchemaLimits(items(ROW)), [{"p1": "x"}] * 50_000
    assert plain.can_list_errors(of_list(*many[:50]))
    assert not plain.can_list_errors(of_list(*many))
    assert not plain.can_list_errors(of_list("x" * 10_000_000))
    names: dict[str, Any] = {"required": list(of_names(15_000))}
    assert not SchemaLimits(names).can_list_errors({})
    for options in ([f"value{index}" for index in range(5000)], [[*range(5000)]]):
        limits = SchemaLimits(items({"enum": options}))
        assert not limits.can_list_errors(of_list(*["x"] * 50))


def test_one_error_is_cheap_unless_it_holds_those_of_many_alternatives() -> None:
    given = of_list("x" * 1_000_000)
    assert SchemaLimits(items({"anyOf": [INTEGER] * 3})).can_find_first_error(given)
    assert not SchemaLimits(items({"anyOf": [INTEGER] * 200})).can_find_first_error(given)
    deep = SchemaLimits(items({"anyOf": [{"items": INTEGER}]}))
    assert not deep.can_find_first_error(of_list(["x"] * 20_000))
    assert not SchemaLimits(items(INTEGER)).can_find_first_error(of_list(*[1] * 50_000))


@pytest.mark.parametrize(
    ("schema", "fanout"),
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
def test_fanout_is_that_of_the_value_with_the_most_schemas(
    schema: dict[str, Any], fanout: int
) -> None:
    assert Fanout(schema, value_cost).of_root(100) == fanout


def test_the_fanout_of_a_schema_that_contains_itself_grows_with_the_depth_of_the_input() -> None:
    fanout = Fanout({"properties": {"a": {"$ref": "#"}}}, value_cost)
    assert [fanout.of_root(depth) for depth in (0, 1, 2, 100)] == [1, 3, 5, 201]


def test_alternatives_that_contain_the_schema_double_at_each_level() -> None:
    branch: dict[str, Any] = {"properties": {"a": {"$ref": "#"}}}
    fanout = Fanout({"anyOf": [branch, branch]}, value_cost)
    assert fanout.of_root(10) > 2**10
    assert fanout.of_root(200) > 2**50


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
def test_the_fanout_of_an_unknown_schema_is_endless(schema: dict[str, Any]) -> None:
    assert Fanout(schema, value_cost).of_root(3) > 2**50
    assert Fanout(schema, value_cost).of_member("a", 3) > 2**50


@pytest.mark.timeout(60)
def test_a_large_schema_that_contains_itself_is_refused_for_deep_inputs() -> None:
    # Following all of its members at all levels would take minutes.
    own: dict[str, Any] = {f"p{index}": {"$ref": "#"} for index in range(5_000)}
    fanout = Fanout({"properties": own}, value_cost)
    assert fanout.of_root(3) == 7
    assert fanout.of_root(250) > 2**50


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
def test_levels_are_those_that_the_schema_looks_at(
    schema: dict[str, Any], levels: int | None
) -> None:
    assert Fanout(schema, value_cost).levels == levels


def test_a_member_costs_what_its_own_schemas_cost() -> None:
    schema: dict[str, Any] = {
        "properties": {"costly": {"allOf": [TEXT] * 50}, "cheap": TEXT},
        "additionalProperties": {"items": TEXT},
        "allOf": [{"properties": {"cheap": TEXT}}],
    }
    fanout = Fanout(schema, value_cost)
    found = [fanout.of_member(name, 3) for name in ("costly", "cheap", "other")]
    assert found == [2 + 51, 2 + 2, 2 + 2]


def test_a_node_of_plain_keywords_costs_one_unit() -> None:
    assert value_cost({"type": "string", "maxLength": 5, "title": "x"}) == 1
    assert value_cost({"minimum": 0, "maximum": 2**53 - 1, "multipleOf": 5}) == 1
    assert value_cost({"uniqueItems": False}) == 1


@pytest.mark.parametrize(
    "node",
    [
        {"enum": [{"a": index} for index in range(1000)]},
        {"enum": [*MANY, 5]},
        {"enum": [index + 0.5 for index in range(1000)]},
        {"const": [*range(1000)]},
        {"required": MANY},
        {"dependentRequired": {str(name): ["a"] for name in MANY}},
        {"dependentRequired": {"a": MANY}},
        {"dependencies": {"a": MANY}},
        {"dependentSchemas": dict.fromkeys(map(str, MANY), True)},
        {"patternProperties": dict.fromkeys(map(str, MANY), True)},
    ],
)
def test_lists_in_a_node_cost_as_much_as_they_are_long(node: dict[str, Any]) -> None:
    assert value_cost(node) > 1000


@pytest.mark.parametrize("options", [MANY, [*range(1000)]])
def test_an_enum_of_texts_or_of_integers_costs_one_unit(options: list[Any]) -> None:
    assert value_cost({"enum": options}) == 1


def test_slow_numbers_are_compared_with_bounds_and_with_numbers_among_the_options() -> None:
    assert number_cost({"minimum": 1, "maximum": 5}) == 2
    assert number_cost({"enum": [1, True, "x", {"a": [2, 3.5]}]}) == 4 * 3
    assert number_cost({"type": "number"}) == 0


def test_numbers_far_from_one_cost_most() -> None:
    plain, fraction, *extreme = (
        value_cost({"minimum": number}) for number in (5, 0.5, 1e300, -1e-300, 10**400)
    )
    assert plain < fraction < min(extreme)


def test_patterns_cost_their_states() -> None:
    node: dict[str, Any] = {"pattern": "a{100}", "patternProperties": {"b{50}": {}, "c": {}}}
    assert character_cost(node) == 151
    assert character_cost({"pattern": 5}) == 0


@pytest.mark.parametrize(
    ("pattern", "states"),
    [
        ("", 1),
        ("^abc$", 3),
        ("a+b*c?|d", 4),
        (r"[a-z\]]{36}", 36),
        (r"[^\s@]{1,255}x", 256),
        (r"(\w{1,100}){1,20}x", 2001),
        ("(?:(ab{3}){2}c){10}", (4 * 2 + 1 + 1) * 10),
        (r"\{5}", 3),
        (r"\p{L}{4}", 4),
        ("a{2}{3}", 6),
        ("a{0}", 1),
        ("a{5,}", 5),
        ("[", 1),
        ("((", 1),
        (")", 1),
    ],
)
def test_states_are_counted(pattern: str, states: int) -> None:
    assert count_states(pattern) == states


@pytest.mark.parametrize("pattern", ["a{99999999999999999999}", "(" * 500 + "a" + "){1000}" * 500])
def test_states_are_bounded(pattern: str) -> None:
    assert count_states(pattern) >= 1 << 30


def test_all_patterns_of_a_schema_are_found() -> None:
    half = "a{30000}"
    schema: dict[str, Any] = {
        "properties": {"a": {"pattern": half}, "pattern": {"type": "string"}},
        "anyOf": [{"items": {"patternProperties": {"cc": {"pattern": half}}}}],
    }
    assert "patterns are too large or too many" in SchemaLimits(schema).problem


def test_values_levels_and_characters_are_measured() -> None:
    value = {"a": [1, {"bc": 2}, ("x", None)], "c": "text"}
    assert measure(value) == InputSize(9, 3, 9)
    assert measure(5) == InputSize(1)
    assert measure({"a": [], "b": {}}) == InputSize(3, 1, 2)


def test_subclasses_are_measured_as_their_types() -> None:
    class Text(str):
        pass

    assert measure(OrderedDict[str, str](a=Text("abc"))) == InputSize(2, 1, 4)


def test_numbers_count_by_what_comparing_them_takes() -> None:
    plain = measure([0.5]).number_units
    assert measure([1, 2, True, 2**63]).number_units == 0
    assert measure([1, 0.5, 0.5]).number_units == 2 * plain
    assert plain < measure([1e300]).number_units < measure([10**4000, 1]).number_units


def test_measuring_ends_when_there_are_too_many_values() -> None:
    rows = [["x"] * 1000] * 1000
    assert measure(rows).values > MAX_INPUT_VALUES
    assert measure(rows).characters == 0


def test_measuring_ends_at_the_level_that_the_schema_looks_at() -> None:
    assert measure({"a": [1] * 1000}, levels=1) == InputSize(2, 1, 1)
    assert measure({"a": [1] * 1000}, levels=0) == InputSize(1)


def test_a_value_that_is_too_deep_is_not_followed_to_its_end() -> None:
    value: object = 1
    for _ in range(5000):
        value = [value]
    assert measure(value).depth < 300
