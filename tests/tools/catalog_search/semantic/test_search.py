"""Search by words and meanings together, through the index."""

import anyio
import pytest

from nacre.tools.catalog import Catalog, build_catalog
from nacre.tools.catalog_search import CatalogIndex, index_of
from nacre.tools.catalog_search.index import RunIndex
from nacre.tools.catalog_search.semantic.embeddings import meaning_text
from nacre.tools.definition import Tool, ToolCall
from tests.tools.catalog_search.semantic.fake_model import FakeModel

SECONDS = 60


async def nothing(input: dict[str, object], call: ToolCall) -> object:
    return None


def tool(name: str, description: str, *, parameters: dict[str, object] | None = None) -> Tool:
    properties = parameters or {}
    return Tool(
        name=name,
        description=description,
        owner="desk",
        parameters={"type": "object", "properties": properties},  # pyright: ignore[reportArgumentType]
        execute=nothing,
    )


TOOLS = (
    tool("add_event", "Puts a meeting into the diary."),
    tool("crop", "Cuts a polaroid."),
    tool("calendar", "Prints the days of a month."),
    tool("list_files", "Shows the files of a folder."),
)


def ready_index(catalog: Catalog | None = None) -> CatalogIndex:
    index = index_of(build_catalog(TOOLS) if catalog is None else catalog)
    assert index.wait_for_meanings(SECONDS)
    return index


def names(index: CatalogIndex, query: str, limit: int = 8) -> list[str]:
    return [entry.name for entry in index.search(query, limit)]


def test_a_tool_is_found_by_what_it_is_about(fake_model: FakeModel) -> None:
    index = ready_index()
    assert [entry.name for entry in index.search_words("selfie", 8)] == []
    assert names(index, "selfie") == ["crop"]


def test_words_count_beside_meaning(fake_model: FakeModel) -> None:
    assert names(ready_index(), "meeting folder") == ["add_event", "calendar", "list_files"]


def test_an_entry_with_just_this_name_leads(fake_model: FakeModel) -> None:
    assert names(ready_index(), "calendar")[0] == "calendar"
    assert names(ready_index(), "openclaw:desk:calendar")[0] == "calendar"


@pytest.mark.parametrize(("query", "limit"), [("", 8), ("  \n", 8), ("selfie", 0)])
def test_nothing_wanted_is_nothing_found(query: str, limit: int, fake_model: FakeModel) -> None:
    assert names(ready_index(), query, limit) == []


def test_a_smaller_limit_only_shortens_the_list(fake_model: FakeModel) -> None:
    index = ready_index()
    assert names(index, "meeting folder", 2) == names(index, "meeting folder")[:2]


def test_a_query_in_other_letters_finds_what_words_find(fake_model: FakeModel) -> None:
    index = ready_index(build_catalog([*TOOLS, tool("bing", "使用必应搜索关键词")]))
    assert names(index, "搜索") == ["bing"]


def test_the_parts_of_an_explanation_add_up(fake_model: FakeModel) -> None:
    index = ready_index()
    explanations = index.explain("meeting folder", 8)
    assert [each.entry.name for each in explanations] == names(index, "meeting folder")
    for each in explanations:
        assert each.score == pytest.approx(sum(part.weight for part in each.parts))
    assert "meaning" in [part.kind for part in explanations[0].parts]
    assert [part.kind for part in explanations[1].parts] == ["meaning"]
    assert [each.score for each in explanations] == sorted(
        (each.score for each in explanations), reverse=True
    )


def test_a_changed_catalog_has_the_meanings_of_its_own_texts(fake_model: FakeModel) -> None:
    many = [tool(f"file_{number}", f"Opens drawer {number}.") for number in range(40)]
    ready_index(build_catalog([*many, *TOOLS]))
    before = len(fake_model.embedded)
    changed = [each for each in TOOLS if each.name != "crop"]
    index = ready_index(build_catalog([*many, *changed, tool("frame", "Hangs up a polaroid.")]))
    assert len(fake_model.embedded) == before + 1
    assert names(index, "selfie") == ["frame"]


async def test_a_run_searches_without_holding_up_the_event_loop(fake_model: FakeModel) -> None:
    run_index = RunIndex(build_catalog(TOOLS))
    index = await run_index.get()
    assert await anyio.to_thread.run_sync(index.wait_for_meanings, SECONDS)
    found = await run_index.search("selfie", 8)
    assert [entry.name for entry in found] == ["crop"]


def test_what_is_embedded_of_a_hostile_tool_has_an_end() -> None:
    hostile = tool(
        "n" * 256,
        "d" * 1_000_000,
        parameters={f"{number}" * 1_000: {} for number in range(500)},
    )
    (entry,) = build_catalog([hostile]).entries
    assert len(meaning_text(entry)) < 6_000


def test_what_is_embedded_says_owner_name_description_and_parameters() -> None:
    (entry,) = build_catalog(
        [tool("crop", "Cuts.", parameters={"width": {}, "height": {}})]
    ).entries
    assert meaning_text(entry) == "desk crop: Cuts. (width, height)"
