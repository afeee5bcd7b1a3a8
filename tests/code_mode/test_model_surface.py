"""The tools that a model sees in code mode, their descriptions and the index of names."""

import json
import re
from collections.abc import Mapping, Sequence

import pytest

from nacre.code_mode.model_surface import (
    ModelSurface,
    exec_description,
    exec_parameters,
    is_code_mode_active,
    join_within,
    name_index,
    visible_tools,
    wait_description,
    wait_parameters,
)
from nacre.code_mode.namespaces import Namespace
from nacre.config.code_mode import LANGUAGES, CodeModeConfig
from nacre.config.tools import tools_config_from
from nacre.errors import CatalogError, ConfigError
from nacre.tools.catalog import Catalog, build_catalog
from nacre.tools.definition import Tool, format_definition
from tests.code_mode.simple_tools import simple_tool

ON = CodeModeConfig(enabled=True)
OFF = CodeModeConfig()

SHELL = simple_tool("exec")
READ = simple_tool("read")
GITHUB = simple_tool("create_issue", owner="github", source="mcp")
IMAGE = simple_tool("show_image", catalog_mode="direct-only")
SEARCH = simple_tool("tool_search")
PLUGIN_SEARCH = simple_tool("tool_search", owner="phone")


def test_when_off_all_tools_are_shown_unchanged() -> None:
    tools = [SHELL, READ, GITHUB, IMAGE, SEARCH]
    surface = visible_tools(tools, config=OFF)
    assert surface == ModelSurface(is_code_mode=False, direct_tools=tuple(tools), cataloged=())
    assert surface.tool_names == ("exec", "read", "create_issue", "show_image", "tool_search")


def test_when_on_only_exec_and_wait_are_shown_and_the_shell_is_cataloged() -> None:
    surface = visible_tools([SHELL, READ, GITHUB], config=ON)
    assert surface == ModelSurface(
        is_code_mode=True, direct_tools=(), cataloged=(SHELL, READ, GITHUB)
    )
    assert surface.tool_names == ("exec", "wait")


def test_tools_that_no_catalog_can_hold_are_shown_beside_exec_and_wait() -> None:
    surface = visible_tools([READ, IMAGE], config=ON)
    assert (surface.direct_tools, surface.cataloged) == ((IMAGE,), (READ,))
    assert surface.tool_names == ("exec", "wait", "show_image")


def test_tool_search_controls_are_in_neither_place_but_a_plugin_s_tool_of_that_name_is() -> None:
    surface = visible_tools([READ, SEARCH, PLUGIN_SEARCH], config=ON)
    assert (surface.direct_tools, surface.cataloged) == ((), (READ, PLUGIN_SEARCH))


def test_a_run_without_tools_is_shown_none() -> None:
    assert visible_tools([], config=ON).tool_names == ()
    disabled = visible_tools([READ, IMAGE], config=ON, tools_disabled=True)
    assert (disabled.is_code_mode, disabled.tool_names, disabled.cataloged) == (False, (), ())


@pytest.mark.parametrize("name", ["exec", "wait"])
def test_a_direct_only_tool_may_not_take_the_place_of_exec_or_wait(name: str) -> None:
    taker = simple_tool(name, owner="evil", catalog_mode="direct-only")
    with pytest.raises(CatalogError, match=f"openclaw:evil:{name} .* belongs to code mode"):
        visible_tools([READ, taker], config=ON)


def test_two_direct_only_tools_may_not_share_a_name() -> None:
    other = simple_tool("show_image", owner="other", catalog_mode="direct-only")
    with pytest.raises(CatalogError, match=r"other:show_image .* openclaw:core:show_image"):
        visible_tools([READ, IMAGE, other], config=ON)


CONFIG = CodeModeConfig(enabled=True)


def described(
    tools: list[Tool],
    *namespaces: Namespace,
    mcp_servers: Sequence[str] = (),
    name_index_bytes: int = 1800,
) -> str:
    return exec_description(
        catalog=build_catalog(tools),
        namespaces=namespaces,
        mcp_servers=mcp_servers,
        name_index_bytes=name_index_bytes,
        languages=LANGUAGES,
    )


def many_tools(count: int, owners: int = 10) -> list[Tool]:
    return [
        simple_tool(f"do_something_useful_{number}", owner=f"plugin{number % owners}")
        for number in range(count)
    ]


def namespace(description: str, prompt: str) -> Namespace:
    return Namespace(
        id="fictions",
        global_name="Fictions",
        description=description,
        required_tool_names=("x",),
        create_scope=lambda context: {},
        prompt=prompt,
    )


def definition_bytes(catalog: Catalog, name_index_bytes: int) -> int:
    description = exec_description(
        catalog=catalog,
        namespaces=(),
        name_index_bytes=name_index_bytes,
        languages=CONFIG.languages,
    )
    definitions = [
        format_definition("exec", description, exec_parameters(CONFIG), "openai"),
        format_definition("wait", wait_description("openai"), wait_parameters(), "openai"),
    ]
    return len(json.dumps(definitions, separators=(",", ":")).encode())


