"""Nested calls of programs: hooks, checks, errors and context are the same as for other calls."""

from collections.abc import Callable
from typing import Any

import pytest

from nacre import (
    AfterToolCall,
    BeforeToolCall,
    Block,
    ChangeInput,
    ChangeResult,
    RunContext,
    Runtime,
    Tool,
    ToolCall,
    ToolResult,
    hook,
)
from nacre.json_types import JsonObject
from tests.code_mode.outcomes import events_of, failure_of, value_of
from tests.code_mode.tools import ANY_OBJECT, HeldTool, echo_tool
from tests.contract.requirements import requirement

CAUGHT = "e => ({name: e.name, message: e.message, code: e.code, toolId: e.toolId})"
LIMITED: JsonObject = {
    "type": "object",
    "properties": {"limit": {"type": "integer", "maximum": 100}},
    "required": ["limit"],
    "additionalProperties": False,
}


def of_tool(name: str, function: Callable[[BeforeToolCall], object]) -> object:
    """A before hook for one tool alone."""

    async def before_tool_call(event: BeforeToolCall) -> object:
        return function(event) if event.tool_name == name else None

    return before_tool_call


def failing_tool(error: Exception) -> Tool:
    async def execute(input: dict[str, Any], call: ToolCall) -> object:
        raise error

    return Tool(name="fail", execute=execute)


# Hooks.


@requirement("validation:nested-hooks-and-approvals")
async def test_hooks_see_the_call_of_exec_and_the_call_inside_it(runtime: Runtime) -> None:
    seen: list[BeforeToolCall] = []

    async def before_tool_call(event: BeforeToolCall) -> None:
        seen.append(event)

    context = RunContext(session_id="s1", agent_id="helper")
    run = runtime.run(tools=[echo_tool()], hooks=[before_tool_call], context=context)
    await run.exec("return tools.echo({n: 1})", call_id="call_1")
    outer, inner = seen
    assert (outer.tool_name, outer.tool_kind, outer.tool_input_kind, outer.call_id) == (
        "exec",
        "code_mode_exec",
        "javascript",
        "call_1",
    )
    assert outer.input == {"code": "return tools.echo({n: 1})"}
    assert (inner.tool_id, inner.tool_kind, inner.tool_input_kind, inner.parent_id) == (
        "openclaw:core:echo",
        "tool",
        None,
        "call_1",
    )
    assert (inner.input, inner.context) == ({"n": 1}, context)


async def test_a_hook_tells_a_cell_in_typescript_from_the_shell_of_the_same_name(
    runtime: Runtime,
) -> None:
    seen: list[tuple[str, object, object]] = []

    async def before_tool_call(event: BeforeToolCall) -> None:
        wire = event.to_json()
        seen.append((event.tool_name, wire["toolKind"], wire.get("toolInputKind")))

    run = runtime.run(tools=[echo_tool("exec")], hooks=[before_tool_call])
    value_of(await run.exec("const n: number = 1; return tools.exec({n})", language="typescript"))
    assert seen == [("exec", "code_mode_exec", "typescript"), ("exec", "tool", None)]


@pytest.mark.parametrize(
    ("given", "language"),
    [
        ({"code": "return 1"}, "javascript"),
        ({"code": "```ts\nreturn 1\n```"}, "typescript"),
        ({"code": "return 1", "language": "typescript"}, "typescript"),
        ({"code": "return 1", "language": "python"}, None),
        ({"code": "return 1", "language": 3}, None),
    ],
)
async def test_hooks_get_the_language_in_which_the_program_runs(
    runtime: Runtime, given: JsonObject, language: str | None
) -> None:
    seen: list[object] = []

    async def before_tool_call(event: BeforeToolCall) -> object:
        seen.append(event.to_json().get("toolInputKind"))
        return Block("enough")

    run = runtime.run(tools=[echo_tool()], hooks=[before_tool_call])
    await run.call("exec", given)
    assert seen == [language]


async def test_the_language_is_typescript_if_only_that_is_enabled() -> None:
    seen: list[str | None] = []

    async def before_tool_call(event: BeforeToolCall) -> object:
        seen.append(event.tool_input_kind)
        return Block("enough")

    async with Runtime({"languages": ["typescript"]}, workers=1) as runtime:
        run = runtime.run(tools=[echo_tool()], hooks=[before_tool_call])
        await run.call("exec", {"code": "return 1"})
    assert seen == ["typescript"]


async def test_after_hooks_get_the_language_of_the_program_that_a_hook_wrote(
    runtime: Runtime,
) -> None:
    seen: list[str | None] = []

    async def before_tool_call(event: BeforeToolCall) -> object:
        return ChangeInput({"code": "return 1", "language": "typescript"})

    async def after_tool_call(event: AfterToolCall) -> None:
        seen.append(event.tool_input_kind)

    run = runtime.run(tools=[echo_tool()], hooks=[before_tool_call, after_tool_call])
    await run.call("exec", {"code": "return 1"})
    assert seen == ["typescript"]


