"""Headers and search of `MCP` in programs, and forged requests."""

from typing import Any

import anyio
import pytest

from nacre import Runtime
from nacre.code_mode.mcp_servers import McpRequests, McpServers, with_defaults
from nacre.errors import UnknownToolError
from nacre.json_types import JsonObject, JsonValue
from nacre.tools import ToolPolicy
from nacre.tools.definition import ListedServer
from tests.code_mode.mcp_servers import (
    CAUGHT,
    TITLED,
    BrokenServer,
    LazyServer,
    listed,
    mcp_tool,
    outcome,
)
from tests.code_mode.outcomes import value_of
from tests.contract.requirements import requirement

OUTPUT: JsonObject = {"type": "object", "properties": {"url": {"type": "string"}}}
GITHUB = ListedServer(
    "github",
    [
        mcp_tool(description="Create an issue", parameters=TITLED, output_schema=OUTPUT),
        mcp_tool("list_all"),
    ],
)

# Headers.


@requirement("validation:mcp-headers")
async def test_the_header_of_all_servers_tells_their_files_and_starts_none(
    runtime: Runtime,
) -> None:
    lazy = LazyServer("lazy", "a")
    assert await outcome(runtime, "return MCP.$api()", GITHUB, lazy) == {
        "servers": [
            {"server": "github", "tools": 2, "file": "mcp/github.d.ts"},
            {"server": "lazy", "tools": None, "note": "not started yet; ask it for $api()"},
        ]
    }
    assert lazy.starts == 0


@requirement("validation:mcp-headers")
async def test_the_header_of_a_server_holds_its_declarations(runtime: Runtime) -> None:
    header, text = await outcome(
        runtime, "return [await MCP.github.$api(), await API.read('mcp/github.d.ts')]", GITHUB
    )
    assert header == {
        "server": "github",
        "file": "mcp/github.d.ts",
        "tools": ["createIssue", "listAll"],
        "declaration": text,
    }


@requirement("validation:mcp-headers")
@pytest.mark.parametrize("name", ["createIssue", "create_issue"])
async def test_the_header_of_one_tool_holds_its_schema_if_asked(
    runtime: Runtime, name: str
) -> None:
    code = (
        f"const api = MCP.github.$api, name = {name!r};"
        "return Promise.all([api(name), api(name, {schema: true}), api(name, {schema: false})])"
    )
    short, full, same = await outcome(runtime, code, GITHUB)
    declaration = short.pop("declaration")
    assert short == {
        "server": "github",
        "tool": "createIssue",
        "name": "create_issue",
        "description": "Create an issue",
    }
    assert "function createIssue(input: { title: string; labels?: string[] })" in declaration
    assert "url?: string" in declaration
    assert "listAll" not in declaration
    assert full == {
        **short,
        "declaration": declaration,
        "inputSchema": TITLED,
        "outputSchema": OUTPUT,
    }
    assert same == {**short, "declaration": declaration}


async def test_headers_of_what_does_not_exist_are_refused(runtime: Runtime) -> None:
    found = await outcome(
        runtime,
        f"return [await MCP.github.$api('createIsue'){CAUGHT}, await MCP.github.$api(5){CAUGHT},"
        f" await MCP.$api('github'){CAUGHT}, await MCP.github.$api('__proto__'){CAUGHT}]",
        GITHUB,
    )
    near, number, misplaced, hostile = found
    assert (near["code"], hostile["code"]) == ("unknown_tool", "unknown_tool")
    assert "nearest: MCP.github.createIssue" in near["message"]
    assert (number["name"], misplaced["name"]) == ("TypeError", "TypeError")


async def test_headers_are_counted_as_looks(runtime: Runtime) -> None:
    result = await runtime.run(mcp=[GITHUB]).exec(
        "await MCP.$api(); await MCP.github.$api('createIssue'); await MCP.$search('issue')"
    )
    assert (result.telemetry.describe_count, result.telemetry.search_count) == (2, 1)
    assert result.telemetry.call_count == 0


# Search.


async def test_search_finds_tools_of_all_servers_with_the_path_to_call_and_the_file_to_read(
    runtime: Runtime,
) -> None:
    lazy = LazyServer("weather-service", "get_forecast")
    hit, *others = await outcome(runtime, "return MCP.$search('forecast')", GITHUB, lazy)
    assert hit == {
        "path": "MCP.weatherService.getForecast",
        "description": "get_forecast of weather-service",
        "server": "weatherService",
        "file": "mcp/weatherService.d.ts",
    }
    assert (others, lazy.starts) == ([], 1)


@pytest.mark.parametrize(
    ("options", "count"), [("", 8), (", {limit: 3}", 3), (", {limit: 1000}", 50), (", {}", 8)]
)
async def test_search_returns_as_many_as_asked_within_the_limits(
    runtime: Runtime, options: str, count: int
) -> None:
    server = listed("reports", *(f"report_{number}" for number in range(60)))
    code = f"return (await MCP.$search('report'{options})).length"
    assert await outcome(runtime, code, server) == count


@pytest.mark.parametrize("arguments", ["", "5", "null", "'issue', {limit: 'x'}"])
async def test_a_search_that_is_none_is_refused(runtime: Runtime, arguments: str) -> None:
    found = await outcome(runtime, f"return MCP.$search({arguments}){CAUGHT}", GITHUB)
    assert found["name"] == "TypeError"


