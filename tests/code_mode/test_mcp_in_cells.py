"""What programs do with MCP servers: call them, miss them, wait for them, and what they cannot."""

from typing import Any, cast

import anyio
import pytest

from nacre import (
    AskApproval,
    BeforeToolCall,
    Block,
    ChangeInput,
    CodeModeResult,
    Deny,
    RunContext,
    Runtime,
    Tool,
    ToolCall,
    Waiting,
    tool,
)
from nacre.errors import CatalogError
from nacre.tools.definition import ListedServer
from nacre.trajectory import project
from tests.code_mode.mcp_servers import (
    CAUGHT,
    TITLED,
    BrokenServer,
    LazyServer,
    listed,
    mcp_tool,
    outcome,
)
from tests.code_mode.outcomes import failure_of, value_of, waiting_of
from tests.code_mode.tools import HeldTool, echo_tool
from tests.contract.requirements import requirement

# Calls.


@requirement("validation:mcp-calls")
async def test_a_tool_is_called_with_one_object_and_is_not_among_the_ordinary_ones(
    runtime: Runtime,
) -> None:
    found = await outcome(
        runtime,
        "return {servers: Object.keys(MCP), functions: Object.keys(MCP.chromeDevtools),"
        " result: await MCP.chromeDevtools.takeSnapshot({output: 'markdown'}),"
        " nothing: await MCP.chromeDevtools.takeSnapshot(),"
        " all: ALL_TOOLS.map(t => t.id), names: Object.keys(tools), own: typeof tools.takeSnapshot,"
        f" by_id: (await tools.call('mcp:chrome-devtools:take_snapshot', {{}}){CAUGHT}).code,"
        f" described: (await tools.describe('take_snapshot'){CAUGHT}).code,"
        " hits: (await tools.search('take snapshot')).map(t => t.id)}",
        listed("chrome-devtools", "take_snapshot"),
        tools=[echo_tool()],
    )
    assert found == {
        "servers": ["chromeDevtools"],
        "functions": ["takeSnapshot"],
        "result": {"content": [], "structuredContent": {"output": "markdown"}},
        "nothing": {"content": [], "structuredContent": {}},
        "all": ["openclaw:core:echo"],
        "names": ["search", "describe", "call", "echo"],
        "own": "undefined",
        "by_id": "unknown_tool",
        "described": "unknown_tool",
        "hits": [],
    }


async def test_mcp_tools_among_the_tools_of_a_run_are_grouped_by_their_server(
    runtime: Runtime,
) -> None:
    tools = [mcp_tool("a", "one"), mcp_tool("b", "two"), mcp_tool("c", "one"), echo_tool()]
    code = "return Object.keys(MCP).map(name => [name, Object.keys(MCP[name])])"
    assert await outcome(runtime, code, listed("three", "d"), tools=tools) == [
        ["one", ["a", "c"]],
        ["two", ["b"]],
        ["three", ["d"]],
    ]


async def test_a_result_is_the_server_s_own_with_every_key_and_an_error_in_it_does_not_throw(
    runtime: Runtime,
) -> None:
    result = {
        "content": [{"type": "text", "text": "no such repository"}, {"type": "x-odd", "n": 1}],
        "structuredContent": {"a": None},
        "isError": True,
        "_meta": {"trace": "t"},
        "x-unknown": [1, {"deep": True}],
    }

    async def execute(input: dict[str, Any], call: ToolCall) -> object:
        return result

    server = ListedServer("github", [mcp_tool(execute=execute)])
    assert await outcome(runtime, "return MCP.github.createIssue({})", server) == result


async def test_a_tool_that_raises_rejects_with_an_error_to_catch(runtime: Runtime) -> None:
    async def execute(input: dict[str, Any], call: ToolCall) -> object:
        raise ValueError("the connection is closed")

    server = ListedServer("github", [mcp_tool(execute=execute)])
    found = await outcome(runtime, f"return MCP.github.createIssue({{}}){CAUGHT}", server)
    assert (found["code"], found["message"], found["toolId"]) == (
        "tool_failed",
        "the connection is closed",
        "mcp:github:create_issue",
    )


