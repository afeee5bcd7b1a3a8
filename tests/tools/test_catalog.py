"""The catalog of a run: order, ids, what is left out, what a name means, what is near, counters."""

import gc
import json
import random
import weakref
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nacre.errors import CatalogError, ToolDefinitionError
from nacre.tools.catalog import (
    CONTROL_NAMES,
    HELPER_NAMES,
    MAX_COUNTED_IDS,
    OTHER_IDS,
    Catalog,
    CatalogCounters,
    NearestNames,
    assign_guest_names,
    build_catalog,
    convenience_names,
    safe_name,
)
from nacre.tools.definition import Tool, ToolCall, ToolSource
from tests.tools.declarations.typescript_compiler import TypeScriptCompiler


async def nothing(input: dict[str, object], call: ToolCall) -> object:
    return None


def core(name: str, *, description: str = "", label: str | None = None) -> Tool:
    return Tool(name=name, description=description, label=label, execute=nothing)


def plugin(name: str, owner: str, *, is_bundled: bool = False) -> Tool:
    return Tool(name=name, owner=owner, is_bundled=is_bundled, execute=nothing)


def mcp(name: str, owner: str = "github") -> Tool:
    return Tool(name=name, owner=owner, source="mcp", execute=nothing)


def client(name: str, owner: str = "app") -> Tool:
    return Tool(name=name, owner=owner, source="client", execute=nothing)


def ids(catalog: Catalog) -> list[str]:
    return [entry.id for entry in catalog.entries]


MIXED = (
    core("message"),
    core("browse"),
    plugin("browser_request", "browser", is_bundled=True),
    plugin("alpha", "a_plugin"),
    plugin("list", "zeta"),
    mcp("create_issue"),
    client("select_file"),
)


def test_core_comes_first_then_bundled_then_external_plugins_then_mcp_then_the_client() -> None:
    assert ids(build_catalog(reversed(MIXED))) == [
        "openclaw:core:browse",
        "openclaw:core:message",
        "openclaw:browser:browser_request",
        "openclaw:a_plugin:alpha",
        "openclaw:zeta:list",
        "mcp:github:create_issue",
        "client:app:select_file",
    ]


def test_tools_of_one_server_are_in_order_whether_or_not_some_are_said_to_be_bundled() -> None:
    tools = [
        Tool(name=name, owner="s", source="mcp", is_bundled=name in "bd", execute=nothing)
        for name in "dcab"
    ]
    assert ids(build_catalog(tools)) == [f"mcp:s:{name}" for name in "abcd"]


def test_catalogs_share_the_entries_of_the_tools_that_they_share() -> None:
    kept, changed = core("kept"), core("changed", description="Old.")
    before = build_catalog([kept, changed])
    after = build_catalog([kept, replace(changed, description="New.")])
    assert after.entries[1] is before.entries[1]
    assert [entry.description for entry in after.entries] == ["New.", ""]


def test_a_tool_that_no_catalog_has_any_more_is_forgotten() -> None:
    tool = core("gone")
    remembered = weakref.ref(tool)
    build_catalog([tool])
    del tool
    gc.collect()
    assert remembered() is None


def test_equal_sets_of_tools_make_equal_catalogs_whatever_their_order() -> None:
    tools = [plugin(f"t{number}", f"owner{number % 7}") for number in range(60)]
    catalog = build_catalog(tools)
    random.Random(4).shuffle(tools)
    again = build_catalog(tools)
    assert ids(again) == ids(catalog)
    assert (again.digest, again.search_digest) == (catalog.digest, catalog.search_digest)


def test_an_entry_shows_what_the_contract_names_and_no_more() -> None:
    catalog = build_catalog(
        [core("read", description="Reads.", label="Read"), plugin("go", "p"), client("pick")]
    )
    assert [entry.to_json() for entry in catalog.entries] == [
        {
            "id": "openclaw:core:read",
            "name": "read",
            "label": "Read",
            "description": "Reads.",
            "source": "openclaw",
        },
        {
            "id": "openclaw:p:go",
            "name": "go",
            "description": "",
            "source": "openclaw",
            "sourceName": "p",
        },
        {
            "id": "client:app:pick",
            "name": "pick",
            "description": "",
            "source": "client",
            "sourceName": "app",
        },
    ]


@pytest.mark.parametrize("name", sorted(CONTROL_NAMES - {"exec"}))
def test_control_tools_are_left_out(name: str) -> None:
    assert ids(build_catalog([core(name), core("read")])) == ["openclaw:core:read"]


