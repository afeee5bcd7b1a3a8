"""Tools, hooks and approvers that raise what nobody expects, or whose task somebody cancels.

Each costs its own call. The program goes on, so do other sessions, and so does the event loop.
"""

import asyncio
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from nacre import (
    AfterToolCall,
    ApprovalRequest,
    AskApproval,
    BeforeToolCall,
    ChangeInput,
    CodeModeResult,
    CodeModeRun,
    DirectResult,
    Failed,
    Runtime,
    Tool,
    ToolCall,
    tool,
)
from nacre.json_types import JsonValue
from nacre.run_context import AbortController
from nacre.sandbox import CellId, HostRequest
from nacre.sandbox.host_requests import HostRequests
from tests.code_mode.outcomes import Recorded, events_of, failure_of, value_of
from tests.code_mode.tools import HeldTool, echo_tool
from tests.security.attacks import BOUND_SECONDS, nothing_left_behind

CAUGHT = ".catch(e => e.message)"
FAULTY_AND_ON = f"return [await tools.faulty({{}}){CAUGHT}, await tools.echo({{n: 1}})]"


class Panic(BaseException):
    """What extension modules raise when they have lost their way."""


FAULTS: dict[str, tuple[Callable[[], BaseException], str]] = {
    "base_exception": (lambda: Panic("lost"), "lost"),
    "group": (
        lambda: BaseExceptionGroup("several", [Panic("lost"), ValueError("x")]),
        "several (2 sub-exceptions)",
    ),
    "generator_exit": (GeneratorExit, "GeneratorExit"),
    "system_exit": (lambda: SystemExit(2), "2"),
    "cancelled": (asyncio.CancelledError, "it was cancelled"),
}
# With those there is more to it: see "GeneratorExit" below.
WITHOUT_GENERATOR_EXIT = [fault for fault in FAULTS if fault != "generator_exit"]


@pytest.fixture(scope="module")
async def runtime(cache_directory: Path) -> AsyncIterator[Runtime]:
    """One runtime for the whole file: every fault has to leave it sound for the next."""
    with nothing_left_behind(cache_directory):
        async with Runtime(workers=2, cache_directory=cache_directory) as runtime:
            yield runtime


def faulty_tool(fault: str, **fields: Any) -> Tool:
    async def execute(given: dict[str, Any], call: ToolCall) -> object:
        raise FAULTS[fault][0]()

    return Tool(name="faulty", execute=execute, **fields)


def thread_tool(fault: str) -> Tool:
    def faulty() -> int:
        raise FAULTS[fault][0]()

    return tool(faulty)


@tool
def command_line(status: int) -> int:
    """Wrap a function that was written for the command line."""
    sys.exit(status)


# Made here: reading a signature imports a lot, which blocks.
TOOLS_IN_THREADS = {fault: thread_tool(fault) for fault in FAULTS}
FAULTY_TOOLS = {
    **{f"{fault}_in_task": (faulty_tool(fault), FAULTS[fault][1]) for fault in FAULTS},
    **{
        f"{fault}_in_thread": (TOOLS_IN_THREADS[fault], FAULTS[fault][1])
        for fault in WITHOUT_GENERATOR_EXIT
    },
}
FAULTY_HOOKS = [
    *((fault, True) for fault in FAULTS),
    *((fault, False) for fault in WITHOUT_GENERATOR_EXIT),
]


@asynccontextmanager
async def beside_another_session(runtime: Runtime) -> AsyncGenerator[None]:
    """Another session has a call under way meanwhile, and that has to end well."""
    held = HeldTool()
    run = runtime.run(tools=[held.tool, echo_tool()])
    results: list[CodeModeResult] = []

    async def program() -> None:
        results.append(await run.exec("return [await tools.held(), await tools.echo({n: 2})]"))

    with anyio.fail_after(BOUND_SECONDS):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(program)
            await held.wait_for_calls()
            yield
            held.answer("fine")
    assert value_of(results[0]) == ["fine", {"n": 2}]


async def expect_next_call_to_work(run: CodeModeRun) -> None:
    assert value_of(await run.exec("return tools.echo({n: 3})")) == {"n": 3}
    assert run.cells() == []


def nested_outcomes(run: CodeModeRun) -> list[object]:
    return [event.data["outcome"] for event in events_of(run, "call.ended") if event.parent_id]


# Tools.