async def test_defaults_are_filled_in_and_the_input_has_to_fit_the_schema(
    runtime: Runtime,
) -> None:
    found = await outcome(
        runtime,
        "const create = MCP.github.createIssue;"
        "return [await create({title: 'a'}), await create({title: 'b', labels: []}),"
        f" await create(){CAUGHT}, await create({{title: 5}}){CAUGHT}]",
        ListedServer("github", [mcp_tool(parameters=TITLED)]),
    )
    filled, given, missing, wrong = found
    assert filled["structuredContent"] == {"title": "a", "labels": ["new"]}
    assert given["structuredContent"] == {"title": "b", "labels": []}
    assert missing["code"] == wrong["code"] == "invalid_tool_input"
    assert "title" in missing["message"]
    assert "$.title" in wrong["message"]


@pytest.mark.parametrize("argument", ["1", "'text'", "null", "[1]", "true", "() => 1"])
async def test_an_argument_that_is_no_object_is_refused_before_anything_is_sent(
    runtime: Runtime, argument: str
) -> None:
    result = await runtime.run(mcp=[listed("github", "a")]).exec(
        f"return MCP.github.a({argument}).catch(e => e.message)"
    )
    assert "MCP.github.a takes one object" in value_of(result)
    assert result.usage.requests == 0


async def test_resources_and_prompts_are_called_where_the_server_has_them(
    runtime: Runtime,
) -> None:
    found = await outcome(
        runtime,
        "return [await MCP.docs.resources.read({uri: 'memo://one'}),"
        f" await MCP.docs.prompts.get({{name: 'brief'}}){CAUGHT}, Object.keys(MCP.docs)]",
        listed("docs", "look_up", "$resources.read"),
    )
    read, get, functions = found
    assert read["structuredContent"] == {"uri": "memo://one"}
    assert (get["code"], functions) == ("unknown_tool", ["lookUp"])


# Names.


@pytest.mark.parametrize(
    ("name", "called"),
    [
        ("create_issue", "createIssue"),
        ("GetHTMLPage", "getHTMLPage"),
        ("issues/list.all", "issuesListAll"),
        ("__proto__", "proto"),
        ("constructor", "constructor_"),
        ("then", "then_"),
        ("toJSON", "toJSON_"),
        ("hasOwnProperty", "hasOwnProperty_"),
        ("resources", "resources_"),
        ("$x", "x"),
        ("$api", "api"),
        ("2fa", "_2fa"),
        ("délai", "délai"),
        ("名前", "名前"),
    ],
)
@pytest.mark.parametrize("is_listed", [True, False])
async def test_a_tool_and_a_server_of_any_name_are_called_by_an_identifier(
    runtime: Runtime, name: str, called: str, is_listed: bool
) -> None:
    server = listed(name, name) if is_listed else LazyServer(name, name)
    found = await outcome(
        runtime,
        f"const [server] = Object.keys(MCP); const called = {called!r};"
        "const result = await MCP[server][called]({n: 1});"
        "const {name} = await MCP[server].$api(called);"
        "return [server, result.structuredContent, name, (await Promise.resolve(MCP)) === MCP,"
        " (await MCP[server]) === MCP[server], typeof JSON.stringify(MCP)]",
        server,
    )
    assert found == [called, {"n": 1}, name, True, True, "string"]


async def test_names_that_would_be_the_same_are_told_apart_and_call_their_own_tool(
    runtime: Runtime,
) -> None:
    names = ["create_issue", "create-issue", "createIssue", "Create.Issue"]

    def told(name: str) -> Tool:
        async def execute(input: dict[str, Any], call: ToolCall) -> object:
            return {"content": [], "called": name}

        return mcp_tool(name, execute=execute)

    found = await outcome(
        runtime,
        "const called = {}; for (const name of Object.keys(MCP.github)) "
        "called[name] = (await MCP.github[name]({})).called; return called",
        ListedServer("github", [told(name) for name in names]),
    )
    assert len(found) == len(names)
    assert sorted(found.values()) == sorted(names)
    assert found["createIssue"] == "createIssue"


async def test_servers_whose_names_would_be_the_same_are_told_apart(runtime: Runtime) -> None:
    found = await outcome(
        runtime,
        "return Promise.all(Object.keys(MCP).map(async name => (await MCP[name].$api()).tools))",
        listed("my-server", "a"),
        LazyServer("my_server", "b"),
    )
    assert found == [["a"], ["b"]]