def test_the_shell_tool_is_a_tool_like_any_other() -> None:
    catalog = build_catalog([core("exec")])
    assert ids(catalog) == ["openclaw:core:exec"]
    assert catalog.names == {"exec": "openclaw:core:exec"}


def test_a_tool_of_somebody_else_that_is_named_like_a_control_tool_stays() -> None:
    tools = [plugin("wait", "queue"), mcp("tool_call"), client("tool_search")]
    assert len(build_catalog(tools).entries) == 3


def test_tools_that_are_only_for_direct_use_are_left_out() -> None:
    image = Tool(name="image", catalog_mode="direct-only", execute=nothing)
    assert ids(build_catalog([image, core("read")])) == ["openclaw:core:read"]


@pytest.mark.parametrize(
    ("pair", "owners"),
    [
        ([mcp("x", "github"), mcp("x", "github")], "MCP server 'github', one of the MCP server"),
        (
            [plugin("x", "p"), plugin("a", "q"), plugin("x", "p", is_bundled=True)],
            "one of the bundled plugin 'p', one of the plugin 'p'",
        ),
        ([core("x"), core("x")], "one of the core, one of the core"),
        ([client("x"), client("x")], "the application 'app'"),
    ],
)
def test_two_tools_with_one_id_are_an_error_that_names_both_owners(
    pair: list[Tool], owners: str
) -> None:
    with pytest.raises(CatalogError) as caught:
        build_catalog(pair)
    assert owners in str(caught.value)
    assert pair[0].id in str(caught.value)


def test_an_id_that_no_program_could_write_is_an_error() -> None:
    with pytest.raises(ToolDefinitionError, match="must be text"):
        mcp("bad\ud800")


def test_programs_see_all_but_mcp_tools() -> None:
    catalog = build_catalog(MIXED)
    shown = [entry["id"] for entry in json.loads(catalog.index_json)]
    assert shown == [entry.id for entry in catalog.guest_entries]
    assert shown == [it for it in ids(catalog) if not it.startswith("mcp:")]
    assert json.loads(catalog.names_json) == catalog.names
    assert "create_issue" not in catalog.names


def test_a_catalog_counts_its_tools_by_source() -> None:
    catalog = build_catalog(MIXED)
    assert (catalog.size, catalog.source_counts) == (7, {"openclaw": 5, "mcp": 1, "client": 1})


def test_an_empty_catalog_is_one() -> None:
    catalog = build_catalog([])
    assert (catalog.size, catalog.index_json, catalog.names_json) == (0, b"[]", b"{}")
    assert catalog.source_counts == {"openclaw": 0, "mcp": 0, "client": 0}
    assert catalog.nearest("anything") == []
    assert catalog.resolve("") is None


def test_every_tool_is_found_by_its_id() -> None:
    catalog = build_catalog(MIXED)
    assert all(catalog.by_id(entry.id) is entry for entry in catalog.entries)
    assert catalog.by_id("openclaw:core:nothing") is None


@pytest.mark.parametrize(
    ("text", "tool_id"),
    [
        ("openclaw:core:read-file", "openclaw:core:read-file"),
        ("read-file", "openclaw:core:read-file"),
        ("read_file", "openclaw:core:read-file"),
        ("send", None),
        ("openclaw:mail:send", "openclaw:mail:send"),
        ("mcp:github:create_issue", None),
        ("create_issue", None),
        ("list-files", "openclaw:core:list-files"),
        ("list_files", "openclaw:core:list_files"),
        ("list.files", None),
        ("READ-FILE", None),
        ("__proto__", None),
        ("", None),
    ],
)
def test_a_program_means_a_tool_by_id_or_by_a_name_that_is_not_ambiguous(
    text: str, tool_id: str | None
) -> None:
    catalog = build_catalog(
        [
            core("read-file"),
            core("list-files"),
            core("list_files"),
            plugin("send", "mail"),
            plugin("send", "chat"),
            mcp("create_issue"),
        ]
    )
    entry = catalog.resolve(text)
    assert (entry.id if entry else None) == tool_id


def test_a_tool_that_is_named_like_an_id_is_not_taken_for_the_tool_with_that_id() -> None:
    catalog = build_catalog([client("openclaw:core:message"), client("mcp:github:create_issue")])
    assert catalog.resolve("openclaw:core:message") is None
    assert catalog.resolve("mcp:github:create_issue") is None
    assert catalog.names["openclaw_core_message"] == "client:app:openclaw:core:message"


