"""JSON Schema as TypeScript types."""

import string
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nacre.json_types import JsonValue
from nacre.tools.declarations.types import MAX_TYPE_CHARACTERS, RenderedType, input_type_of, type_of
from nacre.tools.declarations.typescript import TypeNames
from tests.tools.declarations.typescript_compiler import TypeScriptCompiler

TREE: JsonValue = {
    "$ref": "#/$defs/Tree",
    "$defs": {
        "Tree": {
            "type": "object",
            "properties": {
                "name": {"type": "string"},
                "children": {"type": "array", "items": {"$ref": "#/$defs/Tree"}},
            },
            "required": ["name"],
        }
    },
}


def statements(found: RenderedType) -> str:
    return "\n".join([*found.named, f"type Whole = {found.text};"])


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ({"type": "string"}, "string"),
        ({"type": "integer", "minimum": 1}, "number"),
        ({"type": "number"}, "number"),
        ({"type": "boolean"}, "boolean"),
        ({"type": "null"}, "null"),
        ({}, "unknown"),
        (True, "unknown"),
        (False, "never"),
        ({"not": {}}, "never"),
        ({"not": {"type": "string"}}, "unknown"),
        ({"type": "string", "not": {"const": "a"}}, "string"),
        ({"type": "colour"}, "unknown"),
        ({"type": ["string", "null"]}, "string | null"),
        ({"type": "string", "nullable": True}, "string | null"),
        ({"enum": ["a", 1, 1.5, None, True]}, '"a" | 1 | 1.5 | null | true'),
        ({"enum": ["a", "a"]}, '"a"'),
        ({"const": {"a": [1, "x"]}}, '{"a": [1, "x"]}'),
        ({"const": 10**30}, "number"),
        ({"type": "array"}, "unknown[]"),
        ({"type": "array", "items": {"type": "string"}}, "string[]"),
        ({"items": {"type": ["string", "number"]}}, "Array<string | number>"),
        ({"prefixItems": [{"type": "string"}, {"const": 1}]}, "[string, 1]"),
        (
            {"prefixItems": [{"type": "string"}], "items": {"type": "number"}},
            "[string, ...number[]]",
        ),
        (
            {"items": [{"type": "string"}], "additionalItems": True},
            "[string, ...unknown[]]",
        ),
        ({"type": "object"}, "{ [key: string]: unknown }"),
        ({"type": "object", "additionalProperties": False}, "{}"),
        (
            {"additionalProperties": {"type": "number"}},
            "{ [key: string]: number }",
        ),
        (
            {"patternProperties": {"^x-": {"type": "string"}}, "additionalProperties": False},
            "{ [key: string]: string }",
        ),
        (
            {"properties": {"a": {"type": "string"}}, "additionalProperties": {"type": "number"}},
            "{ a?: string } & { [key: string]: number }",
        ),
        (
            {"properties": {"a": True}, "additionalProperties": True},
            "{ a?: unknown; [key: string]: unknown }",
        ),
        ({"required": ["a"]}, "{ a: unknown }"),
        (
            {"properties": {"odd name": {}, "new": False, "日": {}}},
            '{\n  "odd name"?: unknown;\n  new?: never;\n  "日"?: unknown;\n}',
        ),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, "string | null"),
        ({"oneOf": [{"const": "a"}, {"const": "b"}], "type": "string"}, '"a" | "b"'),
        (
            {"allOf": [{"required": ["a"]}, {"anyOf": [{"required": ["b"]}, {"type": "null"}]}]},
            "{ a: unknown } & ({ b: unknown } | null)",
        ),
        (
            {"anyOf": [{"allOf": [{"required": ["a"]}, {"required": ["b"]}]}, {"type": "null"}]},
            "({ a: unknown } & { b: unknown }) | null",
        ),
        ({"allOf": [{"type": "string"}, False]}, "never"),
        (
            {
                "type": "array",
                "items": {"$ref": "#/definitions/A"},
                "definitions": {"A": {"const": 1}},
            },
            "1[]",
        ),
        ({"$ref": "#/$defs/a~1b%20c", "$defs": {"a/b c": {"type": "string"}}}, "string"),
        ({"$ref": "https://example.com/a.json"}, "unknown /* unresolved reference */"),
        ({"$ref": "#/$defs/missing"}, "unknown /* unresolved reference */"),
        ({"prefixItems": [{"const": 1}, {"$ref": "#/prefixItems/0"}]}, "[1, 1]"),
        ({"prefixItems": [{"$ref": "#/prefixItems/7"}]}, "[unknown /* unresolved reference */]"),
        ({"$ref": "#"}, "unknown"),
        ({"$ref": 5, "type": "string"}, "string"),
        (None, "unknown"),
        ("string", "unknown"),
        ([], "unknown"),
    ],
)
def test_a_schema_has_this_type(schema: JsonValue, text: str) -> None:
    assert type_of(schema) == RenderedType(text=text)