@pytest.mark.parametrize(
    "name", ["then", "toJSON", "constructor", "__proto__", "valueOf", "prototype", "nope"]
)
async def test_names_that_nobody_has_are_no_servers(runtime: Runtime, name: str) -> None:
    code = f"return [typeof MCP[{name!r}], {name!r} in MCP]"
    assert await outcome(runtime, code, listed("github", "a")) == ["undefined", False]


async def test_a_program_that_guesses_a_name_learns_the_nearest_ones(runtime: Runtime) -> None:
    found = await outcome(
        runtime,
        f"return MCP.later.create_isue({{}}){CAUGHT}",
        LazyServer("later", "create_issue", "unrelated"),
    )
    assert (found["code"], found["toolId"]) == ("unknown_tool", "mcp:later:create_isue")
    assert "nearest: MCP.later.createIssue;" in found["message"]


@pytest.mark.parametrize("is_listed", [True, False])
async def test_a_caught_error_of_an_unknown_tool_has_its_hint(
    runtime: Runtime, is_listed: bool
) -> None:
    names = ("create_issue", "list_all")
    server = listed("github", *names) if is_listed else LazyServer("github", *names)
    code = (
        f"return [await MCP.github.createIsue({{}}){CAUGHT}, 'createIsue' in MCP.github,"
        " Object.keys(MCP.github)]"
    )
    error, is_there, functions = await outcome(runtime, code, server)
    assert (error["name"], error["code"]) == ("UnknownToolError", "unknown_tool")
    assert "nearest: MCP.github.createIssue; MCP.github.$api() shows what does" in error["message"]
    if is_listed:
        assert (is_there, functions) == (False, ["createIssue", "listAll"])


async def test_a_huge_name_is_refused_in_few_words(runtime: Runtime) -> None:
    code = "return MCP.later['x'.repeat(200000)]({}).catch(e => e.message.length + e.toolId.length)"
    assert await outcome(runtime, code, LazyServer("later", "a")) < 600


async def test_two_servers_of_one_name_cannot_be_in_one_run(runtime: Runtime) -> None:
    with pytest.raises(CatalogError, match="two MCP servers are named 'github'"):
        runtime.run(mcp=[listed("github", "a"), LazyServer("github", "b")])
    with pytest.raises(CatalogError, match="two MCP servers are named 'github'"):
        runtime.run(tools=[mcp_tool()], mcp=[listed("github", "b")])


# Servers that are not there yet, or not at all.


async def test_a_lazy_server_is_not_started_for_those_who_do_not_use_it(runtime: Runtime) -> None:
    lazy = LazyServer("lazy", "a")
    run = runtime.run(mcp=[lazy, listed("github", "b")])
    assert "MCP servers: lazy, github." in str(run.definitions())
    code = (
        "return [Object.keys(MCP), Object.keys(MCP.lazy), typeof MCP.lazy.a, await MCP.github.b(),"
        " await MCP.$api(), await API.list(), await API.read('mcp/index.d.ts')]"
    )
    names, functions, kind, *_ = value_of(await run.exec(code))
    assert (names, functions, kind) == (["lazy", "github"], [], "function")
    assert (lazy.starts, lazy.known_tools) == (0, None)


async def test_many_calls_at_once_start_a_lazy_server_once(runtime: Runtime) -> None:
    lazy = LazyServer("lazy", "double", "halve", is_held=True)
    run = runtime.run(mcp=[lazy])
    results: list[CodeModeResult] = []

    async def program() -> None:
        code = (
            "const calls = [1, 2, 3, 4, 5].flatMap(n => [MCP.lazy.double({n}), MCP.lazy.halve({n})]"
            "); return (await Promise.all(calls)).map(r => r.structuredContent.n)"
        )
        results.append(await run.exec(code))

    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(program)
            tasks.start_soon(program)
            await lazy.asked()
            lazy.let_go()
    assert [value_of(result) for result in results] == [[1, 1, 2, 2, 3, 3, 4, 4, 5, 5]] * 2
    assert lazy.starts == 1


@pytest.mark.parametrize(
    "use", ["MCP.broken.anything({})", "MCP.broken.$api()", "API.read('mcp/broken.d.ts')"]
)
async def test_a_broken_server_is_an_error_to_catch_that_names_it(
    runtime: Runtime, use: str
) -> None:
    found = await outcome(
        runtime,
        f"return [await {use}{CAUGHT}, await MCP.github.a({{n: 1}})]",
        BrokenServer("broken"),
        listed("github", "a"),
    )
    assert found[0] == {
        "name": "ToolServerError",
        "code": "server_unavailable",
        "message": "the MCP server broken does not start: no such file",
        "toolId": "mcp:broken:*",
        "server": "broken",
    }
    assert found[1]["structuredContent"] == {"n": 1}


