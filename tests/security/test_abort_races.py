"""Aborts that meet something else half way: a suspension, an answer, code that will not be stopped.

Whatever comes first, an aborted run never reports `waiting`, keeps no cell, and starts no tool.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.abc import TaskGroup

from nacre import (
    ApprovalQueue,
    ApprovalRequest,
    AskApproval,
    BeforeToolCall,
    CodeModeResult,
    CodeModeRun,
    DirectResult,
    RunContext,
    Runtime,
)
from nacre.code_mode.mcp_servers import McpServers
from nacre.errors import ApprovalError
from nacre.hooks import HookRunner, Hooks
from nacre.sandbox.cell_vm import CellVm
from nacre.tools import Approvals
from nacre.tools.approvals import Refused
from tests.code_mode.outcomes import Recorded, events_of, failure_of, value_of, waiting_of
from tests.code_mode.tools import HeldTool, echo_tool
from tests.hooks.tool_calls import before
from tests.security.attacks import BOUND_SECONDS, nothing_left_behind

Abort = Callable[[Runtime, CodeModeRun, str], Coroutine[Any, Any, object]]
Meet = Callable[[TaskGroup, Callable[[], Coroutine[Any, Any, object]], int], None]

ABORTS: dict[str, Abort] = {
    "run": lambda runtime, run, run_id: run.abort("stop"),
    "cell_of_the_run": lambda runtime, run, run_id: run.abort_cell(run_id, "stop"),
    "cell_of_the_runtime": lambda runtime, run, run_id: runtime.abort_cell(run_id, "stop"),
    "session": lambda runtime, run, run_id: runtime.abort(
        session_id=run.context.session_id, reason="stop"
    ),
}
YIELDS_TWICE = "await yield_control(); await yield_control(); return 1"


@pytest.fixture(scope="module")
async def runtime(cache_directory: Path) -> AsyncIterator[Runtime]:
    """Has room for one suspended run: one that is left behind keeps all others out."""
    with nothing_left_behind(cache_directory):
        async with Runtime(
            workers=1, cache_directory=cache_directory, max_suspended_cells=1
        ) as runtime:
            yield runtime


async def turns_of_the_loop(count: int) -> None:
    """Let everybody else come so far; not an anyio checkpoint, which would see a cancellation."""
    for _ in range(count):
        await asyncio.sleep(0)


class Background:
    """A call in a task of its own, and what came of it."""

    def __init__(self, call: Callable[[], Awaitable[CodeModeResult | DirectResult]]) -> None:
        self._call = call
        self._results: list[CodeModeResult | DirectResult] = []
        self.task: asyncio.Task[object] | None = None

    async def __call__(self) -> None:
        self.task = asyncio.current_task()
        self._results.append(await self._call())

    @property
    def result(self) -> CodeModeResult | DirectResult:
        (result,) = self._results
        return result


# Aborts that meet a suspension.


@pytest.fixture
def meet_suspension(monkeypatch: pytest.MonkeyPatch) -> Meet:
    """At the next suspensions, let an abort come some turns far before the leg goes on.

    That is the moment when the snapshot is made, and not yet kept.
    """
    suspend = CellVm.suspend

    def meet(
        tasks: TaskGroup, abort: Callable[[], Coroutine[Any, Any, object]], turns: int
    ) -> None:
        async def met_suspend(vm: CellVm, open_requests: tuple[int, ...]) -> None:
            await suspend(vm, open_requests)
            tasks.start_soon(abort)
            # Shielded: a cancellation that comes now comes too late.
            with anyio.CancelScope(shield=True):
                await turns_of_the_loop(turns)

        monkeypatch.setattr(CellVm, "suspend", met_suspend)

    return meet


async def expect_aborted(
    result: CodeModeResult | DirectResult, runtime: Runtime, run: CodeModeRun
) -> None:
    """It says so, and nothing is left of it."""
    failed = failure_of(result)
    assert (failed.reason, failed.error) == ("aborted", "stop")
    assert (runtime.cells(), run.cells()) == ([], [])
    (ended,) = events_of(run, "cell.ended")
    assert (ended.data["status"], ended.data["reason"]) == ("aborted", "stop")
    await expect_room_for_a_suspended_cell(runtime)


async def expect_room_for_a_suspended_cell(runtime: Runtime) -> None:
    other = runtime.run(tools=[echo_tool()])
    waiting = waiting_of(await other.exec("await yield_control(); return 1"))
    assert value_of(await other.wait(waiting.cell_id)) == 1


@pytest.mark.parametrize("turns", [1, 2, 3, 6])
@pytest.mark.parametrize("how", ABORTS)
async def test_an_abort_that_meets_the_first_suspension_wins(
    runtime: Runtime,
    meet_suspension: Meet,
    monkeypatch: pytest.MonkeyPatch,
    how: str,
    turns: int,
) -> None:
    run = runtime.run(tools=[echo_tool()])
    program = Background(lambda: run.exec(YIELDS_TWICE))
    with anyio.fail_after(BOUND_SECONDS):
        async with anyio.create_task_group() as tasks:
            meet_suspension(tasks, lambda: ABORTS[how](runtime, run, run.cells()[0].cell_id), turns)
            await program()
        monkeypatch.undo()
        await expect_aborted(program.result, runtime, run)


@pytest.mark.parametrize("turns", [1, 2, 3, 6])
@pytest.mark.parametrize("how", ABORTS)
async def test_an_abort_that_meets_a_later_suspension_wins(
    runtime: Runtime,
    meet_suspension: Meet,
    monkeypatch: pytest.MonkeyPatch,
    how: str,
    turns: int,
) -> None:
    run = runtime.run(tools=[echo_tool()])
    with anyio.fail_after(BOUND_SECONDS):
        run_id = waiting_of(await run.exec(YIELDS_TWICE)).cell_id
        program = Background(lambda: run.wait(run_id))
        async with anyio.create_task_group() as tasks:
            meet_suspension(tasks, lambda: ABORTS[how](runtime, run, run_id), turns)
            await program()
        monkeypatch.undo()
        await expect_aborted(program.result, runtime, run)


async def test_a_run_that_is_aborted_as_it_suspends_gives_its_calls_up(
    runtime: Runtime, meet_suspension: Meet, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = HeldTool()
    run = runtime.run(tools=[held.tool])
    call_ended = Recorded(run, "call.ended", errorCode="aborted")
    code = "const call = tools.held(); await yield_control(); return call"
    program = Background(lambda: run.exec(code))
    with anyio.fail_after(BOUND_SECONDS):
        async with anyio.create_task_group() as tasks:
            meet_suspension(tasks, lambda: run.abort("stop"), 1)
            await program()
            await call_ended.wait()
        monkeypatch.undo()
        assert len(held.cancelled) == len(held.calls) == 1
        await expect_aborted(program.result, runtime, run)


async def test_an_abort_while_servers_are_listed_starts_no_cell(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Large servers are listed in a thread, and meanwhile anything can happen."""
    held = HeldTool()
    held.answer("called all the same")
    run = runtime.run(tools=[held.tool])
    listings = McpServers.listings

    async def aborted_listings(servers: McpServers) -> Any:
        await run.abort("stop")
        return await listings(servers)

    monkeypatch.setattr(McpServers, "listings", aborted_listings)
    failed = await run.exec("return tools.held()")
    assert (held.calls, runtime.cells()) == ([], [])
    assert failure_of(failed).reason == "aborted"