def test_a_long_object_has_a_line_for_each_member_and_comments_above_them() -> None:
    schema: JsonValue = {
        "properties": {
            "since": {
                "type": "string",
                "format": "date-time",
                "description": "Only\nafter  this",
            },
            "limit": {"type": "integer", "minimum": 1, "maximum": 100, "default": 30},
            "inner": {
                "properties": {"a": {"type": "string", "description": "Deep", "default": ""}}
            },
        },
        "required": ["since"],
    }
    assert type_of(schema).text == (
        "{\n"
        "  /** Only after this (date-time) */\n"
        "  since: string;\n"
        "  /** (1 to 100, default 30) */\n"
        "  limit?: number;\n"
        "  inner?: {\n"
        '    /** Deep (default "") */\n'
        "    a?: string;\n"
        "  };\n"
        "}"
    )


def test_a_default_that_cannot_be_shown_is_told_of() -> None:
    schema: JsonValue = {"properties": {"a": {"default": 10**5000}, "b": {"default": "x" * 500}}}
    found = input_type_of(schema, name="Input", names=TypeNames())
    assert found.comments == (
        ("a", "(default too long to show)"),
        ("b", "(default too long to show)"),
    )


def test_comments_of_the_input_members_are_given_apart() -> None:
    schema: JsonValue = {"properties": {"a b": {"description": "First"}, "c": {}}}
    assert input_type_of(schema, name="Input", names=TypeNames()) == RenderedType(
        text='{ "a b"?: unknown; c?: unknown }', comments=(('"a b"', "First"), ("c", ""))
    )


def test_a_type_inside_itself_is_named() -> None:
    assert type_of(TREE, name="Input") == RenderedType(
        text="InputTree",
        named=("type InputTree = { name: string; children?: InputTree[] };",),
    )


def test_a_schema_that_contains_itself_as_a_whole_is_named_as_a_whole() -> None:
    schema: JsonValue = {"properties": {"next": {"$ref": "#"}}}
    assert type_of(schema, name="Input") == RenderedType(
        text="Input", named=("type Input = { next?: Input };",)
    )


def test_a_long_type_that_is_used_twice_is_named_and_a_short_one_is_not() -> None:
    long: JsonValue = {"enum": ["a" * 40, "b" * 40]}
    schema: JsonValue = {
        "prefixItems": [
            {"$ref": "#/$defs/long-one"},
            {"$ref": "#/$defs/long-one"},
            {"$ref": "#/$defs/short"},
            {"$ref": "#/$defs/short"},
        ],
        "$defs": {"long-one": long, "short": {"type": "string"}},
    }
    found = type_of(schema, name="Input")
    assert found.text == "[InputLongOne, InputLongOne, string, string]"
    assert found.named == (f'type InputLongOne = "{"a" * 40}" | "{"b" * 40}";',)


def test_types_of_one_file_have_different_names() -> None:
    names = TypeNames()
    texts = [type_of(TREE, name="Input", names=names).text for _ in range(3)]
    assert texts == ["InputTree", "InputTree2", "InputTree3"]


