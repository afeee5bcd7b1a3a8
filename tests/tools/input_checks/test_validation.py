"""Inputs against schemas, where neither can be trusted."""

import gc
import logging
from typing import Any, cast

import pytest

from nacre.errors import ToolFailedError, ToolInputError
from nacre.json_types import JsonObject, JsonValue
from nacre.tools.definition import Tool, ToolCall
from nacre.tools.input_checks.validation import InputValidators


async def nothing(given: dict[str, Any], call: ToolCall) -> object:
    raise NotImplementedError


def a_tool(schema: dict[str, Any]) -> Tool:
    return Tool(name="notes_add", owner="notes", parameters=schema, execute=nothing)


def problems_of(schema: dict[str, Any], given: object) -> str:
    with pytest.raises(ToolInputError) as caught:
        InputValidators().check(a_tool(schema), given)
    assert caught.value.tool_id == "openclaw:notes:notes_add"
    return caught.value.message


def broken(schema: dict[str, Any], given: object = None) -> str:
    with pytest.raises(ToolFailedError) as caught:
        InputValidators().check(a_tool(schema), given)
    assert caught.value.code == "tool_failed"
    assert "its owner, notes, has to repair it" in caught.value.message
    return caught.value.message


NOTE: dict[str, Any] = {
    "type": "object",
    "properties": {
        "title": {"type": "string", "minLength": 1},
        "limit": {"type": "integer", "maximum": 100},
        "color": {"enum": ["red", "green"]},
        "until": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "shape": {
            "anyOf": [
                {"type": "object", "properties": {"kind": {"const": "circle"}}},
                {"type": "object", "properties": {"kind": {"const": "square"}}},
                {"type": "null"},
            ]
        },
        "rows": {"type": "array", "items": {"$ref": "#/$defs/row"}},
    },
    "required": ["title"],
    "additionalProperties": False,
    "$defs": {
        "row": {
            "type": "object",
            "properties": {"id": {"type": "integer"}},
            "additionalProperties": False,
        }
    },
}


@pytest.mark.parametrize(
    "given",
    [
        {"title": "x"},
        {"title": "x", "limit": 100, "color": "red", "until": None, "shape": {"kind": "square"}},
        {"title": "half a pair: \ud800", "rows": [{"id": 1}]},
    ],
)
def test_an_input_that_fits_is_passed_on_as_it_is(given: JsonObject) -> None:
    assert InputValidators().check(a_tool(NOTE), given) is given


def test_no_input_is_an_empty_object() -> None:
    assert InputValidators().check(a_tool({"type": "object"}), None) == {}


@pytest.mark.parametrize(("given", "shown"), [([1], "[1]"), ("x", '"x"'), (5, "5")])
def test_an_input_that_is_no_object_is_refused(given: object, shown: str) -> None:
    assert problems_of(NOTE, given) == f"the input is {shown}; notes_add takes one object"


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({}, "`$.title`: is required"),
        ({"title": 5}, "`$.title`: is the number 5; allowed: string"),
        ({"title": None}, "`$.title`: is null; allowed: string"),
        ({"title": ""}, '`$.title`: "" is shorter than 1 character'),
        ({"title": "x", "limit": 900}, "`$.limit`: 900 is greater than the maximum of 100"),
        ({"title": "x", "color": "blue"}, '`$.color`: "blue" is not one of "red" or "green"'),
        ({"title": "x", "until": 3}, "`$.until`: is the number 3; allowed: string or null"),
        (
            {"title": "x", "shape": {"kind": "cube"}},
            '`$.shape`: fits no alternative: `$.shape.kind`: "circle" was expected, '
            'or `$.shape.kind`: "square" was expected',
        ),
        ({"title": "x", "Limmit": 1}, "`$.Limmit`: is not known; did you mean `limit`?"),
        (
            {"title": "x", "zzz": 1},
            "`$.zzz`: is not known; known: title, limit, color, until, shape, rows",
        ),
        (
            {"title": "x", "rows": [{}, {"ID": 1}]},
            "`$.rows[1].ID`: is not known; did you mean `id`",
        ),
        ({"title": "x", "odd key": 1}, '`$["odd key"]`: is not known'),
        ({"title": "x", "__proto__": 1}, "`$.__proto__`: is not known"),
    ],
)
def test_a_problem_is_named_by_path_value_and_what_is_allowed(
    given: JsonObject, problem: str
) -> None:
    message = problems_of(NOTE, given)
    assert message.startswith("the input does not fit notes_add:\n- ")
    assert problem in message