@pytest.mark.parametrize(("faulty", "words"), FAULTY_TOOLS.values(), ids=FAULTY_TOOLS)
async def test_whatever_a_tool_raises_costs_its_own_call(
    runtime: Runtime, faulty: Tool, words: str
) -> None:
    run = runtime.run(tools=[faulty, echo_tool()])
    async with beside_another_session(runtime):
        assert value_of(await run.exec(FAULTY_AND_ON)) == [words, {"n": 1}]
        assert nested_outcomes(run) == ["failed", "completed"]
        await expect_next_call_to_work(run)


async def test_a_tool_that_exits_the_process_from_a_thread_does_not(runtime: Runtime) -> None:
    run = runtime.run(tools=[command_line, echo_tool()])
    async with beside_another_session(runtime):
        code = "return tools.command_line({status: 2}).catch(e => [e.message, e.code])"
        assert value_of(await run.exec(code)) == ["2", "tool_failed"]
        await expect_next_call_to_work(run)


async def test_a_program_that_does_not_catch_such_an_error_fails_alone(runtime: Runtime) -> None:
    run = runtime.run(tools=[faulty_tool("system_exit"), echo_tool()])
    async with beside_another_session(runtime):
        failed = failure_of(await run.exec("return tools.faulty({})"))
        assert failed.reason == "nested_tool_failed"
        await expect_next_call_to_work(run)


@pytest.mark.parametrize("fault", WITHOUT_GENERATOR_EXIT)
async def test_whatever_a_direct_tool_raises_is_the_result_of_its_call(
    runtime: Runtime, fault: str
) -> None:
    run = runtime.run(tools=[faulty_tool(fault, catalog_mode="direct-only"), echo_tool()])
    async with beside_another_session(runtime):
        result = await run.call("faulty", {})
        assert result == DirectResult(error=FAULTS[fault][1], code="tool_failed")
        await expect_next_call_to_work(run)


# Hooks.


@pytest.mark.parametrize(("fault", "is_async"), FAULTY_HOOKS)
async def test_a_hook_that_raises_before_a_call_costs_that_call(
    runtime: Runtime, fault: str, is_async: bool
) -> None:
    def refuse(event: BeforeToolCall) -> None:
        if event.tool_name == "held":
            raise FAULTS[fault][0]()

    async def refuse_async(event: BeforeToolCall) -> None:
        refuse(event)

    held = HeldTool()
    held.answer("called all the same")
    hooks = [("before_tool_call", refuse_async if is_async else refuse)]
    run = runtime.run(tools=[held.tool, echo_tool()], hooks=hooks)
    async with beside_another_session(runtime):
        code = f"return [await tools.held({{}}){CAUGHT}, await tools.echo({{n: 1}})]"
        message, echoed = value_of(await run.exec(code))
        assert FAULTS[fault][1] in message
        assert (echoed, held.calls) == ({"n": 1}, [])
        await expect_next_call_to_work(run)


@pytest.mark.parametrize("fault", WITHOUT_GENERATOR_EXIT)
async def test_a_hook_that_raises_after_a_call_changes_nothing(
    runtime: Runtime, fault: str
) -> None:
    async def observe(event: AfterToolCall) -> None:
        raise FAULTS[fault][0]()

    run = runtime.run(tools=[echo_tool()], hooks=[("after_tool_call", observe)])
    async with beside_another_session(runtime):
        await expect_next_call_to_work(run)


def failing_first(fault: str) -> Callable[[BeforeToolCall], object]:
    """A hook that fails at the first `exec` and never again."""
    faults = [FAULTS[fault][0]()]

    async def refuse(event: BeforeToolCall) -> None:
        if event.tool_kind == "code_mode_exec" and faults:
            raise faults.pop()

    return refuse


@pytest.mark.parametrize("fault", WITHOUT_GENERATOR_EXIT)
async def test_a_hook_that_raises_at_exec_is_a_failed_result(runtime: Runtime, fault: str) -> None:
    hooks = [("before_tool_call", failing_first(fault))]
    run = runtime.run(tools=[echo_tool()], hooks=hooks)
    async with beside_another_session(runtime):
        failed = failure_of(await run.exec("return 1"))
        assert failed.reason == "call_denied"
        assert FAULTS[fault][1] in failed.error
        await expect_next_call_to_work(run)


# Approvers.


async def ask_for_held(event: BeforeToolCall) -> object:
    return AskApproval("it is slow") if event.tool_name == "held" else None


