"""What policy, a hook or a person does not want does not happen, and who asked is told why."""

from collections.abc import Sequence
from typing import Any

import anyio
import pytest

from nacre import AskApproval, BeforeToolCall, Block, ChangeInput, Deny, RunContext, ToolCall
from nacre.sandbox import Sandbox
from nacre.tool_search import ToolSearchResult, ToolSearchRun
from tests.code_mode.mcp_servers import listed, mcp_tool
from tests.code_mode.tools import HeldTool, echo_tool
from tests.contract.requirements import requirement
from tests.tool_search.runs import (
    CAUGHT,
    events_of,
    failure_of,
    program,
    reason_of,
    run_with,
    value_of,
)

DENYING = {"tools": {"toolSearch": {"mode": "tools"}, "deny": ["secret*"]}}
DENYING_CODE = {"tools": {"toolSearch": True, "deny": ["secret*"]}}
TOOLS = {"mode": "tools"}


class Recorder:
    """A tool that notes its calls."""

    def __init__(self) -> None:
        self.calls: list[dict[str, Any]] = []

    async def __call__(self, input: dict[str, Any], call: ToolCall) -> object:
        self.calls.append(input)
        return "done"


async def deny(request: object) -> Deny:
    return Deny("not today")


def hooks_returning(answer: object) -> Sequence[object]:
    async def before(event: BeforeToolCall) -> object:
        return answer if event.tool_name == "echo" else None

    return [("before_tool_call", before)]


async def tool_call(run: ToolSearchRun, tool_id: str, **args: Any) -> ToolSearchResult:
    return await run.call("tool_call", {"id": tool_id, "args": args})


@requirement("tool-search:denied-tools")
async def test_denied_tools_are_not_found_described_or_called() -> None:
    secret = Recorder()
    tools = [echo_tool(), echo_tool("secret_echo", execute=secret)]
    servers = [listed("vault", "secret_read", "read")]
    run = await run_with(tools=tools, servers=servers, config=DENYING)
    found = value_of(await run.call("tool_search", {"query": "secret echo read", "limit": 20}))
    assert sorted(hit["id"] for hit in found) == ["mcp:vault:read", "openclaw:core:echo"]
    for tool_id in ("openclaw:core:secret_echo", "mcp:vault:secret_read", "secret_echo"):
        described = failure_of(await run.call("tool_describe", {"id": tool_id}))
        assert described.code == "unknown_tool"
        assert "secret" not in str(described.to_json()["nearest"])
        assert failure_of(await tool_call(run, tool_id)).code in (
            "denied_by_policy",
            "unknown_tool",
        )
    assert secret.calls == []


@requirement("tool-search:blocks-are-reported")
async def test_a_call_of_a_denied_tool_is_refused_by_the_setting_that_denies_it() -> None:
    run = await run_with(tools=[echo_tool("secret_echo"), echo_tool()], config=DENYING)
    failed = failure_of(await tool_call(run, "openclaw:core:secret_echo"))
    assert failed.to_json() == {
        "status": "failed",
        "error": 'secret_echo is not permitted: `tools.deny` has "secret*"',
        "code": "denied_by_policy",
        "toolId": "openclaw:core:secret_echo",
    }
    assert events_of(run, "call.ended")[0].data["errorCode"] == "denied_by_policy"
    assert run.telemetry().call_count == 0


@requirement("tool-search:denied-tools", "tool-search:blocks-are-reported")
async def test_a_program_finds_no_denied_tool_and_is_told_of_the_block(sandbox: Sandbox) -> None:
    run = await run_with(
        sandbox, tools=[echo_tool("secret_echo"), echo_tool()], config=DENYING_CODE
    )
    result = await program(
        run,
        f"""
        const hits = await openclaw.tools.search("secret echo");
        const id = "openclaw:core:secret_echo";
        return [hits.map((hit) => hit.name), (await openclaw.tools.describe(id){CAUGHT}).code,
                await openclaw.tools.call(id, {{}}){CAUGHT}];
        """,
    )
    names, described, called = value_of(result)
    assert (names, described) == (["echo"], "unknown_tool")
    assert (called["name"], called["code"]) == ("ToolDeniedError", "denied_by_policy")
    assert result.to_json()["blockedCalls"] == [
        {
            "toolId": "openclaw:core:secret_echo",
            "code": "denied_by_policy",
            "error": 'secret_echo is not permitted: `tools.deny` has "secret*"',
        }
    ]


@requirement("tool-search:gone-tools")
async def test_a_tool_that_is_gone_since_it_was_found_cannot_be_called() -> None:
    server = listed("github", "create_issue", "create_item")
    run = await run_with(servers=[server], config=TOOLS)
    [hit, *_] = value_of(await run.call("tool_search", {"query": "create issue"}))
    server.known_tools = [mcp_tool("create_item", "github")]
    failed = failure_of(await tool_call(run, hit["id"]))
    assert (hit["id"], failed.code) == ("mcp:github:create_issue", "unknown_tool")
    assert failure_of(await run.call("tool_describe", {"id": hit["id"]})).code == "unknown_tool"


