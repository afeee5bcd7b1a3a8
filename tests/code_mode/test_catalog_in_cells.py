"""What a program finds of its run's tools, and what it cannot reach whatever it tries."""

from typing import Any

import pytest

from nacre import RunContext, Runtime, Tool
from nacre.json_types import JsonObject
from tests.code_mode.outcomes import failure_of, value_of
from tests.code_mode.tools import echo_tool
from tests.contract.requirements import requirement

CAUGHT = (
    ".then(() => 'called', e => ({name: e.name, code: e.code, toolId: e.toolId, near: e.nearest}))"
)
TITLED: JsonObject = {
    "type": "object",
    "properties": {"title": {"type": "string"}},
    "required": ["title"],
}


async def outcome(runtime: Runtime, code: str, *tools: Tool, **options: Any) -> Any:
    return value_of(await runtime.run(tools=tools, **options).exec(code))


# ALL_TOOLS.


@requirement("validation:all-tools")
async def test_all_tools_holds_every_tool_but_mcp_ones_in_the_order_of_the_contract(
    runtime: Runtime,
) -> None:
    tools = [
        echo_tool("pick", owner="app", source="client"),
        echo_tool("create", owner="github", source="mcp"),
        echo_tool("outside", owner="zoo"),
        echo_tool("browse", owner="web", is_bundled=True, label="Browse"),
        echo_tool("write"),
        echo_tool("read"),
    ]
    listed = await outcome(runtime, "return ALL_TOOLS", *tools)
    assert [entry["id"] for entry in listed] == [
        "openclaw:core:read",
        "openclaw:core:write",
        "openclaw:web:browse",
        "openclaw:zoo:outside",
        "client:app:pick",
    ]
    assert listed[0] == {
        "id": "openclaw:core:read",
        "name": "read",
        "description": "Return the input of read",
        "source": "openclaw",
    }
    assert listed[2] == {
        "id": "openclaw:web:browse",
        "name": "browse",
        "label": "Browse",
        "description": "Return the input of browse",
        "source": "openclaw",
        "sourceName": "web",
    }


@requirement("validation:denied-tools")
@pytest.mark.parametrize(
    "policy",
    [
        {"deny": ["secret"]},
        {"deny": ["openclaw:core:secret"]},
        {"allow": ["read"]},
        {"allow": ["*"], "deny": ["s*"]},
    ],
)
@pytest.mark.parametrize("guess", ["openclaw:core:secret", "secret", "OPENCLAW:CORE:SECRET"])
async def test_a_denied_tool_is_absent_and_cannot_be_guessed(
    policy: dict[str, Any], guess: str
) -> None:
    called: list[object] = []

    async def execute(input: dict[str, Any], call: object) -> object:
        called.append(input)
        return None

    config = {"tools": {"codeMode": True, **policy}}
    async with Runtime(config, workers=1) as runtime:
        found = await outcome(
            runtime,
            f"const guessed = await tools.call({guess!r}, {{}}){CAUGHT};"
            f"const described = await tools.describe({guess!r}){CAUGHT};"
            "return {ids: ALL_TOOLS.map(t => t.id), guessed, described, own: typeof tools.secret,"
            " hits: (await tools.search('secret')).map(t => t.id), keys: Object.keys(tools)}",
            echo_tool("read"),
            Tool(name="secret", description="The secret tool", execute=execute),
        )
    assert found["ids"] == ["openclaw:core:read"]
    assert found["guessed"]["code"] == found["described"]["code"] == "unknown_tool"
    assert "openclaw:core:secret" not in found["hits"]
    assert (found["own"], found["keys"]) == ("undefined", ["search", "describe", "call", "read"])
    assert called == []


async def test_runs_never_see_each_other_s_tools(runtime: Runtime) -> None:
    first = runtime.run(tools=[echo_tool("one")], context=RunContext(session_id="s"))
    second = runtime.run(tools=[echo_tool("two")], context=RunContext(session_id="s"))
    code = (
        "return [Object.keys(tools).slice(3), ALL_TOOLS.map(t => t.name),"
        "(await tools.search('input')).map(t => t.name)]"
    )
    # In turns, so that workers have seen the other's catalog before.
    for _ in range(2):
        assert value_of(await first.exec(code)) == [["one"], ["one"], ["one"]]
        assert value_of(await second.exec(code)) == [["two"], ["two"], ["two"]]
    failed = failure_of(await first.exec("return tools.call('openclaw:core:two', {})"))
    assert failed.reason == "nested_tool_failed"


# Search, describe, call.