@requirement("validation:nested-hooks-and-approvals")
async def test_a_hook_changes_what_a_tool_is_called_with(runtime: Runtime) -> None:
    hooks = [of_tool("echo", lambda event: ChangeInput({**event.input, "added": True}))]
    run = runtime.run(tools=[echo_tool()], hooks=hooks)
    assert value_of(await run.exec("return tools.echo({n: 1})")) == {"n": 1, "added": True}


@requirement("validation:nested-hooks-and-approvals")
async def test_a_hook_blocks_a_call_and_the_program_learns_why(runtime: Runtime) -> None:
    held = HeldTool()
    run = runtime.run(tools=[held.tool], hooks=[of_tool("held", lambda event: Block("not today"))])
    found = value_of(await run.exec(f"return tools.held({{}}).catch({CAUGHT})"))
    assert found == {
        "name": "ToolDeniedError",
        "message": "not today",
        "code": "blocked_by_hook",
        "toolId": "openclaw:core:held",
    }
    assert held.calls == []


async def test_a_hook_that_fails_blocks_the_call(runtime: Runtime) -> None:
    def broken(event: BeforeToolCall) -> object:
        raise KeyError("rules")

    held = HeldTool()
    run = runtime.run(tools=[held.tool], hooks=[of_tool("held", broken)])
    found = value_of(await run.exec(f"return tools.held({{}}).catch({CAUGHT})"))
    assert found["code"] == "blocked_by_hook"
    assert held.calls == []


async def test_what_a_hook_makes_of_an_input_has_to_fit_as_well(runtime: Runtime) -> None:
    hooks = [of_tool("echo", lambda event: ChangeInput({"limit": 900}))]
    run = runtime.run(tools=[echo_tool(parameters=LIMITED)], hooks=hooks)
    found = value_of(await run.exec(f"return tools.echo({{limit: 1}}).catch({CAUGHT})"))
    assert found["code"] == "invalid_tool_input"


async def test_middleware_changes_what_the_program_gets(runtime: Runtime) -> None:
    seen: list[AfterToolCall] = []

    @hook("after_tool_call")
    async def observe(event: AfterToolCall) -> None:
        seen.append(event)

    @hook("after_tool_call")
    async def shorten(event: AfterToolCall) -> object:
        return ChangeResult("short") if event.tool_name == "echo" else None

    run = runtime.run(tools=[echo_tool()], hooks=[observe, shorten])
    assert value_of(await run.exec("return tools.echo({n: 1})")) == "short"
    assert [(event.tool_name, event.outcome) for event in seen] == [
        ("echo", "completed"),
        ("exec", "completed"),
    ]
    assert seen[0].result == {"n": 1}


async def test_an_observer_is_told_of_failures(runtime: Runtime) -> None:
    seen: list[AfterToolCall] = []

    @hook("after_tool_call")
    async def observe(event: AfterToolCall) -> None:
        seen.append(event)

    run = runtime.run(tools=[failing_tool(ValueError("no luck"))], hooks=[observe])
    failure_of(await run.exec("return tools.fail({})"))
    failed = seen[0]
    assert (failed.outcome, failed.error, failed.error_code) == ("failed", "no luck", "tool_failed")


# Hooks of `exec` itself.


@pytest.mark.parametrize(
    "rewritten",
    [{"code": "return 'safe'"}, {"command": "return 'safe'"}],
)
async def test_a_hook_may_rewrite_a_program(runtime: Runtime, rewritten: JsonObject) -> None:
    run = runtime.run(
        tools=[echo_tool()], hooks=[of_tool("exec", lambda event: ChangeInput(rewritten))]
    )
    assert value_of(await run.exec("return 'anything'")) == "safe"


async def test_a_rewrite_that_leaves_code_and_command_different_runs_neither(
    runtime: Runtime,
) -> None:
    rewrite = of_tool("exec", lambda event: ChangeInput({**event.input, "command": "return 2"}))
    failed = failure_of(await runtime.run(tools=[echo_tool()], hooks=[rewrite]).exec("return 1"))
    assert failed.reason == "invalid_input"
    assert "`code` and `command` differ" in failed.error


@pytest.mark.parametrize("name", ["exec", "wait"])
async def test_a_blocked_exec_or_wait_is_a_failed_result(runtime: Runtime, name: str) -> None:
    run = runtime.run(
        tools=[echo_tool()], hooks=[of_tool(name, lambda event: Block("no programs today"))]
    )
    result = await run.exec("return 1") if name == "exec" else await run.wait("run_1")
    failed = failure_of(result)
    assert (failed.error, failed.reason, failed.code) == (
        "no programs today",
        "call_denied",
        "invalid_input",
    )