@requirement("tool-search:gone-tools")
async def test_a_tool_that_goes_while_a_program_runs_cannot_be_called(sandbox: Sandbox) -> None:
    server = listed("github", "create_issue")

    async def take_back(input: dict[str, Any], call: ToolCall) -> object:
        server.known_tools = []
        return None

    run = await run_with(
        sandbox, tools=[echo_tool("take_back", execute=take_back)], servers=[server]
    )
    code = f"""
        const [hit] = await openclaw.tools.search("create issue");
        await openclaw.tools.call("take_back", {{}});
        return [hit.id, await openclaw.tools.call(hit.id, {{}}){CAUGHT}];
    """
    found, caught = value_of(await program(run, code))
    assert (found, caught["code"]) == ("mcp:github:create_issue", "unknown_tool")


@requirement("tool-search:blocks-are-reported", "tool-search:one-call-path")
@pytest.mark.parametrize(
    ("answer", "approvals", "code", "error"),
    [
        (Block("no echoes"), None, "blocked_by_hook", "no echoes"),
        (AskApproval("loud"), deny, "approval_denied", "not today"),
        (AskApproval("loud"), None, "approval_denied", ""),
    ],
)
async def test_a_block_by_a_hook_or_a_person_is_reported_as_one(
    sandbox: Sandbox, answer: object, approvals: Any, code: str, error: str
) -> None:
    executed = Recorder()
    options: dict[str, Any] = {
        "tools": [echo_tool(execute=executed)],
        "hooks": hooks_returning(answer),
        "approvals": approvals,
    }
    run = await run_with(config=TOOLS, **options)
    failed = failure_of(await tool_call(run, "openclaw:core:echo"))
    assert (failed.code, failed.to_json()["toolId"]) == (code, "openclaw:core:echo")
    assert error in failed.error
    run = await run_with(sandbox, **options)
    result = await program(run, "await openclaw.tools.call('openclaw:core:echo', {})")
    failed = failure_of(result)
    assert reason_of(failed) == "nested_tool_failed"
    assert [(call.tool_id, call.code) for call in failed.blocked_calls] == [
        ("openclaw:core:echo", code)
    ]
    assert executed.calls == []


@requirement("tool-search:one-call-path")
async def test_hooks_schemas_and_the_context_hold_for_final_calls() -> None:
    executed, seen = Recorder(), list[BeforeToolCall]()

    async def before(event: BeforeToolCall) -> object:
        seen.append(event)
        return ChangeInput({**event.input, "b": 2}) if event.tool_name == "echo" else None

    context = RunContext(agent_id="main", session_id="s1")
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    run = await run_with(
        tools=[echo_tool(execute=executed, parameters=schema)],
        hooks=[("before_tool_call", before)],
        config=TOOLS,
        context=context,
    )
    given = {"id": "echo", "args": {"a": 1}}
    assert value_of(await run.call("tool_call", given, call_id="c1")) == "done"
    assert executed.calls == [{"a": 1, "b": 2}]
    assert [(event.tool_id, event.call_id, event.parent_id) for event in seen] == [
        ("tool_search:tool_call", "c1", ""),
        ("openclaw:core:echo", "c1.1", "c1"),
    ]
    assert all(event.context is context for event in seen)
    failed = failure_of(await tool_call(run, "echo", a="one"))
    assert failed.code == "invalid_tool_input"


async def test_a_hook_may_block_the_control_itself() -> None:
    async def before(event: BeforeToolCall) -> object:
        return Block("no searching") if event.tool_id == "tool_search:tool_search" else None

    run = await run_with(tools=[echo_tool()], hooks=[("before_tool_call", before)], config=TOOLS)
    failed = failure_of(await run.call("tool_search", {"query": "echo"}))
    assert (failed.error, failed.code) == ("no searching", "blocked_by_hook")
    assert run.telemetry().search_count == 0


async def test_only_what_is_shown_can_be_called_by_name() -> None:
    run = await run_with(tools=[echo_tool()], config=TOOLS)
    for name in ("echo", "openclaw:core:echo", "tool_search_code", "exec"):
        failed = failure_of(await run.call(name, {}))
        assert failed.error == (
            f"there is no tool {name!r}; there are: tool_search, tool_describe, tool_call"
        )


async def test_an_abort_ends_a_structured_call() -> None:
    held = HeldTool()
    run = await run_with(tools=[held.tool], config=TOOLS)
    results: list[ToolSearchResult] = []

    async def call() -> None:
        results.append(await tool_call(run, "held"))

    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call)
            await held.wait_for_calls()
            await run.abort("the session ended")
    failed = failure_of(results[0])
    assert (failed.error, failed.code) == ("the session ended", "aborted")
    assert held.cancelled != []
