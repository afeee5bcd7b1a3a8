"""Runs between two requests: who may answer them, and for how long."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio

from nacre.agent import AgentRun, ClientTool, RunResult
from nacre.gateway.openai.run_starter import WaitingRun, WaitingRuns
from nacre.run_context import AbortSignal, RunContext
from nacre.tools.definition import ToolCall


@asynccontextmanager
async def asking_run(number: int = 0) -> AsyncGenerator[AgentRun]:
    """A run without a turn behind it, whose call `a` is open."""
    run = AgentRun(id=f"run_{number}", session_id="s", agent_id="main")
    run.begin({})
    (tool,) = run.client_calls.as_tools([ClientTool(name="f")])
    call = ToolCall(
        id="a",
        parent_id="",
        context=RunContext(),
        abort=AbortSignal(),
        update=lambda _progress: None,
    )

    async def called() -> None:
        await tool.execute({}, call)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(called)
        with anyio.fail_after(30):
            async for event in run.events.follow():
                if event.kind == "client_call.requested":
                    break
        yield run
        tasks.cancel_scope.cancel()


def add_waiting(runs: WaitingRuns, run: AgentRun) -> WaitingRun:
    return runs.add(run, run.pending_client_calls, after=0, answer_number=1)


async def test_a_run_is_aborted_when_its_time_is_up() -> None:
    runs = WaitingRuns(max_runs=lambda: 8, seconds=0.01)
    async with asking_run() as run:
        add_waiting(runs, run)
        with anyio.fail_after(30):
            await run.abort_signal.wait()
    assert (
        run.abort_signal.reason == "the client did not send the results of its tool calls in time"
    )
    assert len(runs) == 0


async def test_a_run_is_aborted_before_its_calls_expire_by_themselves() -> None:
    runs = WaitingRuns(max_runs=lambda: 8)
    async with asking_run() as run:
        run.client_calls.expiry_seconds = 1
        add_waiting(runs, run)
        with anyio.fail_after(30):
            await run.abort_signal.wait()
        assert run.pending_client_calls


async def test_a_run_that_was_taken_is_left_alone() -> None:
    runs = WaitingRuns(max_runs=lambda: 1)
    async with asking_run(1) as first, asking_run(2) as second:
        runs.remove(add_waiting(runs, first))
        add_waiting(runs, second)
        assert not first.abort_signal.is_aborted
        assert len(runs) == 1


async def test_a_run_that_somebody_else_has_answered_is_left_alone() -> None:
    runs = WaitingRuns(max_runs=lambda: 1)
    async with asking_run(1) as first, asking_run(2) as second:
        waiting = add_waiting(runs, first)
        first.deliver("a", "by another door")
        assert runs.find({waiting.calls[0].id: "x"}) is None
        add_waiting(runs, second)
        assert not first.abort_signal.is_aborted


async def test_the_oldest_makes_room_also_where_there_should_be_no_room_at_all() -> None:
    runs = WaitingRuns(max_runs=lambda: 0)
    async with asking_run(1) as first, asking_run(2) as second:
        add_waiting(runs, first)
        add_waiting(runs, second)
        assert (first.abort_signal.is_aborted, second.abort_signal.is_aborted) == (True, False)


async def test_a_run_that_has_ended_is_not_found() -> None:
    runs = WaitingRuns(max_runs=lambda: 8)
    async with asking_run() as run:
        waiting = add_waiting(runs, run)
        assert runs.find({waiting.calls[0].id: "x"}) is waiting
        run.end("aborted", RunResult())
        assert runs.find({waiting.calls[0].id: "x"}) is None


async def test_the_same_call_is_shown_by_another_id_each_time() -> None:
    runs = WaitingRuns(max_runs=lambda: 8)
    async with asking_run() as run:
        waiting = add_waiting(runs, run)
        runs.remove(waiting)
        again = add_waiting(runs, run)
        assert waiting.calls[0].id != again.calls[0].id


def test_nothing_is_found_for_ids_that_nobody_gave() -> None:
    assert WaitingRuns(max_runs=lambda: 8).find({"call_1": "x", "": "y"}) is None
