"""What the model is shown, in both modes and in none."""

from typing import Any, cast

import pytest

from nacre.config.tools import ToolSearchConfig
from nacre.errors import CatalogError
from nacre.json_types import JsonObject, encode_json
from nacre.sandbox import Sandbox
from nacre.tool_search import is_tool_search_active
from nacre.tool_search.model_surface import format_tool
from nacre.tools import Tool
from nacre.tools.definition import DefinitionFormat
from tests.code_mode.mcp_servers import LazyServer
from tests.code_mode.simple_tools import simple_tool
from tests.code_mode.tools import echo_tool
from tests.contract.requirements import requirement
from tests.tool_search.runs import run_with

CONTROLS = ["tool_search", "tool_describe", "tool_call"]
FORMATS: list[DefinitionFormat] = ["openai", "openai-responses", "anthropic", "mcp"]


def names_in(definitions: list[JsonObject]) -> list[Any]:
    return [cast("JsonObject", each["function"])["name"] for each in definitions]


def description_in(definition: JsonObject) -> str:
    return str(cast("JsonObject", definition["function"])["description"])


@requirement("tool-search:code-surface")
async def test_mode_code_shows_one_tool(sandbox: Sandbox) -> None:
    run = await run_with(sandbox, tools=[echo_tool(), echo_tool("other")])
    assert (run.mode, names_in(run.definitions())) == ("code", ["tool_search_code"])
    assert run.visible_names == ("tool_search_code",)


@requirement("tool-search:tools-surface")
async def test_mode_tools_shows_three_tools() -> None:
    run = await run_with(tools=[echo_tool()], config={"mode": "tools"})
    assert (run.mode, names_in(run.definitions())) == ("tools", CONTROLS)


@requirement("tool-search:off-changes-nothing")
async def test_off_shows_the_tools_themselves() -> None:
    tools = [echo_tool(), echo_tool("hidden")]
    document = {"tools": {"toolSearch": False, "deny": ["hidden"]}}
    run = await run_with(tools=tools, config=document)
    assert (run.mode, run.definitions()) == ("direct", [format_tool(tools[0], "openai")])
    result = await run.call("echo", {"x": 1})
    assert result.to_json() == {"status": "completed", "value": {"x": 1}}


@requirement("tool-search:not-with-code-mode")
def test_code_mode_goes_first() -> None:
    on, tools = ToolSearchConfig(enabled=True), [echo_tool()]
    assert is_tool_search_active(on, is_code_mode=False, tools=tools)
    assert not is_tool_search_active(on, is_code_mode=True, tools=tools)


async def test_a_run_without_tools_stays_without_tools(sandbox: Sandbox) -> None:
    controls = [simple_tool(name) for name in CONTROLS]
    run = await run_with(sandbox)
    assert (run.mode, run.definitions()) == ("direct", [])
    run = await run_with(sandbox, tools=[echo_tool()], tools_disabled=True)
    assert (run.mode, run.definitions()) == ("direct", [])
    run = await run_with(sandbox, tools=controls)
    assert run.mode == "direct"
    run = await run_with(sandbox, tools=[echo_tool()], config={"tools": {"allow": []}})
    assert run.definitions() == []


async def test_servers_alone_are_enough() -> None:
    run = await run_with(servers=[LazyServer("github", "search")], config={"mode": "tools"})
    assert names_in(run.definitions()) == CONTROLS


async def test_what_no_catalog_can_hold_is_shown_beside_the_controls() -> None:
    picture = simple_tool("picture", catalog_mode="direct-only")
    run = await run_with(tools=[echo_tool(), picture], config={"mode": "tools"})
    assert names_in(run.definitions()) == [*CONTROLS, "picture"]
    assert run.catalog.by_id("openclaw:core:picture") is None


async def test_such_a_tool_cannot_be_named_like_a_control() -> None:
    tool = simple_tool("tool_call", owner="app", source="client", catalog_mode="direct-only")
    with pytest.raises(CatalogError, match="client:app:tool_call cannot be shown to the model"):
        await run_with(tools=[tool], config={"mode": "tools"})


async def test_a_plugins_tool_may_be_named_like_a_control_and_is_found_like_any_other() -> None:
    tool = echo_tool("tool_call", owner="phone")
    run = await run_with(tools=[tool], config={"mode": "tools"})
    assert [entry.id for entry in run.catalog.entries] == ["openclaw:phone:tool_call"]


async def test_the_model_is_told_who_provides_tools(sandbox: Sandbox) -> None:
    run = await run_with(
        sandbox,
        tools=[echo_tool(), echo_tool("b", owner="mail"), echo_tool("c", owner="mail")],
        servers=[LazyServer("github", "search")],
    )
    assert description_in(run.definitions()[0]).endswith(
        "Tools are provided by: core, mail, github."
    )


async def test_thousands_of_owners_do_not_make_the_description_long() -> None:
    tools = [echo_tool(owner=f"owner{number}") for number in range(2000)]
    run = await run_with(tools=tools, config={"mode": "tools"})
    described = description_in(run.definitions()[0])
    assert len(described) < 700
    assert described.endswith("more.")


async def test_an_owner_cannot_break_the_description() -> None:
    run = await run_with(tools=[echo_tool(owner="{limit}{0}")], config={"mode": "tools"})
    assert "{limit}{0}." in description_in(run.definitions()[0])


def realistic_tool(number: int) -> Tool:
    properties: JsonObject = {
        f"field_{index}": {"type": "string", "description": f"What field {index} is about"}
        for index in range(4)
    }
    return echo_tool(
        f"tool_{number}",
        owner=f"server{number % 20}",
        source="mcp",
        description=f"Does the thing of number {number} for whoever asks for it, and says so",
        parameters={"type": "object", "properties": properties, "required": ["field_0"]},
    )


@requirement("tool-search:smaller-payload")
@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("mode", ["code", "tools"])
async def test_with_300_tools_the_payload_is_at_least_90_percent_smaller(
    sandbox: Sandbox, mode: str, format: DefinitionFormat
) -> None:
    tools = [realistic_tool(number) for number in range(300)]
    run = await run_with(sandbox, tools=tools, config={"mode": mode})
    direct = await run_with(sandbox, tools=tools, config=False)
    sent = len(encode_json(run.definitions(format)))
    assert sent <= 0.1 * len(encode_json(direct.definitions(format)))
    assert sent < 2_500