# Code that will not be stopped.


class Stubborn:
    """An approver and a hook that say yes when they are told to stop."""

    def __init__(self) -> None:
        self.was_asked = anyio.Event()

    async def approver(self, request: ApprovalRequest) -> Any:
        await self._until_cancelled()
        return "allow-once"

    async def hook(self, event: BeforeToolCall) -> object:
        if event.tool_kind == "tool":
            await self._until_cancelled()
        return None

    async def _until_cancelled(self) -> None:
        self.was_asked.set()
        with suppress(asyncio.CancelledError):
            await anyio.sleep_forever()


async def ask_for_tools(event: BeforeToolCall) -> object:
    return AskApproval("why") if event.tool_kind == "tool" else None


@pytest.mark.parametrize("place", ["approver", "hook"])
async def test_a_yes_that_comes_because_of_the_abort_starts_no_tool(
    runtime: Runtime, place: str
) -> None:
    stubborn, held = Stubborn(), HeldTool()
    run = runtime.run(
        tools=[held.tool],
        hooks=[("before_tool_call", stubborn.hook if place == "hook" else ask_for_tools)],
        approvals=stubborn.approver,
    )
    call_ended = Recorded(run, "call.ended", errorCode="aborted")
    program = Background(lambda: run.exec("return tools.held()"))
    with anyio.fail_after(BOUND_SECONDS):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(program)
            await stubborn.was_asked.wait()
            await run.abort("stop")
        await call_ended.wait()
    assert failure_of(program.result).reason == "aborted"
    assert (held.calls, runtime.cells()) == ([], [])


