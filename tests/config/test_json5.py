"""Changing one member of a JSON5 text: the rest of the text stays as a person wrote it."""

import json
from textwrap import dedent
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from nacre.config.json5 import parse_json5, with_member, without_member
from nacre.errors import ConfigError
from nacre.json_types import JsonValue

COMMENTED = dedent("""\
    // The shop's agents.
    {
      tools: {codeMode: true}, // on
      mcp: {
        /* those { of } ops */
        servers: {
          // where the code is
          "git": {
            command: 'uvx', // fast
            args: ["mcp-server-git"],
          },
          time: {command: "uvx"} // last
          // add more here
        },
      },
    }
    """)


def set_in(text: str, keys: str, value: JsonValue) -> str:
    return with_member(text, keys.split("."), value, path="nacre.json5")


def remove_in(text: str, keys: str) -> str | None:
    return without_member(text, keys.split("."), path="nacre.json5")


def test_a_new_member_is_the_last_and_comments_stay_where_they_are() -> None:
    lines = COMMENTED.splitlines(keepends=True)
    changed = set_in(COMMENTED, "mcp.servers.files", {"command": "npx", "args": ["é"]})
    assert changed.splitlines(keepends=True) == [
        *lines[:11],
        '      time: {command: "uvx"}, // last\n',
        "      // add more here\n",
        '      "files": {\n',
        '        "command": "npx",\n',
        '        "args": [\n',
        '          "é"\n',
        "        ]\n",
        "      }\n",
        *lines[13:],
    ]


def test_a_member_that_is_there_gets_the_new_value_in_its_place() -> None:
    assert set_in(COMMENTED, "mcp.servers.time", {"url": "https://a.b"}) == COMMENTED.replace(
        '{command: "uvx"} // last', '{\n        "url": "https://a.b"\n      } // last'
    )
    assert set_in(COMMENTED, "tools.codeMode", None) == COMMENTED.replace("true", "null")


def test_a_member_is_removed_with_its_line_and_nothing_else() -> None:
    removed = remove_in(COMMENTED, "mcp.servers.git")
    lines = COMMENTED.splitlines(keepends=True)
    assert removed == "".join([*lines[:7], *lines[11:]])


def test_without_the_last_member_the_one_before_loses_its_comma() -> None:
    text = '{\n  "a": 1, // one\n  "b": 2\n}\n'
    assert remove_in(text, "b") == '{\n  "a": 1 // one\n}\n'
    assert remove_in(text, "a") == '{\n  // one\n  "b": 2\n}\n'


@pytest.mark.parametrize(
    ("text", "key", "removed"),
    [
        ("{a: 1, b: 2, c: 3}", "a", "{b: 2, c: 3}"),
        ("{a: 1, b: 2, c: 3}", "b", "{a: 1, c: 3}"),
        ("{a: 1, b: 2, c: 3}", "c", "{a: 1, b: 2}"),
        ("{a: 1, b: 2,}", "b", "{a: 1,}"),
        ("{ a: 1 }", "a", "{ }"),
        ("{a: 1\n, b: 2}", "b", "{a: 1\n}"),
        ("{'a': 1, \"b\": 2}", "a", '{"b": 2}'),
    ],
)
def test_members_on_one_line_are_removed_from_it(text: str, key: str, removed: str) -> None:
    assert remove_in(text, key) == removed


@pytest.mark.parametrize(
    ("text", "changed"),
    [
        ("", '{\n  "a": {\n    "b": 1\n  }\n}\n'),
        (" \n", '{\n  "a": {\n    "b": 1\n  }\n}\n'),
        ("{}", '{\n  "a": {\n    "b": 1\n  }\n}'),
        ("{ // none yet\n}\n", '{ // none yet\n  "a": {\n    "b": 1\n  }\n}\n'),
        ("{c: 1}", '{c: 1, "a": {"b": 1}}'),
        ("{ c: 1, }", '{ c: 1, "a": {"b": 1}, }'),
        ("{c: 1 /* one */}", '{c: 1, /* one */ "a": {"b": 1}}'),
        ('{"a": {}}', '{"a": {"b": 1}}'),
        ("{ a: {} }", '{ a: {"b": 1} }'),
        ("{ a: {/* none */} }", '{ a: {/* none */ "b": 1} }'),
        ("{\n  a: {c: 1}, // one\n}", '{\n  a: {c: 1, "b": 1}, // one\n}'),
        ('{\n\t"a": {}\n}', '{\n\t"a": {\n    "b": 1\n  }\n}'),
        ('{\r\n    "a": {}\r\n}', '{\r\n    "a": {\r\n    "b": 1\r\n  }\r\n}'),
        ('\ufeff{"c": 1}', '\ufeff{"c": 1, "a": {"b": 1}}'),
        (
            '{\n  "a": {\n    "c": 1,\n  },\n}',
            '{\n  "a": {\n    "c": 1,\n    "b": 1,\n  },\n}',
        ),
    ],
)
def test_a_new_member_is_json_at_the_end_of_its_object(text: str, changed: str) -> None:
    assert set_in(text, "a.b", 1) == changed