@pytest.mark.parametrize("fault", FAULTS)
async def test_an_approver_that_raises_costs_the_call_it_was_asked_about(
    runtime: Runtime, fault: str
) -> None:
    async def approver(request: ApprovalRequest) -> Any:
        raise FAULTS[fault][0]()

    held = HeldTool()
    held.answer("called all the same")
    run = runtime.run(
        tools=[held.tool, echo_tool()],
        hooks=[("before_tool_call", ask_for_held)],
        approvals=approver,
    )
    async with beside_another_session(runtime):
        code = f"return [await tools.held({{}}){CAUGHT}, await tools.echo({{n: 1}})]"
        message, echoed = value_of(await run.exec(code))
        assert message != "called all the same"
        assert (echoed, held.calls) == ({"n": 1}, [])
        await expect_next_call_to_work(run)


# GeneratorExit, which is also what a coroutine is closed with.


async def outcome_of(awaitable: Coroutine[Any, Any, object]) -> object:
    """The result, or what was raised; looked at from outside, as it would end the test runner."""
    with anyio.fail_after(BOUND_SECONDS):
        (found,) = await asyncio.gather(awaitable, return_exceptions=True)
    return found


async def test_a_direct_tool_that_raises_generator_exit_is_a_failed_call(runtime: Runtime) -> None:
    faulty = faulty_tool("generator_exit", catalog_mode="direct-only")
    run = runtime.run(tools=[faulty, echo_tool()])
    result = await outcome_of(run.call("faulty", {}))
    assert result == DirectResult(error="GeneratorExit", code="tool_failed")


async def test_a_hook_that_raises_generator_exit_at_exec_is_a_failed_result(
    runtime: Runtime,
) -> None:
    hooks = [("before_tool_call", failing_first("generator_exit"))]
    run = runtime.run(tools=[echo_tool()], hooks=hooks)
    failed = await outcome_of(run.exec("return 1"))
    assert isinstance(failed, Failed)
    assert failed.reason == "call_denied"


@pytest.mark.parametrize("place", ["tool", "hook"])
async def test_a_generator_exit_from_a_thread_costs_its_own_call(
    cache_directory: Path, place: str
) -> None:
    """Thrown into a task by a future, it closes every coroutine of the task from inside out."""

    def refuse(event: BeforeToolCall) -> None:
        if event.tool_name == "faulty":
            raise GeneratorExit

    tools = {"tool": TOOLS_IN_THREADS["generator_exit"], "hook": echo_tool("faulty")}
    hooks = {"tool": (), "hook": [("before_tool_call", refuse)]}

    async def in_a_runtime_of_its_own() -> object:
        async with Runtime(workers=1, cache_directory=cache_directory) as runtime:
            run = runtime.run(tools=[tools[place], echo_tool()], hooks=hooks[place])
            return value_of(await run.exec(FAULTY_AND_ON))

    found = await outcome_of(in_a_runtime_of_its_own())
    assert isinstance(found, list)
    assert found[1] == {"n": 1}


# Tasks that somebody else cancels.


async def cancel_own_task() -> None:
    """What a library does that takes the task for its own."""
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await anyio.lowlevel.checkpoint()


async def test_a_tool_that_cancels_its_own_task_costs_its_own_call(runtime: Runtime) -> None:
    async def execute(given: dict[str, Any], call: ToolCall) -> object:
        await cancel_own_task()
        return "went on"

    run = runtime.run(tools=[Tool(name="faulty", execute=execute), echo_tool()])
    async with beside_another_session(runtime):
        assert value_of(await run.exec(FAULTY_AND_ON)) == ["it was cancelled", {"n": 1}]
        await expect_next_call_to_work(run)


async def test_a_hook_that_cancels_its_own_task_costs_its_own_call(runtime: Runtime) -> None:
    async def cancel(event: BeforeToolCall) -> None:
        if event.tool_name == "faulty":
            await cancel_own_task()

    run = runtime.run(
        tools=[echo_tool("faulty"), echo_tool()], hooks=[("before_tool_call", cancel)]
    )
    async with beside_another_session(runtime):
        assert value_of(await run.exec(FAULTY_AND_ON)) == ["it was cancelled", {"n": 1}]
        await expect_next_call_to_work(run)


async def turns_of_the_loop() -> None:
    """More than anything here takes that does not wait for something."""
    for _ in range(20):
        await anyio.lowlevel.checkpoint()


