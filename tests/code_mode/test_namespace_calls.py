"""Namespaces in programs: what they show, that their calls are tool calls, and forged ones."""

from collections.abc import Mapping
from typing import Any

import anyio
import pytest

from nacre import (
    BeforeToolCall,
    Block,
    CodeMode,
    CodeModeRun,
    Namespace,
    NamespaceContext,
    RunContext,
    Runtime,
    Tool,
    ToolCall,
    namespace_tool,
)
from nacre.code_mode.bridge import CellBridge, RunTools
from nacre.errors import HostRequestError
from nacre.json_types import JsonValue
from nacre.sandbox import HostRequest
from nacre.sandbox.results import PendingRequest, new_cell_id
from nacre.telemetry import Span
from nacre.trajectory import project
from tests.code_mode.issues_namespace import issues
from tests.code_mode.outcomes import Recorded, failure_of, value_of, waiting_of
from tests.code_mode.tools import HeldTool, echo_tool
from tests.contract.requirements import requirement

CAUGHT = ".catch(e => ({name: e.name, message: e.message, code: e.code, toolId: e.toolId}))"


def github_tools() -> list[Tool]:
    return [echo_tool(name, owner="github") for name in ("list_issues", "update_issue")]


def described(run: CodeModeRun) -> str:
    return str(run.definitions("anthropic")[0]["description"])


def scoped(scope: Mapping[str, object], *required: str) -> Namespace:
    names = required or ("list_issues", "update_issue")
    return issues(required_tool_names=names, create_scope=lambda context: scope)


# What a program and its model see.


@requirement("namespaces:described-when-visible")
async def test_a_namespace_is_described_and_defined_where_its_tools_are(runtime: Runtime) -> None:
    runtime.namespaces.register("github", issues(prompt="Use Issues.list(filter)."))
    seeing, blind = runtime.run(tools=github_tools()), runtime.run(tools=[echo_tool()])
    assert "Global Issues: GitHub issues. Use Issues.list(filter)." in described(seeing)
    assert "Issues" not in described(blind)
    code = "return [typeof Issues, Object.keys(namespaces)]"
    assert value_of(await seeing.exec(code)) == ["object", ["Issues"]]
    assert value_of(await blind.exec(code)) == ["undefined", []]


@requirement("namespaces:described-when-visible")
async def test_a_namespace_whose_tool_is_denied_is_not_there() -> None:
    config = {"tools": {"codeMode": True, "deny": ["update_issue"]}}
    async with Runtime(config, workers=1) as runtime:
        runtime.namespaces.register("github", issues())
        run = runtime.run(tools=github_tools())
        assert "Global Issues" not in described(run)
        assert value_of(await run.exec("return typeof Issues")) == "undefined"


@requirement("namespaces:owner-decides")
@pytest.mark.parametrize(
    ("owner", "source"),
    [("evil", "openclaw"), ("core", "openclaw"), ("github", "mcp"), ("github", "client")],
)
async def test_equally_named_tools_of_somebody_else_open_no_namespace(
    runtime: Runtime, owner: str, source: str
) -> None:
    runtime.namespaces.register("github", issues())
    tools = [
        echo_tool(name, owner=owner, source=source) for name in ("list_issues", "update_issue")
    ]
    run = runtime.run(tools=tools)
    assert "Global Issues" not in described(run)
    code = "return [typeof Issues, typeof namespaces.Issues]"
    assert value_of(await run.exec(code)) == ["undefined", "undefined"]


@requirement("namespaces:shapes")
async def test_nested_and_shared_parts_reach_a_program_as_they_are(runtime: Runtime) -> None:
    shared = {"open": namespace_tool("list_issues", lambda args: {"state": "open"}), "n": 1}
    scope = {
        "repository": {"name": "nacre", "tags": ["a", None, 1.5]},
        "first": shared,
        "second": {"again": [shared]},
    }
    runtime.namespaces.register("github", scoped(scope))
    found = value_of(
        await runtime.run(tools=github_tools()).exec(
            "return {data: Issues.repository, same: Issues === namespaces.Issues,"
            " numbers: [Issues.first.n, Issues.second.again[0].n],"
            " calls: [await Issues.first.open(), await Issues.second.again[0].open()]}"
        )
    )
    assert found == {
        "data": {"name": "nacre", "tags": ["a", None, 1.5]},
        "same": True,
        "numbers": [1, 1],
        "calls": [{"state": "open"}, {"state": "open"}],
    }


@requirement("namespaces:no-raw-functions")
async def test_a_scope_with_a_raw_function_runs_no_program(runtime: Runtime) -> None:
    runtime.namespaces.register("github", scoped({"list": lambda: 1}))
    held = HeldTool("held")
    run = runtime.run(tools=[*github_tools(), held.tool])
    failed = failure_of(await run.exec("tools.held({}); return 1"))
    assert "namespace 'github-issues' of plugin 'github': `list` is a function" in failed.error
    assert held.calls == []


