"""Search through a catalog: what comes first, what never comes, and what is shared between runs."""

import gc
import weakref
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from nacre.json_types import JsonObject
from nacre.tools.catalog import Catalog, build_catalog
from nacre.tools.catalog_search import cached_index, index, index_of
from nacre.tools.catalog_search.documents import Document, FieldName
from nacre.tools.definition import Tool, ToolCall, ToolSource


@pytest.fixture(autouse=True)
def nothing_indexed_yet() -> Iterator[None]:
    kept = index._ranked_texts  # pyright: ignore[reportPrivateUsage]
    kept.clear()
    yield
    kept.clear()


async def nothing(input: dict[str, object], call: ToolCall) -> object:
    return None


def tool(
    name: str,
    description: str = "",
    *,
    label: str | None = None,
    owner: str = "core",
    source: ToolSource = "openclaw",
    parameters: JsonObject | None = None,
) -> Tool:
    return Tool(
        name=name,
        description=description,
        label=label,
        owner=owner,
        source=source,
        parameters={"type": "object"} if parameters is None else parameters,
        execute=nothing,
    )


TOOLS = (
    tool("read_file", "Read a text file from the workspace."),
    tool("web_search", "Search the web and return result links.", label="Internet lookup"),
    tool("sendEmail", "Send a message to a mailbox.", owner="gmail"),
    tool("create_issue", "Open a new ticket.", owner="tracker"),
    tool("get_weather", "Current conditions and forecast for a city."),
    tool("bing", "使用必应搜索关键词"),
    tool("fetch_rows", "Run a statement.", parameters={
        "type": "object",
        "properties": {
            "sql_statement": {"type": "string", "description": "Postgres dialect"},
            "options": {"anyOf": [{"type": "object", "properties": {"isolationLevel": {}}}]},
        },
    }),
    tool("create_issue", "Open a GitHub issue.", owner="github", source="mcp"),
)  # fmt: skip


def found(query: str, limit: int = 8, *, catalog: Catalog | None = None) -> list[str]:
    index = index_of(build_catalog(TOOLS) if catalog is None else catalog)
    return [entry.name for entry in index.search(query, limit)]


@pytest.mark.parametrize(
    ("query", "first"),
    [
        ("read local files", "read_file"),
        ("how do I search the internet?", "web_search"),
        ("lookup", "web_search"),
        ("email", "sendEmail"),
        ("send e-mail via gmail", "sendEmail"),
        ("tracker ticket", "create_issue"),
        ("weather forecasts", "get_weather"),
        ("wether", "get_weather"),
        ("forec", "get_weather"),
        ("搜索", "bing"),
        ("sql", "fetch_rows"),
        ("postgres", "fetch_rows"),
        ("isolation level", "fetch_rows"),
    ],
)
def test_a_query_finds_the_tool_that_does_it(query: str, first: str) -> None:
    assert found(query)[0] == first


def test_a_name_counts_more_than_a_label_than_a_description_than_an_owner_than_a_parameter() -> (
    None
):
    parameters: JsonObject = {"type": "object", "properties": {"zebra": {}}}
    tools = [
        tool("by_owner", owner="zebra"),
        tool("by_parameter", parameters=parameters),
        tool("by_description", "zebra"),
        tool("by_label", label="zebra"),
        tool("zebra_crossing"),
    ]
    catalog = build_catalog(tools)
    expected = ["zebra_crossing", "by_label", "by_description", "by_owner", "by_parameter"]
    assert found("zebra", catalog=catalog) == expected


@pytest.mark.parametrize(
    ("query", "first"),
    [
        ("list merge requests", "list_merge_requests"),
        ("List Merge Requests", "list_merge_requests"),
        ("create collection", "createCollection"),
        ("create-collection", "createCollection"),
    ],
)
def test_the_words_of_a_name_find_its_tool_first(query: str, first: str) -> None:
    repeated = "list merge requests, create a collection of merge requests in a list"
    tools = [
        tool("get_merge_requests_list", repeated, label=repeated),
        tool("list_merge_requests", "Of a project."),
        tool("create_collections_bulk", repeated, label=repeated),
        tool("createCollection", "In a database."),
    ]
    assert found(query, catalog=build_catalog(tools))[0] == first


def test_an_exact_name_comes_before_a_name_with_the_same_words() -> None:
    catalog = build_catalog([tool("list_items"), tool("listItems")])
    assert found("listItems", catalog=catalog) == ["listItems", "list_items"]


def test_a_query_without_letters_matches_no_name() -> None:
    assert found("?!", catalog=build_catalog([tool("$$"), tool("read_file")])) == []


