"""Which names a wrong name may have meant."""

import pytest

from nacre.tools.tool_names import NearestNames

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