@requirement("namespaces:declared-tools-only")
async def test_a_function_for_a_tool_that_is_not_required_runs_no_program(
    runtime: Runtime,
) -> None:
    scope = {"remove": namespace_tool("delete_issue")}
    runtime.namespaces.register("github", scoped(scope))
    run = runtime.run(tools=[*github_tools(), echo_tool("delete_issue", owner="github")])
    failed = failure_of(await run.exec("return Issues.remove({})"))
    assert "`remove` calls 'delete_issue', which is not among its required tools" in failed.error


async def test_a_scope_is_made_once_per_run_and_knows_the_run(runtime: Runtime) -> None:
    made: list[NamespaceContext] = []

    def create(context: NamespaceContext) -> Mapping[str, object]:
        made.append(context)
        return {"agent": context.agent_id, "session": context.session_id}

    runtime.namespaces.register("github", issues(create_scope=create))
    context = RunContext(agent_id="helper", session_id="s1", session_key="k", run_id="r1")
    run = runtime.run(tools=github_tools(), context=context)
    for _ in range(2):
        found = value_of(await run.exec("return [Issues.agent, Issues.session]"))
        assert found == ["helper", "s1"]
    (seen,) = made
    assert (seen.session_key, seen.run_id, seen.context) == ("k", "r1", context)
    await run.abort("over")
    assert seen.abort.is_aborted


# Calls.


@requirement("namespaces:calls-are-tool-calls")
async def test_a_function_calls_its_tool_through_hooks_and_record(runtime: Runtime) -> None:
    seen: list[str] = []

    async def before_tool_call(event: BeforeToolCall) -> None:
        seen.append(event.tool_id)

    runtime.namespaces.register("github", issues())
    run = runtime.run(tools=github_tools(), hooks=[before_tool_call])
    result = await run.exec(
        "return [await Issues.update(7, {title: 'x'}), await Issues.list(),"
        " await namespaces.Issues.labels.all('ignored')]",
        call_id="c1",
    )
    assert value_of(result) == [{"number": 7, "patch": {"title": "x"}}, {}, {"labels": True}]
    assert seen[1:] == [
        "openclaw:github:update_issue",
        "openclaw:github:list_issues",
        "openclaw:github:list_issues",
    ]
    (root,) = project(run.trajectory.events)
    assert [child.tool_id for child in root.children] == seen[1:]
    assert {child.parent_id for child in root.children} == {"c1"}
    assert result.telemetry.call_count == 3


@requirement("namespaces:calls-are-tool-calls")
async def test_what_a_namespace_call_returns_is_the_tool_s_value_and_not_its_envelope(
    runtime: Runtime,
) -> None:
    async def execute(input: dict[str, Any], call: ToolCall) -> object:
        return {"content": [{"type": "text", "text": "2 issues"}], "details": {"count": 2}}

    tool = Tool(name="list_issues", owner="github", execute=execute)
    runtime.namespaces.register(
        "github", scoped({"list": namespace_tool("list_issues")}, "list_issues")
    )
    assert value_of(await runtime.run(tools=[tool]).exec("return Issues.list()")) == {"count": 2}


@requirement("namespaces:failures-are-caught")
async def test_failures_can_be_caught(runtime: Runtime) -> None:
    async def block_updates(event: BeforeToolCall) -> object:
        return Block("read only") if event.tool_name == "update_issue" else None

    runtime.namespaces.register("github", issues())
    run = runtime.run(tools=github_tools(), hooks=[("before_tool_call", block_updates)])
    blocked, wrong, mapped = value_of(
        await run.exec(
            f"return [await Issues.update(1, {{}}){CAUGHT}, await Issues.list('text'){CAUGHT},"
            f" await Issues.update(1){CAUGHT}]"
        )
    )
    assert blocked == {
        "name": "ToolDeniedError",
        "message": "read only",
        "code": "blocked_by_hook",
        "toolId": "openclaw:github:update_issue",
    }
    assert (wrong["code"], mapped["code"]) == ("invalid_tool_input", "invalid_tool_input")
    assert wrong["message"] == "Issues.list takes an object; this is a string"
    assert failure_of(await run.exec("await Issues.update(1, {})")).reason == "nested_tool_failed"


@requirement("namespaces:wait-resumes")
async def test_a_suspended_namespace_call_is_resumed_by_wait(runtime: Runtime) -> None:
    held = HeldTool("list_issues", owner="github")
    runtime.namespaces.register(
        "github", scoped({"list": namespace_tool("list_issues")}, "list_issues")
    )
    run = runtime.run(tools=[held.tool])
    waiting = waiting_of(
        await run.exec(
            "const call = Issues.list({n: 1}); await yield_control();"
            "const first = await call; return [first, await Issues.list({n: 2})]"
        )
    )
    assert [call.tool_id for call in waiting.pending] == ["openclaw:github:list_issues"]
    ended = Recorded(run, "call.ended", outcome="completed", result="listed")
    held.answer("listed")
    await ended.wait()
    assert value_of(await run.wait(waiting.cell_id)) == ["listed", "listed"]
    assert [given for given, _ in held.calls] == [{"n": 1}, {"n": 2}]