def test_a_history_is_found_in_a_log() -> None:
    tools = [
        tool("git_status", "Shows the status of the working tree."),
        tool("git_diff", "Shows differences between branches or commits."),
        tool("git_commit", "Records changes to the repository."),
        tool("git_show", "Shows the contents of a commit."),
        tool("git_log", "Shows the commit logs."),
    ]
    catalog = build_catalog(tools)
    assert found("commit history of my repository", catalog=catalog)[0] == "git_log"


def test_of_equal_tools_one_that_reads_comes_before_one_that_writes() -> None:
    tools = [tool("delete_issue", "An issue."), tool("get_issue", "An issue.")]
    assert found("issue", catalog=build_catalog(tools)) == ["get_issue", "delete_issue"]


@pytest.mark.parametrize("query", ["who", "WHO", "openclaw:core:who", " who "])
def test_the_tool_with_just_this_id_or_name_leads(query: str) -> None:
    tools = [tool("who"), *(tool(f"who_{n}", "who core openclaw", label="who") for n in range(9))]
    assert found(query, 3, catalog=build_catalog(tools))[0] == "who"


def test_all_tools_with_just_this_name_lead_in_the_order_of_the_catalog() -> None:
    tools = [
        tool("send", owner="chat"),
        tool("send", owner="mail"),
        tool("send_all", "send send send", owner="a"),
    ]
    entries = index_of(build_catalog(tools)).search("send", 3)
    assert [entry.id for entry in entries] == [
        "openclaw:chat:send",
        "openclaw:mail:send",
        "openclaw:a:send_all",
    ]
    assert len(index_of(build_catalog(tools)).search("send", 1)) == 1


@pytest.mark.parametrize(
    "query", ["", "   ", "the of and", "zzzqqq", "\0", "\ud800", "()*+?[", "😀"]
)
def test_a_query_that_says_nothing_finds_nothing(query: str) -> None:
    assert found(query) == []


def test_a_limit_below_one_finds_nothing_and_any_other_is_kept() -> None:
    assert found("open read search send", 0) == found("open read", -1) == []
    assert len(found("open read search send", 2)) == 2


def test_only_the_beginning_of_an_endless_query_counts() -> None:
    assert found("x " * 900 + "weather") == ["get_weather"]
    assert found("x " * 100_000 + "weather") == []


def test_what_is_endless_in_a_tool_costs_little_and_does_not_hide_it() -> None:
    deep: JsonObject = {"type": "object"}
    for _ in range(120):
        deep = {"type": "object", "properties": {"p": deep}}
    wide: JsonObject = {"type": "object", "properties": {f"p{n}": {} for n in range(20_000)}}
    tools = [
        tool("long", "zebra " + "word " * 300_000),
        tool("deep", "zebra", parameters=deep),
        tool("wide", "zebra", parameters=wide),
    ]
    assert sorted(found("zebra", catalog=build_catalog(tools))) == ["deep", "long", "wide"]


def test_programs_search_all_but_mcp_tools_and_others_say_what_they_search() -> None:
    catalog = build_catalog(TOOLS)

    def ids(*sources: ToolSource) -> set[str]:
        return {it.id for it in index_of(catalog, sources=sources).search("create issue", 9)}

    assert {it.id for it in index_of(catalog).search("create issue", 9)} == {
        "openclaw:tracker:create_issue"
    }
    assert ids("mcp") == {"mcp:github:create_issue"}
    assert ids("openclaw", "mcp", "client") == {
        "openclaw:tracker:create_issue",
        "mcp:github:create_issue",
    }