async def test_a_blocked_wait_leaves_the_run_as_it_was(runtime: Runtime) -> None:
    is_blocked = True

    async def before_tool_call(event: BeforeToolCall) -> object:
        is_wait = event.tool_kind == "code_mode_wait"
        return Block("later") if is_wait and is_blocked else None

    run = runtime.run(tools=[echo_tool()], hooks=[before_tool_call])
    waiting = await run.exec("await yield_control(); return 1")
    (cell,) = run.cells()
    assert failure_of(await run.wait(cell.cell_id)).reason == "call_denied"
    is_blocked = False
    assert value_of(await run.wait(cell.cell_id)) == 1
    assert waiting.to_json()["runId"] == cell.cell_id


# Inputs, results and errors.


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ("{}", "`$.limit`: is required"),
        ("{limit: 900}", "`$.limit`: 900 is greater than the maximum of 100"),
        ("{limit: 1, limt: 2}", "limt"),
        ("'text'", "the input is a string"),
        ("[1]", "the input is an array"),
    ],
)
async def test_an_input_that_does_not_fit_names_the_place(
    runtime: Runtime, given: str, problem: str
) -> None:
    run = runtime.run(tools=[echo_tool(parameters=LIMITED)])
    found = value_of(await run.exec(f"return tools.echo({given}).catch({CAUGHT})"))
    assert (found["name"], found["code"], found["toolId"]) == (
        "ToolInputError",
        "invalid_tool_input",
        "openclaw:core:echo",
    )
    assert problem in found["message"]


@requirement("security:plain-errors")
async def test_what_a_tool_raises_is_a_plain_error_that_can_be_caught(runtime: Runtime) -> None:
    run = runtime.run(tools=[failing_tool(ValueError("no luck"))])
    found = value_of(
        await run.exec(
            "try { await tools.fail({}) } catch (e) {"
            " return {is: e instanceof Error, name: e.name, message: e.message, code: e.code,"
            " toolId: e.toolId, type: e.errorType, stack: e.stack.includes('Traceback')} }"
        )
    )
    assert found == {
        "is": True,
        "name": "ToolFailedError",
        "message": "no luck",
        "code": "tool_failed",
        "toolId": "openclaw:core:fail",
        "type": "ValueError",
        "stack": False,
    }


async def test_a_tool_s_error_that_nobody_catches_fails_the_program(runtime: Runtime) -> None:
    run = runtime.run(tools=[failing_tool(RuntimeError("no luck"))])
    failed = failure_of(await run.exec("const x = 1;\nawait tools.fail({})"))
    assert (failed.reason, failed.code) == ("nested_tool_failed", "internal_error")
    assert failed.error.startswith("ToolFailedError: no luck")
    assert failed.position is not None
    assert failed.position.line == 2


async def test_a_result_that_says_it_is_an_error_is_one(runtime: Runtime) -> None:
    async def execute(input: dict[str, Any], call: ToolCall) -> object:
        return ToolResult(text="quota is used up", is_error=True)

    run = runtime.run(tools=[Tool(name="fail", execute=execute)])
    found = value_of(await run.exec(f"return tools.fail({{}}).catch({CAUGHT})"))
    assert (found["message"], found["code"]) == ("quota is used up", "tool_failed")


async def test_a_result_that_json_cannot_hold_is_an_error_that_names_it(runtime: Runtime) -> None:
    async def execute(input: dict[str, Any], call: ToolCall) -> object:
        return {"client": object()}

    run = runtime.run(tools=[Tool(name="odd", execute=execute)])
    found = value_of(await run.exec(f"return tools.odd({{}}).catch({CAUGHT})"))
    assert found["code"] == "invalid_tool_result"
    assert "client" in found["message"]


# What a tool learns.


async def test_a_tool_learns_on_whose_behalf_it_is_called(runtime: Runtime) -> None:
    calls: list[ToolCall] = []

    async def execute(input: dict[str, Any], call: ToolCall) -> object:
        calls.append(call)
        return None

    context = RunContext(
        agent_id="helper",
        session_id="s1",
        session_key="agent:helper:main",
        run_id="r1",
        sender="ann",
        channel="chat",
        is_sandboxed=True,
    )
    run = runtime.run(
        tools=[Tool(name="look", parameters=ANY_OBJECT, execute=execute)], context=context
    )
    await run.exec("await Promise.all([tools.look({}), tools.look({})])", call_id="call_7")
    assert [call.context for call in calls] == [context, context]
    assert {call.parent_id for call in calls} == {"call_7"}
    assert len({call.id for call in calls}) == 2
    assert not any(call.abort.is_aborted for call in calls)


async def test_progress_is_recorded_and_is_no_part_of_the_result(runtime: Runtime) -> None:
    async def execute(input: dict[str, Any], call: ToolCall) -> object:
        call.update({"percent": 50})
        call.update("nearly there")
        return "done"

    run = runtime.run(tools=[Tool(name="slow", execute=execute)])
    assert value_of(await run.exec("return tools.slow({})")) == "done"
    assert [event.data["update"] for event in events_of(run, "call.updated")] == [
        {"percent": 50},
        "nearly there",
    ]
