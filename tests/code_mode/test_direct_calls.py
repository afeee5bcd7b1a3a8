"""What a run does with the name and the arguments that a model sent, `exec` or not."""

from typing import Any

import anyio
import pytest

from nacre import (
    ApprovalRequest,
    AskApproval,
    BeforeToolCall,
    Block,
    CodeMode,
    DirectResult,
    Failed,
    Runtime,
    Tool,
    ToolCall,
)
from nacre.errors import RuntimeUnavailableError
from nacre.json_types import JsonObject
from nacre.tools import ApprovalInfo
from nacre.trajectory import project
from tests.code_mode.outcomes import failure_of, value_of, waiting_of
from tests.code_mode.tools import HeldTool, echo_tool

NUMBERED: JsonObject = {
    "type": "object",
    "properties": {"n": {"type": "integer"}},
    "required": ["n"],
}


def direct(result: object) -> DirectResult:
    assert isinstance(result, DirectResult), result
    return result


# `exec` and `wait` as a model calls them.


@pytest.mark.parametrize(
    "arguments",
    [
        {"code": "return 1 + 1"},
        {"command": "return 1 + 1"},
        {"code": "return 1 + 1", "command": "return 1 + 1"},
        {"code": "const n: number = 2; return n", "language": "typescript"},
        '{"code": "return 1 + 1"}',
    ],
)
async def test_exec_takes_its_arguments_as_an_object_or_as_json(
    runtime: Runtime, arguments: object
) -> None:
    assert value_of(await runtime.run(tools=[echo_tool()]).call("exec", arguments)) == 2


async def test_wait_is_called_with_the_id_that_exec_gave(runtime: Runtime) -> None:
    run = runtime.run(tools=[echo_tool()])
    waiting = waiting_of(await run.call("exec", {"code": "await yield_control(); return 1"}))
    wire = waiting.to_json()
    assert value_of(await run.call("wait", {"runId": wire["runId"]})) == 1


@pytest.mark.parametrize(
    ("name", "arguments", "reason", "problem"),
    [
        ("exec", {}, "invalid_input", "`code` is empty"),
        ("exec", None, "invalid_input", "`code` is empty"),
        ("exec", {"code": "  "}, "invalid_input", "`code` is empty"),
        ("exec", {"code": "1", "command": "2"}, "invalid_input", "differ"),
        ("exec", {"code": "1", "language": "python"}, "unsupported_language", "'python'"),
        ("exec", "return 1", "invalid_input", "the arguments are not JSON"),
        ("exec", "[1]", "invalid_input", "the arguments are an array"),
        ("exec", 7, "invalid_input", "the arguments are a number"),
        ("exec", "\ud800", "invalid_input", "the arguments are not JSON"),
        ("exec", "[" * 100_000, "invalid_input", "the arguments are not JSON"),
        ("wait", {}, "invalid_input", "wait needs `runId`"),
        (
            "wait",
            {"runId": "call_1"},
            "run_unavailable",
            "code mode run is unavailable or expired.",
        ),
    ],
)
async def test_arguments_that_are_wrong_are_a_failed_result(
    runtime: Runtime, name: str, arguments: object, reason: str, problem: str
) -> None:
    failed = failure_of(await runtime.run(tools=[echo_tool()]).call(name, arguments))
    assert (failed.code, failed.reason) == ("invalid_input", reason)
    assert problem in failed.error
    assert len(failed.error) < 500


@pytest.mark.parametrize("name", ["echo", "openclaw:core:echo", "", "EXEC", "__class__"])
async def test_a_name_that_the_model_was_not_shown_calls_nothing(
    runtime: Runtime, name: str
) -> None:
    held = HeldTool("echo")
    failed = failure_of(await runtime.run(tools=[held.tool]).call(name, {}))
    assert failed.error == (f"there is no tool {name!r}; there are: exec, wait")
    assert held.calls == []


# Tools that the model sees by themselves.


async def test_a_direct_only_tool_returns_what_json_cannot_hold(runtime: Runtime) -> None:
    image = object()

    async def execute(input: dict[str, Any], call: ToolCall) -> object:
        return image

    tool = Tool(name="show_image", execute=execute, catalog_mode="direct-only")
    run = runtime.run(tools=[echo_tool(), tool])
    result = direct(await run.call("show_image", {}, call_id="call_1"))
    assert result.value is image
    assert not result.is_error
    (node,) = project(run.trajectory.events)
    assert (node.call_id, node.outcome, node.result) == ("call_1", "completed", {"type": "object"})