async def test_an_unexpected_fault_of_a_server_is_the_server_s_alone(runtime: Runtime) -> None:
    found = await outcome(
        runtime,
        f"return [await MCP.odd.a({{}}){CAUGHT}, await MCP.$search('create issue')]",
        BrokenServer("odd", RuntimeError("half a handshake")),
        listed("github", "create_issue"),
    )
    call, (hit, problem) = found
    assert (call["code"], call["server"]) == ("server_unavailable", "odd")
    assert hit["path"] == "MCP.github.createIssue"
    assert problem["server"] == "odd"
    assert "half a handshake" in problem["problem"]


async def test_an_error_of_a_server_that_nobody_catches_fails_the_program(
    runtime: Runtime,
) -> None:
    failed = failure_of(await runtime.run(mcp=[BrokenServer()]).exec("return MCP.broken.a({})"))
    assert failed.reason == "nested_tool_failed"
    assert "the MCP server broken does not start" in failed.error


async def test_a_server_that_hangs_delays_only_the_programs_that_use_it(runtime: Runtime) -> None:
    hanging = LazyServer("hanging", "a", is_held=True)
    run = runtime.run(mcp=[hanging, listed("github", "b")])
    late: list[CodeModeResult] = []

    async def use_the_hanging_one() -> None:
        late.append(await run.exec("return MCP.hanging.a({n: 1})"))

    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(use_the_hanging_one)
            await hanging.asked()
            code = "return [await MCP.github.b({n: 2}), await API.list('mcp'), await MCP.$api()]"
            found = value_of(await run.exec(code))
            assert (found[0]["structuredContent"], late) == ({"n": 2}, [])
            hanging.let_go()
    assert value_of(late[0])["structuredContent"] == {"n": 1}


