"""Runs that wait: who may resume them, how many there may be, for how long, and how they end."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import anyio
import pytest

from nacre import CodeModeRun, RunContext, Runtime, Waiting
from tests.code_mode.outcomes import Recorded, events_of, failure_of, value_of, waiting_of
from tests.code_mode.tools import HeldTool, echo_tool
from tests.contract.requirements import requirement

YIELD = "await yield_control(); return 'resumed'"
OWNER = RunContext(
    agent_id="main", session_id="s1", session_key="agent:main:main", run_id="r1", sender="ann"
)

UNAVAILABLE = "code mode run is unavailable or expired."
OTHER_SESSION = "code mode run belongs to a different session."
OTHER_RUN = "code mode run belongs to a different agent run."
TOO_MANY = "too many suspended code mode runs."


async def suspended(run: CodeModeRun) -> Waiting:
    return waiting_of(await run.exec(YIELD))


async def refusal(run: CodeModeRun, run_id: str) -> tuple[str, str]:
    """The message and the reason of a `wait` that the contract has fail as invalid input."""
    failed = failure_of(await run.wait(run_id))
    assert failed.code == "invalid_input"
    return failed.error, failed.reason


# Who may resume.


@requirement("validation:unusable-run-ids-fail")
async def test_an_unknown_run_is_unavailable(runtime: Runtime) -> None:
    run = runtime.run(tools=[echo_tool()])
    assert await refusal(run, "run_00000000000000000000000000000000") == (
        UNAVAILABLE,
        "run_unavailable",
    )


@requirement("validation:unusable-run-ids-fail")
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"session_id": "s2"}, OTHER_SESSION),
        ({"session_key": "agent:main:other"}, OTHER_SESSION),
        ({"agent_id": "helper"}, OTHER_SESSION),
        ({"sender": "bob"}, OTHER_SESSION),
        ({"run_id": "r2"}, OTHER_RUN),
    ],
)
async def test_nobody_but_its_owner_resumes_a_run_and_a_try_does_no_harm(
    runtime: Runtime, change: dict[str, Any], message: str
) -> None:
    owner = runtime.run(tools=[echo_tool()], context=OWNER)
    stranger = runtime.run(tools=[echo_tool()], context=replace(OWNER, **change))
    waiting = await suspended(owner)
    assert await refusal(stranger, waiting.cell_id) == (message, "run_scope_mismatch")
    assert [cell.state for cell in owner.cells()] == ["waiting"]
    assert value_of(await owner.wait(waiting.cell_id)) == "resumed"


async def test_another_object_for_the_same_run_may_resume_it(runtime: Runtime) -> None:
    waiting = await suspended(runtime.run(tools=[echo_tool()], context=OWNER))
    again = runtime.run(tools=[echo_tool()], context=OWNER)
    assert value_of(await again.wait(waiting.cell_id)) == "resumed"


@requirement("validation:unusable-run-ids-fail")
async def test_a_run_is_resumed_by_one_wait_at_a_time(runtime: Runtime) -> None:
    held = HeldTool()
    run = runtime.run(tools=[held.tool])
    waiting = waiting_of(
        await run.exec("const call = tools.held({}); await yield_control(); return call")
    )
    resumed = Recorded(run, "cell.resumed")
    results: list[Any] = []

    async def first_wait() -> None:
        results.append(await run.wait(waiting.cell_id))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(first_wait)
        await resumed.wait()
        message, reason = await refusal(run, waiting.cell_id)
        assert message.startswith("code mode run is already being resumed")
        assert reason == "run_already_resuming"
        held.answer("once")
    assert value_of(results[0]) == "once"


@requirement("validation:unusable-run-ids-fail")
async def test_a_run_that_is_over_cannot_be_resumed(runtime: Runtime) -> None:
    run = runtime.run(tools=[echo_tool()])
    waiting = await suspended(run)
    value_of(await run.wait(waiting.cell_id))
    assert await refusal(run, waiting.cell_id) == (UNAVAILABLE, "run_unavailable")
    failing = waiting_of(await run.exec("await yield_control(); throw Error('no')"))
    assert failure_of(await run.wait(failing.cell_id)).reason == "guest_error"
    assert await refusal(run, failing.cell_id) == (UNAVAILABLE, "run_unavailable")


# How long.


@requirement("validation:unusable-run-ids-fail", "security:snapshots-dropped")
async def test_a_run_that_waits_too_long_expires_with_its_calls() -> None:
    held = HeldTool()
    async with Runtime({"snapshotTtlSeconds": 1}, workers=1) as runtime:
        run = runtime.run(tools=[held.tool], context=OWNER)
        stranger = runtime.run(tools=[held.tool], context=replace(OWNER, session_id="s2"))
        expired = Recorded(run, "cell.ended", status="expired")
        waiting = waiting_of(await run.exec("tools.held({}); await yield_control(); return 1"))
        await expired.wait()
        assert held.calls[0][1].abort.reason == "the suspended run expired"
        assert await refusal(run, waiting.cell_id) == (UNAVAILABLE, "snapshot_expired")
        # Whose it was is still nobody else's business.
        assert await refusal(stranger, waiting.cell_id) == (OTHER_SESSION, "run_scope_mismatch")
        assert runtime.cells() == []
        later = await run.exec("return 1")
    assert later.telemetry.snapshots == {"taken": 1, "expired": 1}


# How many.


@pytest.fixture
def contexts() -> Iterator[RunContext]:
    """Each of another session."""
    return (RunContext(session_id=f"s{number}") for number in range(100))


async def test_no_more_runs_wait_than_the_runtime_keeps(contexts: Iterator[RunContext]) -> None:
    async with Runtime(workers=1, max_suspended_cells=2) as runtime:
        runs = [runtime.run(tools=[echo_tool()], context=next(contexts)) for _ in range(3)]
        first, second = await suspended(runs[0]), await suspended(runs[1])
        failed = failure_of(await runs[2].exec(f"text('said'); {YIELD}"))
        assert (failed.error, failed.reason, failed.code) == (
            TOO_MANY,
            "too_many_suspended_runs",
            "invalid_input",
        )
        assert failed.telemetry.limit_failures == {"too_many_suspended_runs": 1}
        assert failed.telemetry.snapshots == {"taken": 1, "dropped": 1}
        # What it said before is not lost, and nothing else of it is left.
        assert failed.to_json()["output"] == [{"type": "text", "text": "said"}]
        assert runs[2].cells() == []
        assert value_of(await runs[0].wait(first.cell_id)) == "resumed"
        third = await suspended(runs[2])
        assert value_of(await runs[1].wait(second.cell_id)) == "resumed"
        assert value_of(await runs[2].wait(third.cell_id)) == "resumed"


async def test_one_session_cannot_take_all_the_room(contexts: Iterator[RunContext]) -> None:
    async with Runtime(workers=1, max_suspended_cells=4) as runtime:
        greedy = runtime.run(tools=[echo_tool()], context=next(contexts))
        modest = runtime.run(tools=[echo_tool()], context=next(contexts))
        for _ in range(3):
            await suspended(greedy)
        assert failure_of(await greedy.exec(YIELD)).error == TOO_MANY
        assert value_of(await modest.wait((await suspended(modest)).cell_id)) == "resumed"


async def test_a_run_that_is_refused_room_gives_its_calls_up() -> None:
    held = HeldTool()
    async with Runtime(workers=1, max_suspended_cells=1) as runtime:
        await suspended(runtime.run(tools=[echo_tool()]))
        run = runtime.run(tools=[held.tool])
        given_up = Recorded(run, "call.ended", outcome="failed", errorCode="aborted")
        code = "const call = tools.held({}); await yield_control(); return call"
        assert failure_of(await run.exec(code)).error == TOO_MANY
        if held.calls:
            await given_up.wait()
            assert held.calls[0][1].abort.reason == TOO_MANY


async def test_a_run_that_waits_again_keeps_its_place() -> None:
    async with Runtime(workers=1, max_suspended_cells=1) as runtime:
        run = runtime.run(tools=[echo_tool()])
        waiting = waiting_of(await run.exec(f"await yield_control(); {YIELD}"))
        again = waiting_of(await run.wait(waiting.cell_id))
        assert again.cell_id == waiting.cell_id
        assert value_of(await run.wait(again.cell_id)) == "resumed"


# Looking after them.


async def test_cells_that_run_or_wait_are_listed_oldest_first(runtime: Runtime) -> None:
    held = HeldTool()
    first = runtime.run(tools=[held.tool], context=OWNER)
    second = runtime.run(tools=[echo_tool()])
    waiting = waiting_of(await first.exec("tools.held({}); await yield_control(); return 1"))
    await suspended(second)
    older, newer = runtime.cells()
    assert (older.cell_id, older.state, older.context) == (waiting.cell_id, "waiting", OWNER)
    assert [call.tool_id for call in older.pending] == ["openclaw:core:held"]
    assert older.snapshot_bytes > 0
    assert newer.context == second.context
    assert [cell.cell_id for cell in first.cells()] == [waiting.cell_id]


@requirement("validation:unusable-run-ids-fail", "security:snapshots-dropped")
async def test_one_cell_can_be_aborted_and_the_run_goes_on(runtime: Runtime) -> None:
    run = runtime.run(tools=[echo_tool()])
    first, second = await suspended(run), await suspended(run)
    assert await run.abort_cell(first.cell_id, "not needed")
    assert not await run.abort_cell(first.cell_id)
    assert await refusal(run, first.cell_id) == (UNAVAILABLE, "run_unavailable")
    (ended,) = events_of(run, "cell.ended")
    assert (ended.data["status"], ended.data["reason"]) == ("aborted", "not needed")
    assert value_of(await run.wait(second.cell_id)) == "resumed"


async def test_a_runtime_aborts_a_cell_of_any_run(runtime: Runtime) -> None:
    waiting = [await suspended(runtime.run(tools=[echo_tool()], context=OWNER)) for _ in range(2)]
    assert not await runtime.abort_cell("run_unknown")
    # Kept by the suspended cell itself, not by whoever made the run.
    kept = {cell.cell_id for cell in runtime.cells()}
    assert kept == {each.cell_id for each in waiting}
    assert await runtime.abort_cell(waiting[0].cell_id)
    assert [cell.cell_id for cell in runtime.cells()] == [waiting[1].cell_id]


async def test_a_cell_that_is_being_resumed_can_be_aborted(runtime: Runtime) -> None:
    held = HeldTool()
    run = runtime.run(tools=[held.tool])
    waiting = waiting_of(
        await run.exec("const call = tools.held({}); await yield_control(); return call")
    )
    resumed = Recorded(run, "cell.resumed")
    results: list[Any] = []

    async def wait() -> None:
        results.append(await run.wait(waiting.cell_id))

    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait)
            await resumed.wait()
            assert await run.abort_cell(waiting.cell_id, "changed my mind")
    failed = failure_of(results[0])
    assert (failed.error, failed.reason) == ("changed my mind", "aborted")
    assert await refusal(run, waiting.cell_id) == (UNAVAILABLE, "run_unavailable")


# Cells that a person resumes.


async def test_a_person_resumes_a_cell_and_the_next_wait_returns_its_result(
    runtime: Runtime,
) -> None:
    run = runtime.run(tools=[echo_tool()], context=OWNER)
    waiting = waiting_of(await run.exec("await yield_control(); text('on'); return 1"))
    assert [cell.can_be_resumed for cell in run.cells()] == [True]
    ended = Recorded(run, "cell.ended")
    assert runtime.resume_cell(waiting.cell_id)
    await ended.wait()
    assert not runtime.resume_cell(waiting.cell_id)
    result = await run.wait(waiting.cell_id)
    assert value_of(result) == 1
    assert [item.to_json() for item in result.output] == [{"type": "text", "text": "on"}]
    assert [it.data["cause"] for it in events_of(run, "cell.resumed")] == ["person"]
    assert await refusal(run, waiting.cell_id) == (UNAVAILABLE, "run_unavailable")


async def test_a_wait_joins_the_leg_of_a_person_and_sees_what_it_wrote(runtime: Runtime) -> None:
    held = HeldTool()
    run = runtime.run(tools=[held.tool], context=OWNER)
    code = "await yield_control(); text('a'); text(await tools.held({})); await yield_control();"
    waiting = waiting_of(await run.exec(f"{code} text('c'); return 1"))
    assert runtime.resume_cell(waiting.cell_id)
    assert not runtime.resume_cell(waiting.cell_id)
    results: list[Any] = []

    async def wait() -> None:
        results.append(await run.wait(waiting.cell_id))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wait)
        await held.wait_for_calls()
        assert not runtime.resume_cell(waiting.cell_id)
        held.answer("b")
    again = waiting_of(results[0])
    assert [item.to_json()["text"] for item in again.output] == ["a", "b"]
    result = await run.wait(waiting.cell_id)
    assert value_of(result) == 1
    assert [item.to_json()["text"] for item in result.output] == ["c"]


async def test_a_wait_continues_a_cell_that_waits_again_with_the_output_of_all_legs(
    runtime: Runtime,
) -> None:
    run = runtime.run(tools=[echo_tool()], context=OWNER)
    code = "for (const it of ['a', 'b', 'c']) { await yield_control(); text(it) } return 1"
    waiting = waiting_of(await run.exec(code))
    for _ in range(2):
        suspension = Recorded(run, "cell.suspended")
        assert runtime.resume_cell(waiting.cell_id)
        await suspension.wait()
    result = await run.wait(waiting.cell_id)
    assert value_of(result) == 1
    assert [item.to_json()["text"] for item in result.output] == ["a", "b", "c"]


async def test_a_cell_that_a_person_resumed_ends_with_its_run(runtime: Runtime) -> None:
    held = HeldTool()
    run = runtime.run(tools=[held.tool], context=OWNER)
    waiting = waiting_of(await run.exec("await yield_control(); return tools.held({})"))
    assert runtime.resume_cell(waiting.cell_id)
    await held.wait_for_calls()
    await run.abort("the turn has ended")
    assert runtime.cells() == []
    failed = failure_of(await run.wait(waiting.cell_id))
    assert failed.reason == "aborted"