@pytest.mark.parametrize("owners", [1, 10, 500])
@pytest.mark.parametrize("name", ["do_something_useful_{}", "größe_{}", 'a"b\\c{}'])
def test_the_definitions_of_500_tools_stay_small(owners: int, name: str) -> None:
    tools = [
        simple_tool(name.format(number), owner=f"plugin{number % owners}") for number in range(500)
    ]
    catalog = build_catalog(tools)
    without = definition_bytes(catalog, 0)
    assert without <= 2000
    assert definition_bytes(catalog, CONFIG.name_index_bytes) <= min(4000, without + 1800)


def test_wait_says_how_long_a_program_waits_where_there_are_turns() -> None:
    assert wait_description("anthropic").endswith("a waiting program ends with its turn.")
    assert "turn" not in wait_description("mcp").replace("Returns", "")


def test_it_names_all_that_a_program_can_use() -> None:
    text = described([simple_tool("read")])
    for part in (
        *("JavaScript or TypeScript", "async function", "return", "await", "plain data"),
        *("tools.search", "tools.describe", "tools.call(id, input)", "tools.<name>(input)"),
        *("ALL_TOOLS", "text(value)", "json(value)", "console.log", "Promise.all"),
        *("yield_control", "runId", "No imports, files or network", "throws"),
    ):
        assert part in text


def test_it_names_only_the_languages_that_are_enabled() -> None:
    text = exec_description(
        catalog=build_catalog([]), namespaces=(), name_index_bytes=0, languages=("javascript",)
    )
    assert "Run a JavaScript program" in text


def test_mcp_servers_are_named_only_when_there_are_some() -> None:
    assert "MCP" not in described([simple_tool("read")])
    # Tools of a server are not called through `tools`, so the index leaves them out.
    issues = simple_tool("create_issue", owner="github", source="mcp")
    text = described([simple_tool("read"), issues], mcp_servers=("docs", "github"))
    assert "MCP servers: docs, github." in text
    assert "MCP.<server>.<tool>(input)" in text
    assert "create_issue" not in text


def test_without_ordinary_tools_nothing_is_said_of_them() -> None:
    text = described([], mcp_servers=("github",))
    assert "tools.search" not in text
    assert "ALL_TOOLS" not in text


def test_many_mcp_servers_are_counted_not_listed() -> None:
    text = described([], mcp_servers=[f"server{number}" for number in range(900)])
    assert " more). await MCP" in text
    assert len(text) < 2500


def test_a_namespace_is_described_in_one_line() -> None:
    text = described(
        [simple_tool("x")],
        namespace("Fiction\nhelpers.", "Use Fictions.audit().\n\ntools.<name> by owner:"),
    )
    assert (
        "\nGlobal Fictions: Fiction helpers. Use Fictions.audit(). tools.<name> by owner:\n" in text
    )
    assert "Fictions" not in described([simple_tool("x")])


def test_braces_in_what_others_wrote_are_left_as_they_are() -> None:
    assert "Global Fictions: {count} {0} end" in described(
        [simple_tool("x")], namespace("{count}", "{0} end")
    )


def index_of(tools: list[Tool], max_bytes: int = 1800) -> str:
    return name_index(build_catalog(tools), max_bytes=max_bytes)


def json_bytes(text: str) -> int:
    return len(json.dumps("\n" + text)) - 2


def tools_of_owners(count: int, owners: int) -> list[Tool]:
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
    assert index_of(tools_of_owners(500, 10), max_bytes=30) == ""


@pytest.mark.parametrize("owners", [1, 7, 60])
@pytest.mark.parametrize("max_bytes", [1000, 1800, 4000])
def test_when_not_all_fit_every_owner_shows_and_the_rest_is_counted(
    owners: int, max_bytes: int
) -> None:
    text = index_of(tools_of_owners(1000, owners), max_bytes)
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
        *tools_of_owners(20, 3),
    ]
    text = index_of(tools, max_bytes)
    assert text == "" or json_bytes(text) <= max_bytes


def test_one_long_name_does_not_keep_the_others_out() -> None:
    text = index_of([simple_tool("x" * 250, owner="a"), *tools_of_owners(100, 1)], max_bytes=200)
    assert "p0: tool_0, tool_1" in text
    assert re.search(r"\(\+\d+ more: tools\.search\)$", text)


def test_equal_sets_of_tools_give_equal_text() -> None:
    tools = tools_of_owners(500, 9)
    assert index_of(tools) == index_of(tools[::-1])


def test_names_beyond_a_budget_are_counted() -> None:
    assert join_within(["a", "b"], 100) == "a, b"
    assert join_within(["aaaa", "bbbb", "cccc"], 14) == "aaaa, bbbb (+1 more)"


ACTIVE = CodeModeConfig(enabled=True)


def code_mode_config_for(document: Mapping[str, object], agent_id: str) -> CodeModeConfig:
    return tools_config_from(document, agent_id).code_mode