def test_the_first_five_problems_are_listed_and_the_rest_counted() -> None:
    rows: list[JsonValue] = [{"id": "x"}] * 8
    lines = problems_of(NOTE, {"title": "x", "rows": rows}).splitlines()
    assert lines[5:7] == ['- `$.rows[4].id`: is the string "x"; allowed: integer', "- and 3 more"]
    assert lines[7].startswith('given: {"title": "x", "rows": [{"id": "x"}')


@pytest.mark.parametrize(
    "given",
    [
        {"title": ["x" * 1_000_000]},
        {"title": "x", "k" * 1_000_000: 1},
        {"title": "x", **{f"key{index}": 1 for index in range(5_000)}},
        {"title": "x", "rows": [1] * 200_000},
        {"rows": [{"id": index} for index in range(100_000)]},
    ],
)
def test_a_message_stays_short_whatever_the_input_is(given: JsonObject) -> None:
    assert len(problems_of(NOTE, given)) < 3_000


def test_a_large_input_still_learns_what_is_wrong_at_the_top() -> None:
    message = problems_of(NOTE, {"titel": "x", "rows": [{"id": 1}] * 50_000})
    assert "`$.title`: is required" in message
    assert "`$.titel`: is not known; did you mean `title`?" in message


def test_an_input_that_is_too_large_to_check_is_refused_without_blaming_the_schema() -> None:
    message = problems_of(NOTE, {"title": "x", "rows": [{"id": 1}] * 200_000})
    assert message.startswith(
        "the input is too large to be checked against the schema of notes_add"
    )
    assert "at most 250,000 values" in message


def names(count: int) -> list[str]:
    return [f"a{index}" for index in range(count)]


@pytest.mark.parametrize(
    ("schema", "given", "problem"),
    [
        ({"required": names(15_000)}, {}, "- `$.a4`: is required\n- and more\n"),
        (
            {"dependentRequired": {name: names(300)[100:] for name in names(50)}},
            dict.fromkeys(names(50), 1),
            "- `$.a100`: is required\n- `$`: may have more problems; it is too large to list",
        ),
        (
            {"properties": {"l": {"items": {"type": "integer"}}}},
            {"l": [*[1] * 20_000, "x"]},
            '- `$.l[20000]`: is the string "x"; allowed: integer\n',
        ),
    ],
)
def test_errors_are_not_all_made_where_there_may_be_very_many(
    schema: dict[str, Any], given: JsonObject, problem: str
) -> None:
    validators, tool = InputValidators(), a_tool({"type": "object", **schema})
    compiled = validators._schema_of(tool)  # pyright: ignore[reportPrivateUsage]
    only_one_by_one = OneByOne(compiled.validator)
    object.__setattr__(compiled, "validator", only_one_by_one)
    with pytest.raises(ToolInputError) as caught:
        validators.check(tool, given)
    assert problem in caught.value.message


class OneByOne:
    """A validator that cannot be asked for all errors."""

    def __init__(self, validator: Any) -> None:
        self.is_valid = validator.is_valid
        self.validate = validator.validate


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"password": "hunter2"}, '`$.password`: is the string "[redacted]"; allowed: integer'),
        ({"login": {"apiKey": ["hunter2"]}}, '`$.login.apiKey[0]`: is the string "[redacted]"'),
        ({"login": [{"token": "hunter2"}]}, '`$.login`: is the array [{"token": "[redacted]"}]'),
        ({"pin": {"secret": "hunter2"}}, '`$.pin`: {"secret": "[redacted]"} is not one of'),
        ({"password": True}, "`$.password`: is the boolean true"),
        ({"pin": "sk-abcdefghijklmnop123"}, '`$.pin`: "[redacted]" is not one of'),
    ],
)
def test_secrets_of_an_input_are_not_repeated(given: JsonObject, problem: str) -> None:
    keys = {"type": "array", "items": {"type": "integer"}}
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {
            "password": {"type": "integer"},
            "login": {"type": "object", "properties": {"apiKey": keys}},
            "pin": {"enum": [1, 2]},
        },
    }
    message = problems_of(schema, given)
    assert problem in message
    assert "hunter2" not in message
    assert "sk-abc" not in message