async def test_without_code_mode_tools_are_called_by_name() -> None:
    async with Runtime({"enabled": False}, workers=1) as runtime:
        run = runtime.run(tools=[echo_tool(parameters=NUMBERED)])
        assert direct(await run.call("echo", '{"n": 1}')).value == {"n": 1}
        refused = direct(await run.call("echo", {}))
    assert (refused.is_error, refused.code) == (True, "invalid_tool_input")
    assert "`$.n`: is required" in refused.error


async def test_hooks_and_approvals_hold_for_direct_calls_as_well() -> None:
    async def before_tool_call(event: BeforeToolCall) -> object:
        assert (event.tool_kind, event.parent_id) == ("tool", "")
        return Block("never") if event.input["n"] == 1 else AskApproval("really?")

    held = HeldTool(parameters=NUMBERED)
    async with Runtime(False, workers=1) as runtime:
        run = runtime.run(tools=[held.tool], hooks=[before_tool_call])
        blocked = direct(await run.call("held", {"n": 1}))
        unanswered = direct(await run.call("held", {"n": 2}))
    assert (blocked.error, blocked.code) == ("never", "blocked_by_hook")
    assert unanswered.code == "approval_denied"
    assert held.calls == []


async def test_a_direct_tool_that_fails_is_an_error_and_not_an_exception() -> None:
    async def execute(input: dict[str, Any], call: ToolCall) -> object:
        raise ZeroDivisionError

    async with Runtime(False, workers=1) as runtime:
        run = runtime.run(tools=[Tool(name="fail", execute=execute)])
        result = direct(await run.call("fail"))
    assert (result.error, result.code) == ("ZeroDivisionError", "tool_failed")


async def test_a_run_that_was_aborted_makes_no_direct_calls() -> None:
    held = HeldTool()
    async with Runtime(False, workers=1) as runtime:
        run = runtime.run(tools=[held.tool])
        await run.abort("over")
        result = direct(await run.call("held", {}))
    assert (result.error, result.code) == ("over", "aborted")
    assert held.calls == []


# A runtime and a run in one.


async def test_code_mode_is_a_runtime_with_one_run() -> None:
    code_mode = CodeMode(tools=[echo_tool()], workers=1)
    with pytest.raises(RuntimeUnavailableError, match="not open"):
        code_mode.definitions()
    async with code_mode:
        assert len(code_mode.definitions("anthropic")) == 2
        waiting = waiting_of(await code_mode.exec("await yield_control(); return tools.echo({})"))
        assert value_of(await code_mode.wait(waiting.cell_id)) == {}
        assert value_of(await code_mode.call("exec", {"code": "return 1"})) == 1
        await code_mode.abort("over")
        assert failure_of(await code_mode.exec("return 1")).reason == "aborted"


async def test_an_abort_of_the_run_ends_a_direct_call(runtime: Runtime) -> None:
    slow = HeldTool("slow", catalog_mode="direct-only")
    run = runtime.run(tools=[slow.tool])
    results: list[object] = []

    async def call() -> None:
        results.append(await run.call("slow", {}))

    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call)
            await slow.wait_for_calls()
            await run.abort("enough")
    assert results == [DirectResult(error="enough", code="aborted")]
    assert slow.cancelled == [slow.calls[0][1].id]


async def test_an_abort_of_the_run_ends_an_exec_that_waits_for_approval(runtime: Runtime) -> None:
    asked = anyio.Event()

    async def ask(_request: ApprovalRequest) -> ApprovalInfo:
        asked.set()
        await anyio.sleep_forever()
        return "allow-once"

    async def before_tool_call(_event: BeforeToolCall) -> AskApproval:
        return AskApproval("every program is read first")

    run = runtime.run(tools=[echo_tool()], hooks=[before_tool_call], approvals=ask)
    results: list[object] = []

    async def call() -> None:
        results.append(await run.exec("return 1"))

    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call)
            await asked.wait()
            await run.abort("enough")
    (result,) = results
    assert isinstance(result, Failed)
    assert (result.reason, result.error) == ("aborted", "enough")