def test_long_types_of_one_file_have_different_names_too() -> None:
    schema: JsonValue = {
        "prefixItems": [{"$ref": "#/$defs/A"}, {"$ref": "#/$defs/A"}],
        "$defs": {"A": {"const": "a" * 80}},
    }
    names = TypeNames()
    texts = [type_of(schema, name="Input", names=names).text for _ in range(2)]
    assert texts == ["[InputA, InputA]", "[InputA2, InputA2]"]


def test_the_description_of_a_referenced_type_stands_in_for_a_missing_one() -> None:
    schema: JsonValue = {
        "properties": {"a": {"$ref": "#/$defs/A"}, "b": {"$ref": "#/$defs/A", "description": "B"}},
        "$defs": {"A": {"type": "string", "description": "Of A"}},
    }
    found = input_type_of(schema, name="Input", names=TypeNames())
    assert found.comments == (("a", "Of A"), ("b", "B"))


@pytest.mark.parametrize(
    ("description", "shown"),
    [
        ("ends */ here", "ends *\\/ here"),
        ("*\u200b/ and *\x00/", "*\\/ and *\\/"),
        ("a\r\nb\u2028c\u2029d\x85e\tf", "a b c d e f"),
        ("left \u202eright\U000e0041", "left right"),
        ("half \ud800", "half"),
        ("x" * 5000, "x" * 999 + "…"),
        (" " * 5000 + "far away", "…"),
    ],
)
def test_a_description_stays_in_its_comment(description: str, shown: str) -> None:
    found = input_type_of(
        {"properties": {"a": {"description": description}}}, name="Input", names=TypeNames()
    )
    assert found.comments[0][1].rstrip() == shown


def test_names_and_values_with_odd_characters_are_escaped() -> None:
    schema: JsonValue = {"properties": {'"\u2028\ud800': {"const": "\u202e\U000e0041'`"}}}
    assert type_of(schema).text == (r'{ "\"\u2028\ud800"?: "' + r"\u202e\u{e0041}'`" + '" }')


def test_a_long_enum_shows_its_first_values_and_how_many_follow() -> None:
    text = type_of({"type": "string", "enum": [f"value{n}" for n in range(5000)]}).text
    assert text.startswith('"value0" | "value1" | ')
    assert text.endswith(" more */")
    assert "string /* shortened: 4" in text


def deep(levels: int) -> JsonValue:
    schema: JsonValue = {"type": "string"}
    for _ in range(levels):
        schema = {"properties": {"a": schema}}
    return schema


def doubling(levels: int) -> JsonValue:
    """Each type holds the next one twice."""
    names = [f"T{n}" for n in range(levels + 1)]
    defs: dict[str, JsonValue] = {
        name: {"properties": {side: {"$ref": f"#/$defs/{after}"} for side in ("left", "right")}}
        for name, after in pairwise(names)
    }
    return {"$ref": "#/$defs/T0", "$defs": defs}


def uncounted(levels: int) -> JsonValue:
    """So many parts that nobody counts how often a type is used."""
    schema = doubling(levels)
    assert isinstance(schema, dict)
    return {**schema, "examples": list[JsonValue](range(50_000))}


def wide(count: int) -> JsonValue:
    return {"properties": {f"member{n}": {"description": "Long " * 50} for n in range(count)}}


