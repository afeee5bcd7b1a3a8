"""What a score is made of: words that stand for others, and an order that the scores show."""

from collections.abc import Iterator

import pytest

from nacre.tools.catalog import build_catalog
from nacre.tools.catalog_search import Explanation, index, index_of
from nacre.tools.definition import Tool
from tests.tools.catalog_search.test_index import tool

CALENDAR = (
    tool("event", ""),
    tool("new_event_in_calendar", "Invite guests to an event of the shared calendar."),
    tool("move_event_in_calendar", "Tell guests of another event of the shared calendar."),
    tool("read_file", "Read a file."),
    tool("send_mail", "Send a letter."),
    tool("draw_map", "Draw where it is."),
)


@pytest.fixture(autouse=True)
def nothing_indexed_yet() -> Iterator[None]:
    kept = index._ranked_texts  # pyright: ignore[reportPrivateUsage]
    kept.clear()
    yield
    kept.clear()


def explained(tools: tuple[Tool, ...], query: str) -> list[Explanation]:
    return index_of(build_catalog(tools)).explain(query, 5)


def stand_ins(found: Explanation) -> set[tuple[str | None, str | None]]:
    return {(part.term, part.stands_for) for part in found.parts if part.kind == "word"}


def test_a_synonym_says_which_word_of_the_query_it_stands_for() -> None:
    for found in explained(CALENDAR, "Appointments!"):
        assert stand_ins(found) == {("event", "Appointments")}


def test_a_guess_at_a_spelling_says_so_too() -> None:
    (found, *_) = explained(CALENDAR, "calender")
    assert stand_ins(found) == {("calendar", "calender")}
    (word, *_) = (part.to_json() for part in found.parts if part.kind == "word")
    assert word["standsFor"] == "calender"


def test_a_word_that_the_query_has_stands_for_itself() -> None:
    (found, *_) = explained(CALENDAR, "appointment event")
    assert stand_ins(found) == {("event", None)}


def test_a_result_that_is_kept_first_has_a_score_that_says_so() -> None:
    first, second, *_ = explained(CALENDAR, "appointment")
    assert first.entry.name == "event"
    assert first.score == second.score
    assert "own_words" in {part.kind for part in first.parts}
    assert first.score == pytest.approx(sum(part.weight for part in first.parts))


def test_tools_of_the_very_same_name_are_in_the_order_of_the_catalog() -> None:
    tools = (
        tool("event", "Something else.", owner="a", source="mcp"),
        tool("event", "The event, an event of events.", owner="b", source="mcp"),
    )
    whole = index_of(build_catalog(tools), sources=("mcp",))
    first, second = whole.explain("event", 5)
    assert first.entry.id == "mcp:a:event"
    assert first.score == second.score
    assert "catalog_order" in {part.kind for part in first.parts}