@pytest.mark.parametrize(
    ("use", "expected"),
    [
        ("(await MCP.slow.a({n: 1})).structuredContent", {"n": 1}),
        ("(await API.read('mcp/slow.d.ts')).includes('function a(')", True),
        ("(await MCP.$search('a')).length", 1),
    ],
)
async def test_the_first_listing_of_a_server_takes_no_time_of_the_program(
    use: str, expected: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nacre.tools.servers._FIRST_WAIT_SECONDS", 30)
    slow = LazyServer("slow", "a", is_held=True)

    @tool
    async def release() -> None:
        slow.let_go()

    # The timer fires when the time of the program would be over.
    code = f"setTimeout(() => tools.release(), 1_200); return {use}"
    async with Runtime({"timeoutMs": 1_000}, workers=1) as runtime:
        assert await outcome(runtime, code, slow, tools=[release]) == expected


async def test_a_program_that_waits_for_a_server_again_is_suspended_and_resumed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("nacre.tools.servers._MAX_PAUSE_SECONDS", 0.1)
    hanging = LazyServer("hanging", "a", is_held=True)
    async with Runtime({"timeoutMs": 100}, workers=1) as runtime:
        run = runtime.run(mcp=[hanging])
        with anyio.fail_after(10):
            waiting = waiting_of(await run.exec("return MCP.hanging.a({n: 1})"))
        assert [call.tool_id for call in waiting.pending] == ["MCP.hanging.a"]
        hanging.let_go()
        found = value_of(await run.wait(waiting.cell_id))
    assert found["structuredContent"] == {"n": 1}


async def test_a_pending_call_has_the_id_of_its_tool_once_its_server_has_listed_it() -> None:
    held = HeldTool("slow_query", source="mcp", owner="data-base")
    server = LazyServer("data-base")
    server.known_tools = [held.tool]
    async with Runtime({"timeoutMs": 1_000}, workers=1) as runtime:
        run = runtime.run(mcp=[server])
        waiting = waiting_of(await run.exec("return MCP.dataBase.slowQuery({})"))
        assert [call["toolId"] for call in pending_calls(waiting)] == ["mcp:data-base:slow_query"]
        held.answer({"content": []})
        value_of(await run.wait(waiting.cell_id))


async def test_a_pending_call_has_the_id_of_its_tool_while_a_known_server_starts() -> None:
    class StartingServer(LazyServer):
        async def tools(self) -> list[Tool]:
            await anyio.sleep_forever()
            raise AssertionError

    server = StartingServer("docs")
    server.known_tools = [mcp_tool("find_page", "docs")]
    async with Runtime({"timeoutMs": 1_000}, workers=1) as runtime:
        run = runtime.run(mcp=[server])
        code = "return Promise.all([MCP.docs.findPage({}), MCP.docs.added({})])"
        waiting = waiting_of(await run.exec(code))
    found = [call["toolId"] for call in pending_calls(waiting)]
    assert found == ["mcp:docs:find_page", "MCP.docs.added"]


def pending_calls(waiting: Waiting) -> list[Any]:
    """The pending calls of a result as the model sees them."""
    return cast("list[Any]", waiting.to_json()["pendingToolCalls"])


async def test_known_tools_are_counted_before_the_first_program(runtime: Runtime) -> None:
    run = runtime.run(mcp=[listed("github", "a", "b", "$resources.read"), LazyServer("lazy", "c")])
    telemetry = run.telemetry()
    assert (telemetry.sources["mcp"], telemetry.catalog_size) == (2, 2)
    result = await run.exec("return MCP.lazy.c({})")
    assert (result.telemetry.sources["mcp"], result.telemetry.catalog_size) == (3, 3)


async def test_a_known_list_is_used_at_once_and_refreshed_in_the_background(
    runtime: Runtime,
) -> None:
    server = LazyServer("docs", "new", is_held=True)
    server.known_tools = [mcp_tool("old", "docs")]
    run = runtime.run(mcp=[server])
    code = "return [Object.keys(MCP.docs), (await API.read('mcp/docs.d.ts')).includes('old')]"
    assert value_of(await run.exec(code)) == [["old"], True]
    await server.asked()


async def test_a_suspended_call_is_resumed_by_wait(runtime: Runtime) -> None:
    held = HeldTool("slow_query", source="mcp", owner="github")
    run = runtime.run(mcp=[ListedServer("github", [held.tool])])
    code = (
        "const call = MCP.github.slowQuery({n: 1}); await yield_control();"
        "return [await call, Object.keys(MCP.github), (await API.read('mcp/github.d.ts')).length]"
    )
    waiting = waiting_of(await run.exec(code))
    await held.wait_for_calls()
    held.answer({"content": [], "rows": 3})
    answer, functions, size = value_of(await run.wait(waiting.cell_id))
    assert (answer, functions, size > 0) == ({"content": [], "rows": 3}, ["slowQuery"], True)
    assert len(held.calls) == 1


async def test_an_abort_reaches_programs_that_wait_for_a_server(runtime: Runtime) -> None:
    hanging = LazyServer("hanging", "a", is_held=True)
    run = runtime.run(mcp=[hanging])
    results: list[CodeModeResult] = []

    async def program() -> None:
        results.append(await run.exec("return MCP.hanging.a({})"))

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(program)
            await hanging.asked()
            await run.abort("enough")
    assert failure_of(results[0]).reason == "aborted"


async def test_what_a_server_lists_anew_is_there_for_the_next_program(runtime: Runtime) -> None:
    server = listed("github", "old", "stays")
    run = runtime.run(mcp=[server])
    code = (
        "return [Object.keys(MCP.github), await API.read('mcp/github.d.ts'),"
        " (await MCP.$search('of github')).map(hit => hit.path)]"
    )
    functions, declared, paths = value_of(await run.exec(code))
    assert (functions, sorted(paths)) == (["old", "stays"], ["MCP.github.old", "MCP.github.stays"])
    server.known_tools = [mcp_tool("stays"), mcp_tool("added")]
    functions, declared, paths = value_of(await run.exec(code))
    assert functions == ["stays", "added"]
    assert sorted(paths) == ["MCP.github.added", "MCP.github.stays"]
    assert "function added(" in declared
    assert "function old(" not in declared
    assert value_of(await run.exec(f"return MCP.github.added({{n: 1}}){CAUGHT}"))["value"]


# What a run may use.


async def test_a_run_with_nothing_but_servers_is_in_code_mode(runtime: Runtime) -> None:
    run = runtime.run(mcp=[LazyServer("lazy", "a")])
    assert (run.is_code_mode, run.visible_names) == (True, ("exec", "wait"))


async def test_where_tools_are_disabled_no_server_is_reached(runtime: Runtime) -> None:
    run = runtime.run(
        mcp=[listed("github", "a")], tools=[mcp_tool("b", "two")], tools_disabled=True
    )
    assert (run.is_code_mode, run.visible_names) == (False, ())
    assert value_of(await run.exec("return Object.keys(MCP)")) == []


@requirement("validation:denied-tools")
@pytest.mark.parametrize(
    "rules",
    [
        {"deny": ["delete_repo"]},
        {"deny": ["mcp:github:delete_repo"]},
        {"deny": ["mcp:*:delete_*"]},
        {"allow": ["read_repo"]},
    ],
)
@pytest.mark.parametrize("is_listed", [True, False])
async def test_a_denied_tool_is_nowhere_to_be_found_and_not_called(
    rules: dict[str, Any], is_listed: bool
) -> None:
    names = ("read_repo", "delete_repo")
    server = listed("github", *names) if is_listed else LazyServer("github", *names)
    async with Runtime({"tools": {"codeMode": True, **rules}}, workers=1) as runtime:
        found = await outcome(
            runtime,
            "const {tools: names, declaration} = await MCP.github.$api();"
            "return {names, declaration, file: await API.read('mcp/github.d.ts'),"
            " index: await API.read('mcp/index.d.ts'),"
            " hits: (await MCP.$search('delete repo')).map(hit => hit.path),"
            f" header: await MCP.github.$api('delete_repo', {{schema: true}}){CAUGHT},"
            f" called: await (async () => MCP.github.deleteRepo({{}}))(){CAUGHT}}}",
            server,
        )
    assert found["names"] == ["readRepo"]
    assert found["hits"] in ([], ["MCP.github.readRepo"])
    assert found["header"]["code"] == "unknown_tool"
    assert (found["called"]["name"], found["called"].get("value")) == ("UnknownToolError", None)
    for text in (found["declaration"], found["file"], found["index"]):
        assert "deleteRepo" not in text


async def test_a_denied_resource_is_not_read() -> None:
    config = {"tools": {"codeMode": True, "deny": ["mcp:docs:$resources.*"]}}
    async with Runtime(config, workers=1) as runtime:
        found = await outcome(
            runtime,
            f"return [await MCP.docs.resources.read({{uri: 'x'}}){CAUGHT},"
            " await API.read('mcp/docs.d.ts')]",
            listed("docs", "a", "$resources.read"),
        )
    assert found[0]["code"] == "unknown_tool"
    assert "resources" not in found[1]


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        ({"allow": ["echo"]}, "hidden"),
        ({"allow": ["echo", "bundle-mcp"]}, "called"),
        ({"allow": ["echo"], "alsoAllow": ["bundle-mcp"]}, "called"),
        ({"sandbox": {"tools": {"allow": ["echo"]}}}, "hidden"),
        ({"sandbox": {"tools": {"allow": ["echo"], "alsoAllow": ["bundle-mcp"]}}}, "called"),
    ],
)
async def test_all_servers_together_are_named_bundle_mcp(
    rules: dict[str, Any], expected: str
) -> None:
    async with Runtime({"tools": {"codeMode": True, **rules}}, workers=1) as runtime:
        found = await outcome(
            runtime,
            "return 'lazy' in MCP ? MCP.lazy.a({}).then(() => 'called') : 'hidden'",
            LazyServer("lazy", "a"),
            tools=[echo_tool()],
            context=RunContext(is_sandboxed=True),
        )
    assert found == expected


