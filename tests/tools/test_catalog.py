"""The catalog of a run: order, ids, what is left out, what a name means, what is near."""

import gc
import json
import random
import weakref
from dataclasses import replace

import pytest

from nacre.errors import CatalogError, ToolDefinitionError
from nacre.tools.catalog import CONTROL_NAMES, Catalog, build_catalog
from nacre.tools.definition import Tool, ToolCall, ToolSource


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