def test_a_value_on_one_line_is_replaced_on_that_line() -> None:
    changed = set_in("{a: {b: true}}", "a.b", {"enabled": True, "x-y": [1, {}]})
    assert changed == '{a: {b: {"enabled": true, "x-y": [1, {}]}}}'


def test_a_strict_json_file_stays_strict_json() -> None:
    text = json.dumps({"mcp": {"servers": {"x": {"command": "y"}}}}, indent=2)
    changed = set_in(text, "mcp.servers.z", {"command": "w"})
    removed = remove_in(changed, "mcp.servers.x")
    assert removed is not None
    assert json.loads(removed) == {"mcp": {"servers": {"z": {"command": "w"}}}}


@pytest.mark.parametrize(
    "key",
    ["__proto__", "a b", "ünï", "\u2028", 'qu"ote', "back\\slash", "", "null", "//", "\U0001f600"],
)
def test_any_key_can_be_set_found_again_and_removed(key: str) -> None:
    changed = with_member(COMMENTED, ["mcp", key], 1, path="f")
    again = with_member(changed, ["mcp", key], 2, path="f")
    assert again == changed.replace(": 1", ": 2")
    assert without_member(again, ["mcp", key], path="f") == COMMENTED


@pytest.mark.parametrize("written", ['"git"', "'git'", "git", "g\\u0069t", "'g\\x69t'"])
def test_a_key_is_found_however_it_is_written(written: str) -> None:
    assert remove_in(f"{{{written}: 1}}", "git") == "{}"


@pytest.mark.parametrize("keys", ["nothing", "mcp.nothing", "nothing.at.all", "mcp.servers.git.x"])
def test_what_is_not_there_is_not_removed(keys: str) -> None:
    assert remove_in(COMMENTED, keys) is None
    assert remove_in("", keys) is None


def test_what_is_in_the_way_is_not_written_over() -> None:
    with pytest.raises(ConfigError, match=r"has no object at `tools\.codeMode`; change it by hand"):
        set_in(COMMENTED, "tools.codeMode.x", 1)
    with pytest.raises(ConfigError, match="has no object in it"):
        set_in("[]", "a", 1)
    with pytest.raises(ConfigError, match=r"has no object at `tools\.codeMode`"):
        remove_in(COMMENTED, "tools.codeMode.x")


def test_a_file_that_is_not_json5_is_not_touched() -> None:
    with pytest.raises(ConfigError, match="is not JSON5"):
        set_in('{"a": 1', "b", 1)


def test_a_value_that_cannot_be_read_back_is_not_written() -> None:
    with pytest.raises(ConfigError, match="cannot be changed safely"):
        set_in("{}", "a", float("nan"))


NAMES = st.sampled_from(["a", "b", "c d", "__proto__", "//", "{", '"', "'", "é"])
SCALARS = st.none() | st.booleans() | st.integers() | st.text("ab/*{}[]:,\"'\\\n", max_size=5)
VALUES: st.SearchStrategy[JsonValue] = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(NAMES, VALUES, max_size=3)
SPACES = st.sampled_from(["", " ", "\n", "\r\n", "\n    ", "/*#*/", " // #\n", "/* #\n } */", "\t"])


@st.composite
def texts(draw: st.DrawFn, value: JsonValue) -> str:
    """The value as some person may have written it."""

    def between(parts: list[str]) -> str:
        comma = draw(st.sampled_from(["", ","])) if parts else ""
        joined = ",".join(f"{draw(SPACES)}{part}{draw(SPACES)}" for part in parts)
        return f"{joined}{comma}{draw(SPACES)}"

    match value:
        case dict():
            members = [
                f"{json.dumps(key)}{draw(SPACES)}:{draw(SPACES)}{draw(texts(item))}"
                for key, item in value.items()
            ]
            return f"{{{between(members)}}}"
        case list():
            return f"[{between([draw(texts(item)) for item in value])}]"
        case _:
            return json.dumps(value)


def parent_of(document: JsonValue, keys: list[str]) -> JsonValue:
    for key in keys[:-1]:
        document = document.get(key, {}) if isinstance(document, dict) else None
    return document


@settings(deadline=None)
@given(st.data(), OBJECTS, st.lists(NAMES, min_size=1, max_size=3), VALUES)
def test_whatever_the_layout_an_edit_changes_the_member_and_keeps_the_comments(
    data: st.DataObject, document: dict[str, JsonValue], keys: list[str], value: JsonValue
) -> None:
    text = data.draw(SPACES) + data.draw(texts(document))
    parent = parent_of(document, keys)
    assume(isinstance(parent, dict))
    changed = with_member(text, keys, value, path="f")
    if isinstance(parent, dict) and keys[-1] not in parent:
        # Every comment has one; those of a value that is replaced go with it.
        assert changed.count("#") == text.count("#")
    removed = without_member(changed, keys, path="f")
    assert removed is not None
    again = with_member(removed, keys, value, path="f")
    assert parse_json5(again, path="f") == parse_json5(changed, path="f")
    assert again.count("#") == removed.count("#")