async def test_search_names_the_servers_that_it_could_not_look_into(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nacre.tools.servers._FIRST_WAIT_SECONDS", 0.1)
    hanging = LazyServer("hanging", "create_issue", is_held=True)
    run = runtime.run(mcp=[BrokenServer(), hanging, GITHUB])
    with anyio.fail_after(10):
        result = await run.exec("return MCP.$search('create issue', {limit: 1})")
    hit, broken, late = value_of(result)
    assert hit["path"] == "MCP.github.createIssue"
    assert broken == {
        "server": "broken",
        "problem": "the MCP server broken does not start: no such file",
    }
    assert late == {
        "server": "hanging",
        "problem": "the MCP server hanging is still starting; try again later",
    }
    hanging.let_go()
    await hanging.tools()
    found = value_of(await run.exec("return MCP.$search('create issue')"))
    assert {hit.get("path") for hit in found} >= {
        "MCP.github.createIssue",
        "MCP.hanging.createIssue",
    }


async def test_a_slow_server_costs_searches_no_time_of_the_program(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The first search waits longer than the program may run.
    monkeypatch.setattr("nacre.tools.servers._FIRST_WAIT_SECONDS", 1.2)
    slow = LazyServer("slow", "create_issue", is_held=True)
    code = (
        "const search = async () => (await MCP.$search('create issue', {limit: 1}))"
        ".map(hit => hit.path ?? hit.server);"
        "return [await search(), await search(), await search()]"
    )
    async with Runtime({"timeoutMs": 1_000}, workers=1) as runtime:
        found = await outcome(runtime, code, slow, GITHUB)
    assert found == [["MCP.github.createIssue", "slow"]] * 3


async def test_a_run_without_servers_finds_nothing(runtime: Runtime) -> None:
    code = "return [await MCP.$search('anything'), await MCP.$api(), Object.keys(MCP)]"
    assert await outcome(runtime, code) == [[], {"servers": []}, []]


# Defaults.

PAGED: JsonObject = {
    "type": "object",
    "properties": {
        "page": {"type": "integer", "default": 1},
        "query": {"type": "string"},
        "is_open": {"type": "boolean", "default": False},
        "odd": True,
    },
}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (None, {"page": 1, "is_open": False}),
        ({}, {"page": 1, "is_open": False}),
        ({"page": 2}, {"page": 2, "is_open": False}),
        ({"page": None, "is_open": True}, {"page": None, "is_open": True}),
        ({"other": 1}, {"other": 1, "page": 1, "is_open": False}),
        ([1], [1]),
        ("text", "text"),
    ],
)
def test_defaults_are_those_of_members_that_are_left_out(
    given: JsonValue, expected: JsonValue
) -> None:
    assert with_defaults(PAGED, given) == expected


@pytest.mark.parametrize("properties", [None, [], "x", {"a": None}, {"a": []}, {"a": "default"}])
def test_a_schema_without_sound_members_has_no_defaults(properties: JsonValue) -> None:
    assert with_defaults({"type": "object", "properties": properties}, {"b": 1}) == {"b": 1}


async def test_a_default_of_null_is_left_to_the_server(
    runtime: Runtime,
) -> None:
    # What many servers write for an argument that may be left out.
    schema: JsonObject = {
        "type": "object",
        "properties": {"label": {"type": "string", "default": None}},
    }
    server = ListedServer("github", [mcp_tool(parameters=schema)])
    found = await outcome(runtime, "return MCP.github.createIssue()", server)
    assert found["structuredContent"] == {}


# Payloads of a worker that hostile code has taken over.


def requests_to(*servers: Any) -> McpRequests:
    return McpRequests(McpServers(servers, ToolPolicy()))


@pytest.mark.parametrize(
    "payload",
    [
        {},
        {"server": None, "path": ["a"]},
        {"server": 5, "path": ["a"]},
        {"server": ["github"], "path": ["a"]},
        {"server": "nope", "path": ["a"]},
        {"server": "my_server", "path": ["a"]},
        {"server": "myServer"},
        {"server": "myServer", "path": "a"},
        {"server": "myServer", "path": {"0": "a"}},
        {"server": "myServer", "path": [1]},
        {"server": "myServer", "path": []},
        {"server": "myServer", "path": ["a", "a"]},
        {"server": "myServer", "path": ["$resources.read"]},
        {"server": "myServer", "path": ["resources"]},
        {"server": "myServer", "path": ["resources", "read", "more"]},
        {"server": "myServer", "path": ["x" * 100_000] * 3},
    ],
)
async def test_a_forged_call_reaches_no_tool(payload: JsonObject) -> None:
    requests = requests_to(listed("my_server", "a", "$resources.read"))
    with pytest.raises(UnknownToolError) as refusal:
        await requests.tool_to_call(payload)
    assert len(refusal.value.message) < 400


async def test_a_sound_call_is_resolved_to_the_tool_s_own_name() -> None:
    requests = requests_to(listed("my_server", "do_it", "$resources.read"))
    tool, given = await requests.tool_to_call(
        {"server": "myServer", "path": ["doIt"], "input": {"n": 1}}
    )
    assert (tool.id, given) == ("mcp:my_server:do_it", {"n": 1})
    tool, _ = await requests.tool_to_call({"server": "myServer", "path": ["resources", "read"]})
    assert tool.id == "mcp:my_server:$resources.read"


@pytest.mark.parametrize(
    "payload",
    [
        {"server": 5},
        {"server": "nope"},
        {"server": "github", "tool": 5},
        {"server": "github", "tool": "x" * 100_000},
    ],
)
async def test_a_forged_look_is_refused(payload: JsonObject) -> None:
    with pytest.raises(UnknownToolError) as refusal:
        await requests_to(GITHUB).header(payload)
    assert len(refusal.value.message) < 400
