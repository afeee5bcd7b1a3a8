"""What the model is told about `exec`: enough to use it, in few bytes."""

import json
from collections.abc import Sequence

import pytest

from nacre.code_mode.control_tools import exec_parameters, wait_parameters
from nacre.code_mode.model_surface import WAIT_DESCRIPTION, exec_description
from nacre.code_mode.namespaces import Namespace
from nacre.config.code_mode import LANGUAGES, CodeModeConfig
from nacre.tools.catalog import Catalog, build_catalog
from nacre.tools.definition import Tool, format_definition
from tests.code_mode.simple_tools import simple_tool

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
        format_definition("wait", WAIT_DESCRIPTION, wait_parameters(), "openai"),
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