@pytest.mark.parametrize(
    ("rules", "is_listed"),
    [
        ({"deny": ["bundle-mcp"]}, False),
        ({"allow": ["echo"]}, False),
        ({"allow": ["group:openclaw"]}, False),
        ({"allow": ["notes"]}, False),
        ({"allow": ["openclaw:*:*", "mcp:github:*"]}, False),
        ({"allow": ["echo", "other_name"]}, True),
        ({"deny": ["a"]}, True),
    ],
)
async def test_a_server_without_a_permitted_tool_is_neither_named_nor_started(
    rules: dict[str, Any], is_listed: bool
) -> None:
    server = LazyServer("lazy", "a")
    if is_listed:
        server.known_tools = [mcp_tool("a", "lazy")]
    async with Runtime({"tools": {"codeMode": True, **rules}}, workers=1) as runtime:
        run = runtime.run(tools=[echo_tool(), echo_tool("list", owner="notes")], mcp=[server])
        assert "lazy" not in str(run.definitions())
        code = "return [Object.keys(MCP), await MCP.$search('a'), await API.list('mcp')]"
        assert value_of(await run.exec(code)) == [[], [], []]
    assert server.starts == 0


async def test_a_listed_tool_with_the_name_of_another_tool_is_permitted_with_it() -> None:
    async with Runtime({"tools": {"codeMode": True, "allow": ["echo"]}}, workers=1) as runtime:
        run = runtime.run(tools=[echo_tool()], mcp=[listed("github", "echo", "other")])
        code = "return [Object.keys(MCP), Object.keys(MCP.github)]"
        assert value_of(await run.exec(code)) == [["github"], ["echo"]]