class KeptTask:
    """A tool that remembers the task it was called in, as some libraries do."""

    def __init__(self) -> None:
        self._tasks: list[asyncio.Task[Any]] = []
        self.tool = Tool(name="keep", execute=self._execute)

    async def _execute(self, given: dict[str, Any], call: ToolCall) -> object:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.append(task)
        return "kept"

    def cancel(self) -> None:
        (task,) = self._tasks
        task.cancel()


async def test_a_task_that_is_cancelled_after_its_call_costs_nobody_else(
    runtime: Runtime,
) -> None:
    """Its call is over, and it waits for the next when somebody cancels it."""
    kept, held = KeptTask(), HeldTool()
    run = runtime.run(tools=[kept.tool, held.tool, echo_tool()])
    is_over = Recorded(run, "call.ended", result="kept")
    results: list[CodeModeResult] = []

    async def program() -> None:
        # The held call first: the task of the other is then free, and waits for more.
        results.append(await run.exec("return Promise.all([tools.held(), tools.keep()])"))

    async with beside_another_session(runtime):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(program)
            await is_over.wait()
            await held.wait_for_calls()
            kept.cancel()
            await anyio.lowlevel.checkpoint()
            held.answer("fine")
        assert value_of(results[0]) == ["fine", "kept"]
        await expect_next_call_to_work(run)


async def test_a_task_that_is_cancelled_after_its_call_does_not_take_the_next_along() -> None:
    served: list[asyncio.Task[object] | None] = []

    async def handler(request: HostRequest) -> JsonValue:
        served.append(asyncio.current_task())
        return None

    def request(request_id: int) -> HostRequest:
        return HostRequest(id=request_id, method="ask", payload=None, cell_id=CellId("run_1"))

    async with anyio.create_task_group() as tasks:
        requests = HostRequests(
            handler, tasks=tasks, max_concurrent=2, max_bytes=1000, wake=lambda: None
        )
        for request_id in (1, 2):
            requests.add(request(request_id))
            await turns_of_the_loop()
            task = served[-1]
            assert task is not None
            task.cancel()
            await turns_of_the_loop()
            assert len(served) == request_id
        requests.wake_idle_server()


async def test_a_task_that_is_cancelled_in_a_later_call_costs_that_call(runtime: Runtime) -> None:
    kept, held = KeptTask(), HeldTool()
    run = runtime.run(tools=[kept.tool, held.tool, echo_tool()])
    results: list[CodeModeResult] = []

    async def program() -> None:
        code = f"""
            await tools.keep();
            return [await tools.held(){CAUGHT}, await tools.echo({{n: 1}})]
        """
        results.append(await run.exec(code))

    async with beside_another_session(runtime):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(program)
            await held.wait_for_calls()
            kept.cancel()
        assert value_of(results[0]) == ["it was cancelled", {"n": 1}]
        await expect_next_call_to_work(run)


# The caller's own cancellation is not swallowed.


class Stuck:
    """Never comes back, wherever it is asked; says when it was."""

    def __init__(self) -> None:
        self.was_asked = anyio.Event()

    async def hook(self, event: BeforeToolCall) -> object:
        return await self._stick()

    async def approver(self, request: ApprovalRequest) -> Any:
        return await self._stick()

    async def execute(self, given: dict[str, Any], call: ToolCall) -> object:
        return await self._stick()

    async def _stick(self) -> object:
        self.was_asked.set()
        await anyio.sleep_forever()


async def ask_always(event: BeforeToolCall) -> object:
    return AskApproval("always")


def stuck_run(runtime: Runtime, stuck: Stuck, place: str) -> CodeModeRun:
    hooks: dict[str, Any] = {"hook": stuck.hook, "approver": ask_always}
    return runtime.run(
        tools=[Tool(name="slow", execute=stuck.execute, catalog_mode="direct-only"), echo_tool()],
        hooks=[("before_tool_call", hooks[place])] if place in hooks else [],
        approvals=stuck.approver,
    )


async def expect_cancellation_to_end(call: Callable[[], Awaitable[object]], stuck: Stuck) -> None:
    """Cancelled by asyncio's own means, as `asyncio.wait_for` does it; anyio is not told."""
    called: list[asyncio.Task[object] | None] = []
    results: list[object] = []

    async def caller() -> None:
        called.append(asyncio.current_task())
        with pytest.raises(asyncio.CancelledError):
            results.append(await call())

    with anyio.fail_after(BOUND_SECONDS):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(caller)
            await stuck.was_asked.wait()
            (task,) = called
            assert task is not None
            task.cancel("the caller has gone")
    assert results == []