@pytest.fixture
def made_documents(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the tools whose texts were read, as often as they were."""
    made: list[str] = []
    real = index.document_of

    def counted(texts: Mapping[FieldName, str]) -> Document:
        made.append(texts["name"])
        return real(texts)

    monkeypatch.setattr(index, "document_of", counted)
    return made


def test_an_index_is_built_once_for_catalogs_with_the_same_texts(made_documents: list[str]) -> None:
    assert cached_index(build_catalog(TOOLS)) is None
    index_of(build_catalog(TOOLS))
    count = len(made_documents)
    index_of(build_catalog(reversed(TOOLS)))
    assert cached_index(build_catalog(TOOLS)) is not None
    assert len(made_documents) == count > 0


def many_tools(*, revision_of: str = "", revision: str = "") -> list[Tool]:
    return [
        tool(f"{verb}_{noun}", f"To {verb} one {noun} {revision if owner == revision_of else ''}",
             owner=owner)
        for owner in ("mail", "chat", *(f"owner{number}" for number in range(10)))
        for verb in ("read", "list", "send")
        for noun in (f"{owner}_item", "draft", "letter")
    ]  # fmt: skip


def test_a_change_of_one_owner_reads_the_texts_of_that_owner_alone(
    made_documents: list[str],
) -> None:
    index_of(build_catalog(many_tools()))
    made_documents.clear()
    index_of(build_catalog(many_tools(revision_of="mail", revision="zebra")))
    assert len(made_documents) == 9


@pytest.mark.parametrize("query", ["read a draft", "zebra", "send letter mail", "lsit items"])
def test_a_changed_index_finds_what_a_new_one_finds(query: str) -> None:
    index_of(build_catalog(many_tools()))
    index_of(build_catalog(many_tools(revision_of="chat", revision="zebra draft")))
    changed = build_catalog(many_tools(revision_of="mail", revision="zebra"))
    layered = [(it.entry.id, it.score) for it in index_of(changed).explain(query, 30)]
    index._ranked_texts.clear()  # pyright: ignore[reportPrivateUsage]
    fresh = [(it.entry.id, it.score) for it in index_of(changed).explain(query, 30)]
    assert layered == fresh
    assert layered


def test_what_left_the_catalog_is_not_found_by_name_either() -> None:
    tools = many_tools()
    index_of(build_catalog(tools))
    without = build_catalog(tools[1:])
    assert tools[0].id not in [it.id for it in index_of(without).search(tools[0].id, 9)]


def test_an_explanation_lists_the_same_entries_and_its_parts_add_up() -> None:
    whole = index_of(build_catalog(TOOLS))
    for query in ("read a text file", "who reads files", "read_file", "send mail", ""):
        explained = whole.explain(query, 5)
        assert [it.entry for it in explained] == whole.search(query, 5)
        for it in explained:
            assert it.score == pytest.approx(sum(part.weight for part in it.parts))
            assert it.score > 0


def test_an_explanation_names_the_word_and_where_it_stands() -> None:
    (first, *_) = index_of(build_catalog(TOOLS)).explain("weather", 3)
    assert first.entry.name == "get_weather"
    words = [(part.term, part.field) for part in first.parts if part.kind == "word"]
    assert words == [("weath", "name")]
    shown = first.to_json()
    assert shown["score"] == pytest.approx(first.score, abs=0.001)


def test_an_explanation_says_that_a_name_is_the_very_one() -> None:
    (first, *_) = index_of(build_catalog(TOOLS)).explain("bing", 3)
    assert first.parts[0].kind == "exact"


def test_a_search_finds_the_tools_of_its_own_run_and_keeps_none_of_another() -> None:
    theirs = tool("read_file", "Read.")
    index_of(build_catalog([theirs]))
    gone = weakref.ref(theirs)
    ours = tool("read_file", "Read.")
    (entry,) = index_of(build_catalog([ours])).search("read", 1)
    assert entry.tool is ours
    del theirs
    gc.collect()
    assert gone() is None


def test_beyond_eight_catalogs_the_one_used_longest_ago_is_built_again() -> None:
    catalogs = [build_catalog([tool(f"t{number}")]) for number in range(9)]
    for catalog in catalogs[:8]:
        index_of(catalog)
    assert cached_index(catalogs[0]) is not None
    index_of(catalogs[8])
    kept = [cached_index(catalog) is not None for catalog in catalogs]
    assert kept == [True, False, *[True] * 7]


def test_names_are_searched_while_the_index_of_many_tools_is_built() -> None:
    tools = [
        tool("send_mail", owner="post"),
        tool("read_mail", owner="post"),
        tool("send"),
        tool("delete_row", "send mail"),
    ]
    entries = build_catalog(tools).entries
    names = [entry.name for entry in index.search_names(entries, "sending mails", 8)]
    # Of equal scores, the shorter id comes first.
    assert names == ["send_mail", "send", "read_mail"]
    assert [it.name for it in index.search_names(entries, "SEND", 1)] == ["send"]
    assert index.search_names(entries, "zebra", 8) == []


async def test_a_search_in_many_tools_finds_one_by_name_before_and_after_the_index_is_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NACRE_CACHE_DIR", str(tmp_path))
    tools = [tool(f"get_item_{number}", owner="shop") for number in range(1_001)]
    of_run = index.RunIndex(build_catalog([*tools, tool("paint_zebra", "In stripes.")]))
    assert [it.name for it in await of_run.search("zebra", 1)] == ["paint_zebra"]
    await of_run.get()
    assert [it.name for it in await of_run.search("stripes", 1)] == ["paint_zebra"]