@requirement("validation:search-describe-call")
@pytest.mark.parametrize(
    ("owner", "source"), [("core", "openclaw"), ("tracker", "openclaw"), ("app", "client")]
)
async def test_a_tool_is_found_described_and_called(
    runtime: Runtime, owner: str, source: str
) -> None:
    found = await outcome(
        runtime,
        "const [hit] = await tools.search('create an issue');"
        "const described = await tools.describe(hit.id);"
        "const result = await tools.call(described.id, {title: 'x'});"
        "return {hit, described, result, same: await tools.create_issue({title: 'x'})}",
        echo_tool("read_file"),
        echo_tool(
            "create_issue",
            description="Create an issue",
            parameters=TITLED,
            output_schema={"type": "object"},
            owner=owner,
            source=source,
        ),
    )
    assert found["hit"]["id"] == f"{source}:{owner}:create_issue"
    assert "parameters" not in found["hit"]
    assert found["described"] == {
        **found["hit"],
        "parameters": TITLED,
        "outputSchema": {"type": "object"},
    }
    assert found["result"] == found["same"] == {"title": "x"}


@pytest.mark.parametrize(
    ("options", "count"),
    [("", 8), (", {limit: 3}", 3), (", {limit: 1000}", 50), (", {limit: 0}", 1), (", {}", 8)],
)
async def test_search_returns_as_many_as_asked_within_the_limits(
    runtime: Runtime, options: str, count: int
) -> None:
    tools = [echo_tool(f"report_{number}") for number in range(60)]
    code = f"return (await tools.search('report'{options})).length"
    assert await outcome(runtime, code, *tools) == count


async def test_a_wrong_id_names_the_nearest_ones(runtime: Runtime) -> None:
    found = await outcome(
        runtime,
        f"return tools.call('openclaw:core:create_isue', {{}}){CAUGHT}",
        echo_tool("create_issue"),
        echo_tool("unrelated"),
    )
    assert found == {
        "name": "UnknownToolError",
        "code": "unknown_tool",
        "toolId": "openclaw:core:create_isue",
        "near": ["openclaw:core:create_issue"],
    }


async def test_a_huge_id_is_refused_in_few_words(runtime: Runtime) -> None:
    code = (
        "return tools.call('x'.repeat(200000), {}).catch(e => e.message.length + e.toolId.length)"
    )
    assert await outcome(runtime, code, echo_tool()) < 600


# Names.


@requirement("security:helpers-not-shadowed")
@pytest.mark.parametrize(
    "name",
    [
        *("search", "describe", "call", "then", "toJSON", "constructor", "__proto__", "toString"),
        *("hasOwnProperty", "valueOf", "prototype", "__defineGetter__"),
    ],
)
async def test_a_tool_named_like_a_member_of_objects_is_called_by_id_alone(
    runtime: Runtime, name: str
) -> None:
    found = await outcome(
        runtime,
        f"const named = {name!r}; const own = Object.keys(tools);"
        "const awaited = await Promise.resolve(tools);"
        "return {own, listed: ALL_TOOLS.map(t => t.name), written: typeof JSON.stringify(tools),"
        " helper: typeof tools[named] === 'function', same: awaited === tools,"
        " hits: (await tools.search('input')).length,"
        " by_id: await tools.call('openclaw:core:' + named, {id: 1})}",
        echo_tool(name),
    )
    assert found == {
        "own": ["search", "describe", "call"],
        "listed": [name],
        "written": "string",
        "helper": name in ("search", "describe", "call"),
        "same": True,
        "hits": 1,
        "by_id": {"id": 1},
    }


@requirement("security:helpers-not-shadowed")
async def test_names_that_two_tools_would_have_are_left_out(runtime: Runtime) -> None:
    found = await outcome(
        runtime,
        "return {own: Object.keys(tools).slice(3),"
        " one: await tools.call('openclaw:a:read', {n: 1}),"
        " two: await tools.call('openclaw:b:read', {n: 2}),"
        f" name: await tools.call('read'){CAUGHT},"
        " dash: await tools.call('openclaw:core:get-x', {n: 3})}",
        echo_tool("read", owner="a"),
        echo_tool("read", owner="b"),
        echo_tool("get-x"),
        echo_tool("get.x"),
        echo_tool("list-all"),
    )
    assert (found["own"], found["one"], found["two"], found["dash"]) == (
        ["list_all"],
        {"n": 1},
        {"n": 2},
        {"n": 3},
    )
    assert found["name"]["code"] == "unknown_tool"


async def test_a_name_that_is_no_tool_says_where_to_look(runtime: Runtime) -> None:
    failed = failure_of(
        await runtime.run(tools=[echo_tool()]).exec("return await tools.nothing({})")
    )
    assert "tools.nothing does not exist; find tools with tools.search(query)" in failed.error


