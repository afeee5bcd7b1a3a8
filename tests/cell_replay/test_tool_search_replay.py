"""Programs of Tool Search are recorded and replayed like those of code mode."""

from typing import Any

import anyio

from nacre import AllowOnce, ApprovalQueue, AskApproval, BeforeToolCall, Runtime
from tests.cell_replay.replays import replay_one
from tests.code_mode.tools import HeldTool, echo_tool
from tests.tool_search.runs import Recorded, program, reason_of, run_with, value_of

SEARCH = """
const hits = await openclaw.tools.search("echo", {limit: 1});
const tool = await openclaw.tools.describe(hits[0].id);
text("found " + tool.id);
return [await openclaw.tools.call(tool.id, {n: Math.random()}), Date.now()];
"""


async def test_a_program_of_tool_search_is_replayed(runtime: Runtime) -> None:
    run = await run_with(runtime.sandbox, tools=[echo_tool()])
    value = value_of(await program(run, SEARCH))
    replayed = await replay_one(runtime, run.trajectory)
    assert (replayed.difference, replayed.end) == ("", {"status": "completed", "value": value})
    assert [call.name for call in replayed.calls] == [
        "openclaw.tools.search",
        "openclaw.tools.describe",
        "openclaw.tools.call",
    ]


async def test_a_program_that_waits_for_a_person_is_replayed(runtime: Runtime) -> None:
    async def ask(event: BeforeToolCall) -> object:
        return AskApproval("echoes are loud") if event.tool_name == "echo" else None

    queue = ApprovalQueue()
    hooks = [("before_tool_call", ask)]
    run = await run_with(runtime.sandbox, tools=[echo_tool()], hooks=hooks, approvals=queue)
    paused = Recorded(run, "cell.suspended")
    value: Any = None
    async with anyio.create_task_group() as tasks:

        async def allow() -> None:
            await paused.wait()
            queue.answer(queue.pending[0].id, AllowOnce())

        tasks.start_soon(allow)
        code = "return [await openclaw.tools.call('echo', {n: 1}), Math.random()]"
        value = value_of(await program(run, code))
    replayed = await replay_one(runtime, run.trajectory)
    assert (replayed.difference, replayed.end) == ("", {"status": "completed", "value": value})
    assert [step.is_restored for step in replayed.steps] == [False, True]


async def test_a_program_that_exceeded_its_time_is_replayed_to_where_it_was(
    runtime: Runtime,
) -> None:
    held = HeldTool()
    run = await run_with(runtime.sandbox, tools=[held.tool], config={"codeTimeoutMs": 1_000})
    result = await program(run, "text('hi'); await openclaw.tools.call('held', {})")
    assert reason_of(result) == "timeout"
    replayed = await replay_one(runtime, run.trajectory)
    assert replayed.difference == ""
    assert replayed.notes == ("the host ended the program (timeout), which is not replayed",)
    assert len(replayed.calls) == 1


async def test_a_program_that_returned_before_its_time_was_over_is_replayed(
    runtime: Runtime,
) -> None:
    held = HeldTool()
    run = await run_with(runtime.sandbox, tools=[held.tool], config={"codeTimeoutMs": 1_000})
    value = value_of(await program(run, "openclaw.tools.call('held', {}); return Math.random()"))
    replayed = await replay_one(runtime, run.trajectory)
    assert replayed.difference == ""
    assert replayed.recorded_end == {"status": "completed", "value": value}
