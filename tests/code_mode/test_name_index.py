"""The index of names: full when it fits, every owner in it when not, never over its budget."""

import json
import re

import pytest

from nacre.code_mode.model_surface import join_within, name_index
from nacre.tools.catalog import build_catalog
from nacre.tools.definition import Tool
from tests.code_mode.simple_tools import simple_tool


def index_of(tools: list[Tool], max_bytes: int = 1800) -> str:
    return name_index(build_catalog(tools), max_bytes=max_bytes)


def json_bytes(text: str) -> int:
    return len(json.dumps("\n" + text)) - 2


def many_tools(count: int, owners: int) -> list[Tool]:
    return [simple_tool(f"tool_{number}", owner=f"p{number % owners}") for number in range(count)]


def test_all_names_are_shown_by_owner_when_they_fit() -> None:
    tools = [
        simple_tool("write"),
        simple_tool("read"),
        simple_tool("list-issues", owner="github"),
        simple_tool("select", owner="app", source="client"),
    ]
    assert index_of(tools) == (
        "tools.<name> by owner:\ncore: read, write\ngithub: list_issues\napp: select"
    )


def test_a_tool_without_a_name_of_its_own_is_shown_by_its_id() -> None:
    tools = [
        simple_tool("same", owner="a"),
        simple_tool("same", owner="b"),
        simple_tool("search"),
    ]
    assert index_of(tools) == (
        "tools.<name> by owner:\ncore: openclaw:core:search\na: openclaw:a:same\nb: openclaw:b:same"
    )


def test_nothing_to_show_or_no_room_is_no_index() -> None:
    assert index_of([]) == ""
    assert index_of([simple_tool("x", owner="docs", source="mcp")]) == ""
    assert index_of([simple_tool("read")], max_bytes=0) == ""
    assert index_of(many_tools(500, 10), max_bytes=30) == ""


@pytest.mark.parametrize("owners", [1, 7, 60])
@pytest.mark.parametrize("max_bytes", [1000, 1800, 4000])
def test_when_not_all_fit_every_owner_shows_and_the_rest_is_counted(
    owners: int, max_bytes: int
) -> None:
    text = index_of(many_tools(1000, owners), max_bytes)
    lines = text.splitlines()
    shown = [name for line in lines[1:-1] for name in line.split(": ")[1].split(", ")]
    counts = [len(line.split(", ")) for line in lines[1:-1]]
    assert len(counts) == owners
    # Owners take turns; a name that just fits may go to one of them at the end.
    assert max(counts) - min(counts) <= 2
    assert lines[-1] == f"(+{1000 - len(shown)} more: tools.search)"
    assert max_bytes - 60 < json_bytes(text) <= max_bytes


@pytest.mark.parametrize("max_bytes", range(0, 400, 7))
def test_the_budget_holds_at_every_size(max_bytes: int) -> None:
    tools = [
        simple_tool("ä" * 30, owner="ö"),
        simple_tool('"' * 200, owner="quotes"),
        *many_tools(20, 3),
    ]
    text = index_of(tools, max_bytes)
    assert text == "" or json_bytes(text) <= max_bytes


def test_one_long_name_does_not_keep_the_others_out() -> None:
    text = index_of([simple_tool("x" * 250, owner="a"), *many_tools(100, 1)], max_bytes=200)
    assert "p0: tool_0, tool_1" in text
    assert re.search(r"\(\+\d+ more: tools\.search\)$", text)


def test_equal_sets_of_tools_give_equal_text() -> None:
    tools = many_tools(500, 9)
    assert index_of(tools) == index_of(tools[::-1])


def test_names_beyond_a_budget_are_counted() -> None:
    assert join_within(["a", "b"], 100) == "a, b"
    assert join_within(["aaaa", "bbbb", "cccc"], 14) == "aaaa, bbbb (+1 more)"
