"""JavaScript names for MCP servers and their tools."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nacre.tools.tool_names import assign_guest_names
from tests.tools.declarations.typescript_compiler import syntax_problems


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


def test_every_character_of_an_identifier_can_stand_after_a_dot() -> None:
    letters = [chr(code) for code in range(0x80, 0x30000) if chr(code).isidentifier()]
    groups = ["_".join(letters[start : start + 500]) for start in range(0, len(letters), 500)]
    names = assign_guest_names(groups).values()
    assert syntax_problems([f"declare const x: typeof MCP.{name};" for name in names]) == []