HOSTILE: dict[str, JsonValue] = {
    "deep": deep(240),
    "doubling": doubling(200),
    "uncounted": uncounted(15),
    "doubling in place": {
        "$ref": "#/$defs/0",
        "$defs": {
            str(n): {"allOf": [{"$ref": f"#/$defs/{n + 1}"}, {"$ref": f"#/$defs/{n + 1}"}]}
            for n in range(60)
        },
    },
    "wide": wide(20_000),
    "required": {"required": list[JsonValue](f"name{n}" for n in range(50_000))},
    "choices": {"anyOf": list[JsonValue]({"const": n} for n in range(50_000))},
    "tuple": {"prefixItems": list[JsonValue]({"const": n} for n in range(50_000))},
    "long names": {"properties": {"n" * 100_000: {}, "ok": {"type": "string"}}},
    "long const": {"const": list[JsonValue](["x"]) * 100_000},
    "deep const": {"const": deep(240)},
    "deep default": {"properties": {"a": {"default": deep(240)}}},
    "long reference": {"$ref": "#" + "/a" * 100_000},
    "circle": {
        "$ref": "#/$defs/A",
        "$defs": {"A": {"$ref": "#/$defs/B"}, "B": {"anyOf": [{"$ref": "#/$defs/A"}]}},
    },
    "types": {
        "type": list[JsonValue](["object", "array"]) * 1000,
        "items": deep(30),
        "properties": {"a": deep(30)},
    },
    "proto": {"properties": {"__proto__": {}, "constructor": {}, "toString": {}}},
    "nonsense": {
        "type": {},
        "properties": [1],
        "required": {"a": 1},
        "items": "x",
        "enum": {},
        "anyOf": "y",
        "description": 5,
        "$ref": [],
        "additionalProperties": 3,
        "patternProperties": None,
        "format": [],
        "minimum": "z",
        "default": {},
    },
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_the_text_for_a_hostile_schema_is_bounded(kind: str) -> None:
    found = type_of(HOSTILE[kind])
    assert len(statements(found)) < 2 * MAX_TYPE_CHARACTERS + 2_000


def test_what_was_left_out_is_told() -> None:
    wide_text = type_of(HOSTILE["wide"]).text
    assert "?: unknown;\n" in wide_text
    assert "?: unknown /* shortened */;\n" in wide_text
    assert " more */;\n}" in wide_text
    assert "unknown /* shortened */" in type_of(HOSTILE["deep"]).text
    assert type_of(HOSTILE["long names"]).text == (
        "{\n  ok?: string;\n  [key: string]: unknown /* shortened: 1 more */;\n}"
    )


def test_what_follows_a_doubling_type_is_bounded_by_naming_it() -> None:
    found = type_of(doubling(10), name="Input")
    assert len(statements(found)) < 2_000


def test_hostile_schemas_parse_and_their_names_are_known(compiler: TypeScriptCompiler) -> None:
    texts = [statements(type_of(schema)) for schema in HOSTILE.values()]
    assert compiler.meaning_problems(texts) == []


APPLICATORS = [
    "properties",
    "items",
    "prefixItems",
    "additionalProperties",
    "anyOf",
    "allOf",
    "not",
]
OLD_ONES = ["definitions", "additionalItems", "patternProperties", "oneOf", "nullable"]
VALUES = ["type", "required", "enum", "const", "$ref", "$defs", "A", "B"]
COMMENTS = ["description", "default", "format", "minimum", "maximum"]
KEYWORDS = [*APPLICATORS, *OLD_ONES, *VALUES, *COMMENTS]
TEXTS = st.one_of(
    st.sampled_from(
        [*KEYWORDS, "string", "object", "array", "integer", "null", "#", "#/$defs/A", "#/$defs/B"]
    ),
    st.sampled_from(
        ["*/", "//", "`", "${", "'", '"', "\\", "\u2028", "\n", "\ud800", "new", "get"]
    ),
    st.text(max_size=8),
    st.text(alphabet=string.punctuation, max_size=8),
)
SCHEMAS = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), TEXTS),
    lambda parts: st.one_of(
        st.lists(parts, max_size=4),
        st.dictionaries(TEXTS, parts, max_size=4),
        st.dictionaries(st.sampled_from(KEYWORDS), parts, max_size=6),
        st.fixed_dictionaries({"properties": st.dictionaries(TEXTS, parts, max_size=4)}),
        st.fixed_dictionaries({"$defs": st.fixed_dictionaries({"A": parts, "B": parts})}),
    ),
    max_leaves=30,
)


def test_whatever_the_schema_is_the_text_parses(compiler: TypeScriptCompiler) -> None:
    texts: list[str] = []

    # Collected first, so that one process of the compiler serves all.
    @settings(max_examples=300, deadline=None)
    @given(SCHEMAS)
    def collect(schema: object) -> None:
        texts.append(statements(type_of(schema)))
        texts.append(statements(input_type_of(schema, name="Input", names=TypeNames())))

    collect()
    assert compiler.syntax_problems(texts) == []