# The end of a plugin.


@requirement("namespaces:cleared-with-plugin")
async def test_a_plugin_that_goes_takes_its_namespaces_along(runtime: Runtime) -> None:
    runtime.namespaces.register("github", issues())
    run = runtime.run(tools=github_tools())
    assert value_of(await run.exec("return typeof Issues")) == "object"
    assert runtime.namespaces.clear_plugin("github") == 1
    assert "Global Issues" not in described(run)
    assert value_of(await run.exec("return typeof Issues")) == "undefined"
    # Loaded again, with something else in it.
    runtime.namespaces.register("github", scoped({"version": 2}))
    assert value_of(await run.exec("return Issues.version")) == 2


async def test_code_mode_takes_namespaces_with_their_plugins() -> None:
    async with CodeMode(
        tools=github_tools(), namespaces=[("github", issues())], workers=1
    ) as code_mode:
        assert value_of(await code_mode.exec("return Issues.list({n: 1})")) == {"n": 1}


# Forged calls.


async def bridge_of(run: CodeModeRun) -> CellBridge:
    """The bridge that a cell of the run would have, to be told what no sound worker would send."""
    tools: RunTools = run._tools  # pyright: ignore[reportPrivateUsage]
    return CellBridge(tools, await tools.namespaces.open(), exec_call_id="call_1", span=Span())


async def forged(bridge: CellBridge, method: str, payload: JsonValue) -> HostRequestError:
    request = HostRequest(id=1, method=method, payload=payload, cell_id=new_cell_id())
    with anyio.fail_after(5), pytest.raises(HostRequestError) as caught:
        await bridge(request)
    return caught.value


FORGED: list[JsonValue] = [
    {"namespace": "Other", "path": ["list"], "args": []},
    {"namespace": "__proto__", "path": ["list"], "args": []},
    {"namespace": ["Issues"], "path": ["list"], "args": []},
    {"namespace": "Issues", "path": ["delete_issue"], "args": [{}]},
    {"namespace": "Issues", "path": ["list", "constructor"], "args": []},
    {"namespace": "Issues", "path": ["labels.all"], "args": []},
    {"namespace": "Issues", "path": "list", "args": []},
    {"namespace": "Issues", "path": ["list"], "args": {}},
    {"namespace": "Issues", "path": ["x" * 1_000_000], "args": []},
    {"namespace": "N" * 1_000_000, "path": [], "args": []},
    {"namespace": "Issues"},
    {},
    None,
    [1],
    "Issues.list",
]


@requirement("namespaces:no-forged-calls", "namespaces:declared-tools-only")
@pytest.mark.parametrize("payload", FORGED)
async def test_forged_namespace_calls_are_refused_in_few_words(
    runtime: Runtime, payload: JsonValue
) -> None:
    held = HeldTool("delete_issue", owner="github")
    runtime.namespaces.register("github", issues())
    bridge = await bridge_of(runtime.run(tools=[*github_tools(), held.tool]))
    error = await forged(bridge, "namespace", payload)
    assert error.code in ("unknown_tool", "invalid_tool_input")
    assert len(error.message) < 500
    assert held.calls == []


@pytest.mark.parametrize("path", [7, "list", {"a": 1}, None, [["list"]], ["x" * 1_000_000] * 3])
@pytest.mark.parametrize("namespace", ["Issues", None, ["Issues"], "N" * 1_000_000])
async def test_a_forged_call_that_is_pending_can_be_shown(
    runtime: Runtime, namespace: JsonValue, path: JsonValue
) -> None:
    bridge = await bridge_of(runtime.run(tools=[echo_tool()]))
    payload: JsonValue = {"namespace": namespace, "path": path}
    request = PendingRequest(id=1, method="namespace", payload=payload)
    assert len(bridge.tool_id_of(request)) <= 120


@requirement("security:json-bridge")
@pytest.mark.parametrize("method", ["tools.search", "tools.describe", "tools.call"])
@pytest.mark.parametrize(
    "payload", [None, [], "x", {}, {"id": 7, "query": 7}, {"id": None}, {"id": ["a"], "query": {}}]
)
async def test_forged_requests_to_the_catalog_are_refused(
    runtime: Runtime, method: str, payload: JsonValue
) -> None:
    bridge = await bridge_of(runtime.run(tools=[echo_tool()]))
    assert (await forged(bridge, method, payload)).name == "TypeError"