@pytest.mark.parametrize("place", ["tool", "hook", "approver"])
async def test_cancelling_the_task_of_a_direct_call_ends_the_call(
    runtime: Runtime, place: str
) -> None:
    stuck = Stuck()
    run = stuck_run(runtime, stuck, place)
    await expect_cancellation_to_end(lambda: run.call("slow", {}), stuck)
    (ended,) = events_of(run, "call.ended")
    assert (ended.data["outcome"], ended.data["errorCode"]) == ("failed", "aborted")


@pytest.mark.parametrize("place", ["hook", "approver"])
async def test_cancelling_the_task_of_an_exec_that_is_not_permitted_yet_ends_it(
    runtime: Runtime, place: str
) -> None:
    stuck = Stuck()
    run = stuck_run(runtime, stuck, place)
    await expect_cancellation_to_end(lambda: run.exec("return 1"), stuck)
    assert events_of(run, "cell.started") == []


async def test_cancelling_the_task_of_an_exec_ends_its_cell_and_the_call_inside(
    runtime: Runtime,
) -> None:
    stuck = Stuck()
    run = runtime.run(tools=[Tool(name="slow", execute=stuck.execute), echo_tool()])
    call_ended = Recorded(run, "call.ended", errorCode="aborted")
    await expect_cancellation_to_end(lambda: run.exec("return tools.slow()"), stuck)
    await call_ended.wait()
    (ended,) = events_of(run, "cell.ended")
    assert ended.data["status"] == "aborted"
    await expect_next_call_to_work(run)


# Who listens for an abort.


def test_a_listener_that_raises_does_not_keep_others_from_hearing_of_an_abort() -> None:
    heard: list[str] = []

    def panic() -> None:
        raise Panic("lost")

    controller = AbortController()
    controller.signal.on_abort(panic)
    controller.signal.on_abort(lambda: heard.append("second"))
    controller.abort()
    assert heard == ["second"]


# What a tool writes into what it was given, and into what it gave.


async def test_a_tool_that_writes_into_its_input_changes_nobody_else_s(runtime: Runtime) -> None:
    seen: list[object] = []

    async def change(event: BeforeToolCall) -> object:
        if event.tool_name != "liar":
            return None
        return ChangeInput({**event.input, "checked": {"by": "hook"}})

    async def observe(event: AfterToolCall) -> None:
        if event.tool_name == "liar":
            seen.append(event.input)

    async def lie(given: dict[str, Any], call: ToolCall) -> object:
        given["checked"]["by"] = "nobody"
        del given["real"]
        return None

    hooks = [("before_tool_call", change), ("after_tool_call", observe)]
    run = runtime.run(tools=[Tool(name="liar", execute=lie)], hooks=hooks)
    value_of(await run.exec("return tools.liar({real: [1]})"))
    true_input = {"real": [1], "checked": {"by": "hook"}}
    assert seen == [true_input]
    assert [event.data["input"] for event in events_of(run, "call.changed")] == [true_input]
    started = [event for event in events_of(run, "call.started") if event.parent_id]
    assert [event.data["input"] for event in started] == [{"real": [1]}]


async def test_a_tool_that_keeps_its_result_cannot_change_it_afterwards(runtime: Runtime) -> None:
    kept: dict[str, Any] = {"state": {"is": "clean"}}
    seen: list[object] = []

    async def execute(given: dict[str, Any], call: ToolCall) -> object:
        return kept

    async def while_hooks_look(event: AfterToolCall) -> None:
        kept["state"]["is"] = "dirty"
        await anyio.lowlevel.checkpoint()

    async def observe(event: AfterToolCall) -> None:
        if event.tool_name == "liar":
            seen.append(event.result)

    hooks = [("after_tool_call", while_hooks_look), ("after_tool_call", observe)]
    run = runtime.run(tools=[Tool(name="liar", execute=execute)], hooks=hooks)
    clean = {"state": {"is": "clean"}}
    assert value_of(await run.exec("return tools.liar()")) == clean
    assert kept == {"state": {"is": "dirty"}}
    assert seen == [clean]
    ended = [event for event in events_of(run, "call.ended") if event.parent_id]
    assert [event.data["result"] for event in ended] == [clean]
