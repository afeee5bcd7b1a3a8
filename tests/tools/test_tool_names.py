"""Names of tools: for programs, for MCP servers in programs, and the nearest known name."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nacre.tools.definition import Tool, ToolCall
from nacre.tools.tool_names import (
    HELPER_NAMES,
    NearestNames,
    assign_guest_names,
    convenience_names,
    safe_name,
)
from tests.tools.declarations.typescript_compiler import TypeScriptCompiler


async def nothing(input: dict[str, object], call: ToolCall) -> object:
    return None


def tool(name: str, owner: str = "core") -> Tool:
    return Tool(name=name, owner=owner, execute=nothing)


@pytest.mark.parametrize(
    ("name", "safe"),
    [
        ("web_search", "web_search"),
        ("web-search", "web_search"),
        ("files.read", "files_read"),
        ("3d_render", "_3d_render"),
        ("$cost", "$cost"),
        ("delete", "delete"),
        ("搜索", "搜索"),
        ("cafe\u0301", "café"),
        ("a\u200bb", "a_b"),
        ("\U0001f600go", "_go"),
        ("-", "_"),
    ],
)
def test_a_safe_name_is_an_identifier_near_the_name(name: str, safe: str) -> None:
    assert safe_name(name) == safe


@pytest.mark.parametrize(
    "name",
    [
        *sorted(HELPER_NAMES),
        "then",
        "toJSON",
        "constructor",
        "prototype",
        "hasOwnProperty",
        "isPrototypeOf",
        "propertyIsEnumerable",
        "toLocaleString",
        "toString",
        "valueOf",
        "__proto__",
        "__defineGetter__",
        "__openclaw_call",
        "--proto--",
        "-_proto__",
    ],
)
def test_helpers_and_what_every_object_has_are_never_names_of_tools(name: str) -> None:
    assert safe_name(name) is None
    assert convenience_names([tool(name)]) == {}


@given(st.text(min_size=1, max_size=12))
def test_whatever_the_name_a_safe_name_is_an_identifier(name: str) -> None:
    safe = safe_name(name)
    assert safe is None or safe.replace("$", "_").isidentifier()


def test_each_tool_is_found_under_its_safe_name() -> None:
    tools = [tool("read-file"), tool("exec"), tool("issues", owner="github")]
    assert convenience_names(tools) == {
        "read_file": "openclaw:core:read-file",
        "exec": "openclaw:core:exec",
        "issues": "openclaw:github:issues",
    }


def test_names_that_become_the_same_belong_to_neither_tool() -> None:
    tools = [tool("read-file"), tool("read.file"), tool("read_file"), tool("write")]
    assert convenience_names(tools) == {"write": "openclaw:core:write"}


def test_the_same_name_of_two_owners_belongs_to_neither() -> None:
    assert convenience_names([tool("send", owner="mail"), tool("send", owner="chat")]) == {}


NAMES = ("create_issue", "list_issues", "getWeather", "web-search", "搜索网页", "r")


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("createIssue", "create_issue"),
        ("CREATE.ISSUE", "create_issue"),
        ("create_isseu", "create_issue"),
        ("list_issue", "list_issues"),
        ("get_wether", "getWeather"),
        ("web_search_tool", "web-search"),
        ("搜索网", "搜索网页"),
        ("R", "r"),
    ],
)
def test_a_mistyped_name_finds_the_real_one(text: str, name: str) -> None:
    assert NearestNames(NAMES).nearest(text, 1) == [name]


@pytest.mark.parametrize("text", ["", "___", "quux", "网", "x" * 100_000])
def test_what_is_like_no_name_finds_none(text: str) -> None:
    assert NearestNames(NAMES).nearest(text, 3) == []


def test_the_nearest_come_first_and_equal_ones_in_their_order() -> None:
    names = NearestNames(["read_b", "read_a", "read_file", "Read_File"])
    assert names.nearest("read_file", 4)[:2] == ["read_file", "Read_File"]
    assert names.nearest("read_x", 2) == ["read_b", "read_a"]


def test_a_name_that_many_have_is_one_answer() -> None:
    names = NearestNames([*["send_mail"] * 100, "send_email"])
    assert names.nearest("send_mail", 3) == ["send_mail", "send_email"]


@pytest.mark.parametrize(
    ("name", "guest_name"),
    [
        ("create_issue", "createIssue"),
        ("chrome-devtools", "chromeDevtools"),
        ("createIssue", "createIssue"),
        ("getURL", "getURL"),
        ("CreateIssue", "createIssue"),
        ("API.v2/get", "apiV2Get"),
        ("GET_ISSUE", "getIssue"),
        ("HTMLPage", "htmlPage"),
        ("list issues: all", "listIssuesAll"),
        ("v1_2", "v1_2"),
        ("v1_b2", "v1B2"),
        ("3d_render", "_3dRender"),
        ("delete", "delete"),
        ("搜索", "搜索"),
        ("cafe\u0301_menu", "caféMenu"),
        ("__proto__", "proto"),
        ("$api", "api"),
        ("$search", "search"),
        ("constructor", "constructor_"),
        ("to_string", "toString_"),
        ("toString_", "toString_"),
        ("then", "then_"),
        ("resources", "resources_"),
        ("Prompts", "prompts_"),
    ],
)
def test_a_name_becomes_camel_case(name: str, guest_name: str) -> None:
    assert assign_guest_names([name]) == {name: guest_name}


def test_names_that_the_caller_has_taken_are_avoided() -> None:
    assert assign_guest_names(["create-issue"], taken=["createIssue", "createIssue_"]) == {
        "create-issue": "createIssue__"
    }


@pytest.mark.parametrize("name", ["", "---", "\U0001f680", "\ud800"])
def test_a_name_without_letters_is_told_apart_by_a_hash(name: str) -> None:
    found = assign_guest_names([name])[name]
    assert found.startswith("_")
    assert len(found) == 7
    assert found.isidentifier()


def test_names_that_would_be_the_same_get_a_hash_each() -> None:
    found = assign_guest_names(["create_issue", "create-issue", "other"])
    assert found["other"] == "other"
    assert len({*found.values()}) == 3
    assert all(found[name].startswith("createIssue_") for name in ("create_issue", "create-issue"))


def test_a_name_that_is_an_identifier_already_keeps_it() -> None:
    found = assign_guest_names(["create_issue", "createIssue", "create-issue"])
    assert found["createIssue"] == "createIssue"
    assert (
        found["create_issue"]
        == assign_guest_names(["create_issue", "create.issue"])["create_issue"]
    )


def test_no_name_can_be_made_to_take_the_place_of_a_hash() -> None:
    hashed = assign_guest_names(["a1", "A1", "a-1"])["A1"]
    found = assign_guest_names(["a1", "A1", "a-1", hashed, f"{hashed}_"])
    assert len({*found.values()}) == 5
    assert found["a1"] == "a1"


@given(st.lists(st.text(max_size=10)))
def test_equal_sets_of_names_get_equal_and_different_identifiers(names: list[str]) -> None:
    found = assign_guest_names(names)
    shuffled = [*names, *names[:2]]
    random.Random(0).shuffle(shuffled)
    assert assign_guest_names(shuffled) == found
    assert found.keys() == set(names)
    assert len({*found.values()}) == len(found)
    assert all(name.isidentifier() for name in found.values())


@given(st.text(max_size=10), st.lists(st.text(max_size=10)))
def test_only_names_that_clash_change_each_other(name: str, others: list[str]) -> None:
    alone = assign_guest_names([name])[name]
    found = assign_guest_names([name, *others])
    without = assign_guest_names([other for other in others if other != name])
    if found[name] != alone:
        assert alone in without.values() or any(found[other] != without[other] for other in without)


def test_every_character_of_an_identifier_can_stand_after_a_dot(
    compiler: TypeScriptCompiler,
) -> None:
    letters = [chr(code) for code in range(0x80, 0x30000) if chr(code).isidentifier()]
    groups = ["_".join(letters[start : start + 500]) for start in range(0, len(letters), 500)]
    names = assign_guest_names(groups).values()
    texts = [f"declare const x: typeof MCP.{name};" for name in names]
    assert compiler.syntax_problems(texts) == []