def with_parameter(name: str) -> Tool:
    return Tool(
        name="t",
        label="L",
        description="D",
        owner="o",
        source="client",
        parameters={"type": "object", "properties": {name: {"type": "string"}}},
        execute=nothing,
    )


def changed(*, source: ToolSource = "client", **texts: str) -> Tool:
    named = {"name": "t", "label": "L", "description": "D", "owner": "o", **texts}
    return Tool(
        name=named["name"],
        label=named["label"],
        description=named["description"],
        owner=named["owner"],
        source=source,
        parameters=with_parameter("p").parameters,
        execute=nothing,
    )


@pytest.mark.parametrize(
    "other",
    [
        changed(name="u"),
        changed(label="M"),
        changed(description="E"),
        changed(owner="n"),
        changed(source="openclaw"),
    ],
)
def test_the_digest_changes_with_all_that_programs_see(other: Tool) -> None:
    one, another = build_catalog([changed()]), build_catalog([other])
    assert one.digest != another.digest
    assert one.search_digest != another.search_digest


def test_the_digest_for_search_changes_with_schemas_and_mcp_tools() -> None:
    catalogs = [
        build_catalog([with_parameter("p")]),
        build_catalog([with_parameter("q")]),
        build_catalog([with_parameter("p"), mcp("m")]),
        build_catalog([with_parameter("p"), mcp("n")]),
    ]
    assert len({catalog.digest for catalog in catalogs}) == 1
    assert len({catalog.search_digest for catalog in catalogs}) == 4


NEAR = (
    core("web_search", description="Search the web for pages."),
    core("read_file", description="Read a text from the disk."),
    plugin("create_issue", "github"),
    plugin("create_issue", "gitlab"),
    plugin("close_issue", "github"),
    mcp("create_issues"),
)


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("openclaw:gitlab:create_issue_", "openclaw:gitlab:create_issue"),
        ("openclaw:jira:create_issue", "openclaw:github:create_issue"),
        ("gitlab:createIssue", "openclaw:gitlab:create_issue"),
        ("web_serch", "openclaw:core:web_search"),
        ("WebSearch", "openclaw:core:web_search"),
        ("mcp:github:close_issues", "openclaw:github:close_issue"),
        ("text from the disk", "openclaw:core:read_file"),
    ],
)
def test_the_nearest_id_is_the_one_that_was_likely_meant(text: str, first: str) -> None:
    assert build_catalog(NEAR).nearest(text)[0] == first


def test_the_nearest_ids_are_few_real_distinct_and_not_of_mcp_tools() -> None:
    catalog = build_catalog(NEAR)
    near = catalog.nearest("create_issues", limit=3)
    assert len(near) == len(set(near)) == 3
    assert {*near} <= {entry.id for entry in catalog.guest_entries}


@pytest.mark.parametrize(
    "text", ["", ":::", "\0", "\ud800", "zzzzqqqq", "😀" * 5000, "x:" * 100_000]
)
def test_where_nothing_is_near_nothing_is_named(text: str) -> None:
    assert build_catalog(NEAR).nearest(text) == []


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


def test_calls_are_counted_by_id() -> None:
    counters = CatalogCounters(searches=2, describes=1)
    for tool_id in ("openclaw:core:read", "mcp:github:issue", "openclaw:core:read"):
        counters.count_call(tool_id)
    assert counters.to_json() == {
        "searches": 2,
        "describes": 1,
        "calls": 3,
        "called": {"openclaw:core:read": 2, "mcp:github:issue": 1},
    }


def test_ids_beyond_the_bound_are_counted_together_and_known_ones_on_their_own() -> None:
    counters = CatalogCounters()
    for number in range(MAX_COUNTED_IDS + 10):
        counters.count_call(f"openclaw:core:tool_{number}")
    counters.count_call("openclaw:core:tool_0")
    assert counters.calls == MAX_COUNTED_IDS + 11
    assert (counters.called["openclaw:core:tool_0"], counters.called[OTHER_IDS]) == (2, 10)
    assert len(counters.called) == MAX_COUNTED_IDS + 1


def test_what_was_told_does_not_change_when_counting_goes_on() -> None:
    counters = CatalogCounters()
    told = counters.to_json()
    counters.count_call("openclaw:core:read")
    assert told["called"] == {}