@pytest.mark.parametrize("given", [{1: "a"}, {"title": "x", "\ud800": 1}, {"\ud800": 1}])
def test_an_input_that_is_not_json_is_refused(given: object) -> None:
    assert problems_of(NOTE, given).startswith("the input is not JSON: ")


@pytest.mark.parametrize(
    ("part", "problem"),
    [
        ({"type": "strng"}, "`$.properties.a.type`"),
        ({"$ref": "#/nowhere"}, "does not exist"),
        ({"$ref": "https://example.com/schema.json"}, "is not of the form `#/...`"),
        ({"$ref": "file:///etc/passwd"}, "is not of the form `#/...`"),
        ({"$dynamicRef": "#x"}, "is not of the form `#/...`"),
        ({"$id": "https://example.com/", "$ref": "#/x"}, "is not of the form `#/...`"),
        ({"patternProperties": {"(?=a)b": {}}}, "patternProperties"),
    ],
)
def test_a_tool_with_a_broken_schema_is_refused_and_nothing_is_fetched(
    part: dict[str, Any], problem: str
) -> None:
    message = broken({"type": "object", "properties": {"a": part}})
    assert message.startswith("notes_add cannot be called: its input schema is broken (")
    assert problem in message


def test_an_unknown_dialect_is_refused() -> None:
    assert "Unknown meta-schema" in broken({"$schema": "https://example.com/s", "type": "object"})


def test_a_broken_schema_is_refused_every_time() -> None:
    validators, tool = InputValidators(), a_tool({"type": "object", "properties": 5})
    for _ in range(2):
        with pytest.raises(ToolFailedError):
            validators.check(tool, {})


@pytest.mark.parametrize(
    ("pattern", "text"),
    [("^(a+)+$", "a" * 100_000 + "!"), ("^(a|a)*$", "a" * 100_000 + "!")],
)
def test_a_pattern_that_makes_others_backtrack_is_matched_in_linear_time(
    pattern: str, text: str
) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string", "pattern": pattern}}}
    assert "does not match" in problems_of(schema, {"a": text})


def test_a_pattern_that_needs_backtracking_is_left_to_the_tool_and_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {
            "mail": {"$ref": "#/$defs/mail"},
            "size": {"type": "string", "pattern": "^(?=1)1$", "maxLength": 2},
            "pattern": {"type": "integer"},
        },
        "$defs": {"mail": {"type": "string", "pattern": r"^(?!\.)[^@]+@[^@]+$"}},
    }
    validators, tool = InputValidators(), a_tool(schema)
    with caplog.at_level(logging.WARNING):
        validators.check(tool, {"mail": "anything", "size": "x", "pattern": 1})
    assert len(caplog.records) == 2
    assert "$.$defs.mail.pattern is left to the tool" in caplog.text
    with pytest.raises(ToolInputError, match="longer than 2 characters"):
        validators.check(tool, {"size": "xxx"})
    assert schema["properties"]["size"]["pattern"] == "^(?=1)1$"


@pytest.mark.parametrize(("others", "attempts"), [(0, 50), (4_000, 7)])
def test_a_schema_is_not_compiled_again_and_again(others: int, attempts: int) -> None:
    properties: dict[str, Any] = {f"p{index}": {"pattern": "(?=a)"} for index in range(60)}
    properties |= {f"q{index}": {"type": "string"} for index in range(others)}
    schema = {"type": "object", "properties": properties}
    assert f"({attempts} of its patterns, or more, cannot be matched)" in broken(schema)