# Items of lists

LISTED = dedent("""\
    {
      agents: {list: [
        {id: "a", model: 'x'}, // first
        // second
        {id: "b"}
      ]},
      paths: ["p", "q"],
    }
    """)


def set_at(text: str, keys: tuple[str | int, ...], value: JsonValue) -> str:
    return with_member(text, keys, value, path="nacre.json5")


def test_a_member_of_an_item_gets_a_new_value_in_its_place() -> None:
    changed = set_at(LISTED, ("agents", "list", 0, "model"), "y")
    assert changed == LISTED.replace("'x'", '"y"')


def test_a_new_item_is_the_last_one() -> None:
    changed = set_at(LISTED, ("agents", "list", 2), {"id": "c"})
    assert changed == LISTED.replace(
        '    {id: "b"}\n', '    {id: "b"},\n      {\n        "id": "c"\n      }\n'
    )


def test_a_list_is_made_where_there_is_none() -> None:
    changed = set_at("{}", ("agents", "list", 0, "id"), "a")
    assert parse_json5(changed, path="x") == {"agents": {"list": [{"id": "a"}]}}


def test_an_item_can_be_replaced_and_removed() -> None:
    changed = set_at(LISTED, ("paths", 0), "r")
    assert changed == LISTED.replace('"p"', '"r"')
    removed = without_member(LISTED, ("paths", 1), path="nacre.json5")
    assert removed == LISTED.replace('["p", "q"]', '["p"]')
    assert without_member(LISTED, ("paths", 2), path="nacre.json5") is None


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        (("paths", 3), "has a list of 2 there, so [3] would leave a gap"),
        (("agents", "list", "x"), "has no object at `agents.list`; change it by hand"),
        (("agents", 0), "has no list at `agents`; change it by hand"),
        (("paths", 0, "x"), "has no object at `paths[0]`; change it by hand"),
        ((0,), "has no list in it; change it by hand"),
    ],
)
def test_keys_that_lead_through_something_else_are_refused(
    keys: tuple[str | int, ...], problem: str
) -> None:
    with pytest.raises(ConfigError) as refusal:
        set_at(LISTED, keys, 1)
    assert problem in str(refusal.value)


@settings(deadline=None, max_examples=50)
@given(st.lists(st.one_of(st.integers(), st.text(), st.lists(st.integers()))), st.data())
def test_any_item_can_be_set_and_removed(items: list[Any], data: st.DataObject) -> None:
    text = f"{{a: {json.dumps(items, ensure_ascii=False)}}}"
    index = data.draw(st.integers(0, len(items)))
    changed = parse_json5(set_at(text, ("a", index), "new"), path="x")
    assert changed == {"a": [*items[:index], "new", *items[index + 1 :]]}
    removed = without_member(text, ("a", index), path="x")
    if index == len(items):
        assert removed is None
    else:
        assert parse_json5(removed or "", path="x") == {"a": items[:index] + items[index + 1 :]}


def refusal_of(text: str) -> str:
    with pytest.raises(ConfigError) as refusal:
        parse_json5(text, path="nacre.json5")
    return str(refusal.value)


@pytest.mark.parametrize(
    "text",
    [
        '{"a": [1, "x"]}',
        '\ufeff{"a": [1, "x"]}',
        '\ufeff// note\n{"a": [1, "x",],}',
        "{a: [0x1, 'x'], /* two\nlines */}",
        '{\r\n  "a": [1, "x"] // note\r\n}',
    ],
)
def test_json_with_or_without_comments_has_the_same_value(text: str) -> None:
    assert parse_json5(text, path="nacre.json5") == {"a": [1, "x"]}


def test_a_refusal_names_the_file_and_the_place_but_no_value() -> None:
    text = '{\n  "token": "hunter2" "other": 1\n}'
    assert refusal_of(text) == '`nacre.json5` is not JSON5: line 2, column 22: unexpected """'


@pytest.mark.parametrize("text", ['{"a": 1, "a": 2}', "{a: 1, 'a': 2} // note"])
def test_a_key_that_stands_twice_is_refused(text: str) -> None:
    assert refusal_of(text) == '`nacre.json5` is not JSON5: duplicate key "a" found in object'


@pytest.mark.parametrize("text", ["[" * 100_000, "// note\n" + "[" * 10_000])
def test_what_is_nested_too_deep_is_refused(text: str) -> None:
    assert refusal_of(text) == "`nacre.json5` is nested too deep to be a configuration"


def test_a_huge_file_is_read_if_it_is_strict_json_and_refused_if_not() -> None:
    text = '{"a": "' + "x" * 1_000_000 + '"}'
    assert parse_json5(text, path="nacre.json5") == {"a": "x" * 1_000_000}
    assert "is not strict JSON and has 1000021 characters" in refusal_of(f"{text} // note :-)")