# What no program reaches.


@requirement("validation:mcp-not-in-tools")
@pytest.mark.parametrize(
    "guess", ["mcp:github:create_issue", "create_issue", "github:create_issue"]
)
async def test_mcp_tools_are_neither_listed_in_tools_nor_called_through_it(
    runtime: Runtime, guess: str
) -> None:
    run = runtime.run(tools=[echo_tool(), echo_tool("create_issue", owner="github", source="mcp")])
    result = await run.exec(
        f"const call = await tools.call({guess!r}, {{}}){CAUGHT};"
        f"const described = await tools.describe({guess!r}){CAUGHT};"
        "return {codes: [call.code, described.code], near: call.near,"
        " own: typeof tools.create_issue,"
        " ids: ALL_TOOLS.map(t => t.id), hits: (await tools.search('create issue')).map(t => t.id)}"
    )
    found = value_of(result)
    assert found["codes"] == ["unknown_tool", "unknown_tool"]
    assert (found["own"], found["ids"], found["near"]) == ("undefined", ["openclaw:core:echo"], [])
    assert "mcp:github:create_issue" not in found["hits"]
    # The run has it all the same: its namespace calls it.
    assert result.telemetry.sources == {"openclaw": 1, "mcp": 1, "client": 0}


@requirement("validation:shell-exec", "validation:no-recursion", "security:no-recursion")
async def test_the_shell_is_called_by_its_id_and_code_mode_s_own_tools_are_not(
    runtime: Runtime,
) -> None:
    run = runtime.run(tools=[echo_tool("exec")])
    assert run.visible_names == ("exec", "wait")
    found = value_of(
        await run.exec(
            "return {shell: await tools.call('openclaw:core:exec', {command: 'ls'}),"
            " named: await tools.exec({command: 'pwd'}),"
            f" wait: (await tools.call('openclaw:core:wait', {{}}){CAUGHT}).code,"
            f" own: (await tools.call('code_mode:exec', {{code: 'return 1'}}){CAUGHT}).code,"
            f" own_wait: (await tools.call('code_mode:wait', {{}}){CAUGHT}).code,"
            " ids: ALL_TOOLS.map(t => t.id), type: typeof tools.wait}"
        )
    )
    assert found == {
        "shell": {"command": "ls"},
        "named": {"command": "pwd"},
        "wait": "unknown_tool",
        "own": "unknown_tool",
        "own_wait": "unknown_tool",
        "ids": ["openclaw:core:exec"],
        "type": "undefined",
    }


@requirement("validation:no-recursion", "security:no-recursion")
@pytest.mark.parametrize("name", ["exec", "wait"])
async def test_without_a_shell_there_is_no_exec_and_no_wait_to_call(
    runtime: Runtime, name: str
) -> None:
    code = (
        f"return [typeof tools[{name!r}], (await tools.call({name!r}, {{code: '1'}}){CAUGHT}).code,"
        f" (await tools.call('openclaw:core:{name}', {{}}){CAUGHT}).code]"
    )
    assert await outcome(runtime, code, echo_tool()) == [
        "undefined",
        "unknown_tool",
        "unknown_tool",
    ]


@requirement("validation:tool-search-hidden", "security:no-recursion")
@pytest.mark.parametrize("name", ["tool_search_code", "tool_search", "tool_describe", "tool_call"])
async def test_the_controls_of_tool_search_are_nowhere(runtime: Runtime, name: str) -> None:
    run = runtime.run(tools=[echo_tool(), echo_tool(name)])
    assert run.visible_names == ("exec", "wait")
    found = value_of(
        await run.exec(
            f"return [ALL_TOOLS.map(t => t.name), (await tools.call({name!r}, {{}}){CAUGHT}).code,"
            f" (await tools.call('openclaw:core:{name}', {{}}){CAUGHT}).code]"
        )
    )
    assert found == [["echo"], "unknown_tool", "unknown_tool"]


async def test_direct_only_tools_are_shown_to_the_model_and_not_to_programs(
    runtime: Runtime,
) -> None:
    run = runtime.run(tools=[echo_tool(), echo_tool("show_image", catalog_mode="direct-only")])
    assert run.visible_names == ("exec", "wait", "show_image")
    found = value_of(
        await run.exec(
            "return [ALL_TOOLS.map(t => t.name),"
            f" (await tools.call('show_image', {{}}){CAUGHT}).code]"
        )
    )
    assert found == [["echo"], "unknown_tool"]