@pytest.mark.parametrize("place", ["approver", "hook"])
async def test_a_yes_that_comes_because_of_the_abort_makes_no_direct_call(
    runtime: Runtime, place: str
) -> None:
    stubborn, held = Stubborn(), HeldTool(catalog_mode="direct-only")
    run = runtime.run(
        tools=[held.tool],
        hooks=[("before_tool_call", stubborn.hook if place == "hook" else ask_for_tools)],
        approvals=stubborn.approver,
    )
    direct = Background(lambda: run.call("held", {}))
    with anyio.fail_after(BOUND_SECONDS):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(direct)
            await stubborn.was_asked.wait()
            await run.abort("stop")
            if place == "hook" and direct.task is not None:
                # Nothing stops the hook of a direct call but its own time, or this.
                direct.task.cancel()
    assert held.calls == []
    assert direct.result == DirectResult(error="stop", code="aborted")


async def test_a_yes_after_the_time_for_it_is_late(cache_directory: Path) -> None:
    held = HeldTool()
    held.answer("called all the same")
    async with Runtime(
        workers=1, cache_directory=cache_directory, approval_seconds=0.01
    ) as runtime:
        run = runtime.run(
            tools=[held.tool],
            hooks=[("before_tool_call", ask_for_tools)],
            approvals=Stubborn().approver,
        )
        with anyio.fail_after(BOUND_SECONDS):
            result = await run.exec("return tools.held().catch(e => e.code)")
    assert value_of(result) == "approval_expired"
    assert held.calls == []


async def test_a_late_always_is_not_remembered() -> None:
    async def approver(request: ApprovalRequest) -> Any:
        with suppress(asyncio.CancelledError):
            await anyio.sleep_forever()
        return "allow-always"

    approvals = Approvals(approver, ttl_seconds=0.01)
    context = RunContext()
    with anyio.fail_after(BOUND_SECONDS):
        for _ in range(2):
            answer = await approvals.request(
                tool_id="t", tool_name="t", input={}, reason="", context=context, call_id="c"
            )
            assert isinstance(answer, Refused)
            assert answer.code == "approval_expired"


async def test_a_hook_that_agrees_after_its_time_blocks() -> None:
    hooks = Hooks([("before_tool_call", Stubborn().hook)])
    with anyio.fail_after(BOUND_SECONDS):
        decision = await HookRunner(hooks, timeout_seconds=0.01).before_tool_call(before())
    assert decision.block is not None
    assert "it took longer than 0.01 seconds" in decision.block


# Answers that meet an abort.


async def next_request(queue: ApprovalQueue) -> ApprovalRequest:
    async for request in queue:
        return request
    raise AssertionError("a queue has no end")


async def test_an_answer_just_before_the_abort_starts_no_tool(runtime: Runtime) -> None:
    queue, held = ApprovalQueue(), HeldTool()
    hooks = [("before_tool_call", ask_for_tools)]
    run = runtime.run(tools=[held.tool], hooks=hooks, approvals=queue)
    call_ended = Recorded(run, "call.ended", errorCode="aborted")
    program = Background(lambda: run.exec("return tools.held()"))
    with anyio.fail_after(BOUND_SECONDS):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(program)
            queue.answer((await next_request(queue)).id, "allow-once")
            await run.abort("stop")
        await call_ended.wait()
    assert failure_of(program.result).reason == "aborted"
    assert held.calls == []


async def test_an_answer_just_before_the_abort_makes_no_direct_call(runtime: Runtime) -> None:
    queue, held = ApprovalQueue(), HeldTool(catalog_mode="direct-only")
    hooks = [("before_tool_call", ask_for_tools)]
    run = runtime.run(tools=[held.tool], hooks=hooks, approvals=queue)
    direct = Background(lambda: run.call("held", {}))
    with anyio.fail_after(BOUND_SECONDS):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(direct)
            queue.answer((await next_request(queue)).id, "allow-once")
            await run.abort("stop")
    assert direct.result == DirectResult(error="stop", code="aborted")
    assert held.calls == []


@pytest.mark.parametrize("turns", [1, 2, 3])
async def test_an_answer_while_the_abort_is_under_way_starts_no_tool(
    runtime: Runtime, turns: int
) -> None:
    queue, held = ApprovalQueue(), HeldTool()
    hooks = [("before_tool_call", ask_for_tools)]
    run = runtime.run(tools=[held.tool], hooks=hooks, approvals=queue)
    call_ended = Recorded(run, "call.ended", errorCode="aborted")
    program = Background(lambda: run.exec("return tools.held()"))
    with anyio.fail_after(BOUND_SECONDS):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(program)
            request = await next_request(queue)
            tasks.start_soon(run.abort, "stop")
            await turns_of_the_loop(turns)
            # Refused or not: it depends on how far the abort has come.
            with suppress(ApprovalError):
                queue.answer(request.id, "allow-once")
        await call_ended.wait()
    assert failure_of(program.result).reason == "aborted"
    assert (held.calls, queue.pending) == ([], ())