async def test_an_allow_list_that_leaves_no_tool_does_not_activate_code_mode() -> None:
    rules = {"allow": ["something_else"]}
    async with Runtime({"tools": {"codeMode": True, **rules}}, workers=1) as runtime:
        run = runtime.run(tools=[echo_tool()], mcp=[listed("github", "a")])
        assert (run.is_code_mode, run.visible_names) == (False, ())


# The one call path.


@requirement("validation:nested-hooks-and-approvals")
async def test_hooks_see_change_and_block_calls_of_servers(runtime: Runtime) -> None:
    seen: list[tuple[str, str, object]] = []

    async def watch(event: BeforeToolCall) -> object:
        if event.tool_kind != "tool":
            return None
        seen.append((event.tool_id, event.parent_id, event.input))
        if event.input.get("title") == "bad":
            return Block("not this title")
        return ChangeInput({**event.input, "title": "changed"})

    server = ListedServer("github", [mcp_tool(parameters=TITLED)])
    run = runtime.run(mcp=[server], hooks=[("before_tool_call", watch)])
    code = (
        "const create = MCP.github.createIssue;"
        f"return [await create({{title: 'a'}}), await create({{title: 'bad'}}){CAUGHT}]"
    )
    changed, blocked = value_of(await run.exec(code, call_id="c1"))
    assert changed["structuredContent"] == {"title": "changed", "labels": ["new"]}
    assert (blocked["code"], blocked["message"]) == ("blocked_by_hook", "not this title")
    assert seen[0] == ("mcp:github:create_issue", "c1", {"title": "a", "labels": ["new"]})


@requirement("validation:nested-hooks-and-approvals")
async def test_a_person_is_asked_about_calls_of_servers(runtime: Runtime) -> None:
    asked: list[tuple[str, object]] = []

    async def ask(event: BeforeToolCall) -> object:
        return AskApproval("it is public") if event.tool_kind == "tool" else None

    async def person(request: Any) -> Any:
        asked.append((request.tool_id, request.input))
        return Deny("not today") if request.input["n"] == 2 else "allow-once"

    run = runtime.run(
        mcp=[listed("github", "publish")], hooks=[("before_tool_call", ask)], approvals=person
    )
    code = (
        "const publish = MCP.github.publish;"
        f"return [await publish({{n: 1}}), await publish({{n: 2}}){CAUGHT}]"
    )
    allowed, denied = value_of(await run.exec(code))
    assert allowed["structuredContent"] == {"n": 1}
    assert denied["code"] == "approval_denied"
    assert asked == [("mcp:github:publish", {"n": 1}), ("mcp:github:publish", {"n": 2})]


@requirement("validation:nested-calls-are-shown")
async def test_calls_of_servers_are_recorded_and_counted_by_their_real_id(
    runtime: Runtime,
) -> None:
    run = runtime.run(mcp=[LazyServer("my-server", "do_it")])
    result = await run.exec("await MCP.myServer.doIt({n: 1})", call_id="c1")
    (root,) = project(run.trajectory.events)
    (call,) = root.children
    assert (call.tool_id, call.parent_id, call.input, call.outcome) == (
        "mcp:my-server:do_it",
        "c1",
        {"n": 1},
        "completed",
    )
    assert result.telemetry.called_tools == {"mcp:my-server:do_it": 1}
    assert result.telemetry.sources == {"openclaw": 0, "mcp": 1, "client": 0}