def test_a_property_named_like_an_index_is_found() -> None:
    part: dict[str, Any] = {"type": "object", "properties": {"0": {"pattern": "(?=a)"}}}
    schema: dict[str, Any] = {"type": "object", "properties": {"0": part, "1": {"type": "null"}}}
    message = problems_of(schema, {"0": {"0": "x"}, "1": "y"})
    assert 'is the string "y"; allowed: null' in message


def doubling(levels: int, *, below: bool) -> dict[str, Any]:
    """A schema that looks at a value 2^levels times."""

    def twice(level: int) -> dict[str, Any]:
        step: dict[str, Any] = {"$ref": f"#/$defs/d{level + 1}"}
        part: dict[str, Any] = {"properties": {"a": step}} if below else step
        return {"anyOf": [part, part]}

    defs: dict[str, Any] = {f"d{level}": twice(level) for level in range(levels)}
    defs[f"d{levels}"] = {"type": "string"}
    return {"type": "object", "properties": {"a": {"$ref": "#/$defs/d0"}}, "$defs": defs}


def nested(depth: int) -> JsonObject:
    value: JsonValue = 5
    for _ in range(depth):
        value = {"a": value}
    return cast("JsonObject", value)


def test_a_schema_of_endless_alternatives_is_refused_before_it_is_applied() -> None:
    assert "too many alternatives" in broken(doubling(40, below=False), {"a": 5})
    assert "asks for so much work" in broken(doubling(40, below=True), nested(42))


def test_a_few_alternatives_more_are_checked_but_not_explained() -> None:
    schema = doubling(15, below=False)
    assert "would take too long to say" in problems_of(schema, {"a": 5})
    assert InputValidators().check(a_tool(schema), {"a": "x"}) == {"a": "x"}


TREE: dict[str, Any] = {
    "type": "object",
    "properties": {"children": {"type": "array", "items": {"$ref": "#"}}, "name": {}},
    "additionalProperties": {"$ref": "#"},
}
ANY_JSON: dict[str, Any] = {
    "type": "object",
    "properties": {"a": {"$ref": "#/$defs/any"}},
    "$defs": {
        "any": {
            "anyOf": [
                {"type": ["number", "string", "null"]},
                {"type": "array", "items": {"$ref": "#/$defs/any"}},
                {"type": "object", "additionalProperties": {"$ref": "#/$defs/any"}},
            ]
        }
    },
}


def test_a_schema_may_contain_itself() -> None:
    tree: JsonObject = {"name": "a", "children": [{"children": [{"name": 1}]}], "more": {"x": {}}}
    assert InputValidators().check(a_tool(TREE), tree) is tree
    assert InputValidators().check(a_tool(ANY_JSON), nested(250)) == nested(250)
    assert "`$.children[0]`: is the number 5; allowed: object" in problems_of(
        TREE, {"children": [5]}
    )


@pytest.mark.parametrize("loop", [{"allOf": [{"$ref": "#"}]}, {"$ref": "#"}])
def test_a_schema_that_only_leads_back_to_itself_is_refused(loop: dict[str, Any]) -> None:
    assert "or leads to itself" in broken({"type": "object", **loop})


def test_a_schema_changed_after_the_first_call_does_not_change_the_check() -> None:
    schema: dict[str, Any] = {"type": "object", "properties": {"a": {"type": "string"}}}
    validators, tool = InputValidators(), a_tool(schema)
    validators.check(tool, {"a": "x"})
    schema["properties"]["a"]["type"] = "integer"
    assert validators.check(tool, {"a": "x"}) == {"a": "x"}


def test_two_tools_with_the_same_name_have_their_own_schemas() -> None:
    validators = InputValidators()
    first, second = a_tool(NOTE), a_tool({"type": "object"})
    with pytest.raises(ToolInputError):
        validators.check(first, {})
    assert validators.check(second, {}) == {}


def test_the_schema_of_a_tool_that_is_gone_is_forgotten() -> None:
    validators = InputValidators()
    validators.check(a_tool({"type": "object"}), {})
    gc.collect()
    assert not validators._compiled  # pyright: ignore[reportPrivateUsage]