def test_it_is_on_when_enabled_and_the_run_has_tools() -> None:
    assert is_code_mode_active(ACTIVE, tools=[simple_tool("read")])
    assert is_code_mode_active(ACTIVE, tools=[simple_tool("image", catalog_mode="direct-only")])


@pytest.mark.parametrize("config", [None, False, {}, {"timeoutMs": 500}, {"enabled": False}])
def test_it_is_off_without_enabled_true(config: object) -> None:
    settings = code_mode_config_for({"tools": {"codeMode": config}}, "main")
    assert not is_code_mode_active(settings, tools=[simple_tool("read")])


def test_a_run_without_tools_stays_without_tools() -> None:
    assert not is_code_mode_active(ACTIVE, tools=[])
    assert not is_code_mode_active(ACTIVE, tools=[simple_tool("read")], tools_disabled=True)
    # What is left of a run whose real tools were all denied.
    assert not is_code_mode_active(
        ACTIVE, tools=[simple_tool("tool_search"), simple_tool("tool_call")]
    )


def test_nothing_configured_is_the_default() -> None:
    assert code_mode_config_for({}, "main") == CodeModeConfig()
    assert code_mode_config_for({"tools": None, "agents": None}, "main") == CodeModeConfig()
    assert code_mode_config_for({"agents": {"list": None}}, "main") == CodeModeConfig()


@pytest.mark.parametrize(
    "agents",
    [
        {"list": [{"id": "other", "tools": {"codeMode": False}}, {"id": "main", "tools": None}]},
        {"list": [{"id": "main"}]},
        {"main": None},
        {"list": [{"id": "main", "tools": {"codeMode": None}}]},
    ],
)
def test_an_agent_without_settings_has_the_global_ones(agents: object) -> None:
    config = {"tools": {"codeMode": True}, "agents": agents}
    assert code_mode_config_for(config, "main") == ACTIVE


@pytest.mark.parametrize("shape", ["list", "map"])
def test_an_agent_s_settings_are_laid_over_the_global_ones_key_by_key(shape: str) -> None:
    own = {"tools": {"codeMode": {"timeoutMs": 500}}}
    agents = {"list": [{"id": "main", **own}]} if shape == "list" else {"main": own}
    config = {
        "tools": {"codeMode": {"enabled": True, "timeoutMs": 900, "maxPendingToolCalls": 3}},
        "agents": agents,
    }
    assert code_mode_config_for(config, "main") == CodeModeConfig(
        enabled=True, timeout_ms=500, max_pending_tool_calls=3
    )
    assert code_mode_config_for(config, "other").timeout_ms == 900


def test_an_agent_s_boolean_is_a_switch_and_keeps_the_global_limits() -> None:
    config = {
        "tools": {"codeMode": {"enabled": True, "timeoutMs": 900}},
        "agents": {"list": [{"id": "quiet", "tools": {"codeMode": False}}]},
    }
    assert code_mode_config_for(config, "quiet") == CodeModeConfig(enabled=False, timeout_ms=900)


def test_an_agent_s_settings_can_be_laid_over_a_global_boolean() -> None:
    config = {
        "tools": {"codeMode": True},
        "agents": {"main": {"tools": {"codeMode": {"timeoutMs": 500}}}},
    }
    assert code_mode_config_for(config, "main") == CodeModeConfig(enabled=True, timeout_ms=500)


def test_limits_that_depend_on_each_other_are_clamped_after_merging() -> None:
    config = {
        "tools": {"codeMode": {"searchDefaultLimit": 20}},
        "agents": {"main": {"tools": {"codeMode": {"maxSearchLimit": 10}}}},
    }
    assert code_mode_config_for(config, "main").search_default_limit == 10


@pytest.mark.parametrize(
    ("config", "path"),
    [
        ({"tools": 1}, "tools"),
        ({"tools": {"codeMode": "on"}}, "tools.codeMode"),
        ({"tools": {"codeMode": {"timeoutMs": "soon"}}}, "tools.codeMode.timeoutMs"),
        ({"agents": []}, "agents"),
        ({"agents": {"list": {}}}, "agents.list"),
        ({"agents": {"list": {"id": "main"}}}, "agents.list"),
        ({"agents": {"list": [1]}}, "agents.list[0]"),
        ({"agents": {"list": [{}, {"id": "main", "tools": 5}]}}, "agents.list[1].tools"),
        (
            {"agents": {"list": [{"id": "main", "tools": {"codeMode": {"enabled": "yes"}}}]}},
            "agents.list[0].tools.codeMode.enabled",
        ),
        ({"agents": {"main": {"tools": {"codeMode": 3}}}}, "agents.main.tools.codeMode"),
    ],
)
def test_a_fault_is_reported_where_it_was_made(config: dict[str, object], path: str) -> None:
    with pytest.raises(ConfigError) as caught:
        code_mode_config_for(config, "main")
    assert caught.value.path == path
