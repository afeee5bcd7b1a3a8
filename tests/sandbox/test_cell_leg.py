"""The legs of a cell: yielding, waiting for calls, timers and people, and the time budget."""

from types import SimpleNamespace
from typing import cast

import anyio
import pytest

from nacre.json_types import JsonValue
from nacre.sandbox import (
    Completed,
    Failed,
    HostRequest,
    Limits,
    Sandbox,
    TextOutput,
    Waiting,
)
from nacre.sandbox.cell_leg import LegBudget
from tests.contract.requirements import requirement
from tests.sandbox.cell_results import failure_of
from tests.sandbox.conftest import HeldHandler


def test_waiting_for_people_leaves_the_budget_as_it_is() -> None:
    budget = LegBudget(10, person_seconds=10)
    budget.charge_wait(9, is_for_person=True)
    assert (budget.seconds_left, budget.is_used_up) == (10, False)
    budget.charge_wait(1, is_for_person=True)
    assert budget.is_used_up


def test_waiting_for_people_has_a_budget_of_its_own() -> None:
    budget = LegBudget(10, person_seconds=0.5)
    assert budget.seconds_for_wait(is_for_person=True) == 0.5
    assert budget.seconds_for_wait(is_for_person=False) == 10
    assert LegBudget(0.1, person_seconds=0.5).seconds_for_wait(is_for_person=True) == 0.1


async def test_a_burst_that_fails_is_charged_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    clock = SimpleNamespace(monotonic=lambda: now)
    monkeypatch.setattr("nacre.sandbox.cell_leg.time", clock)

    async def burst() -> None:
        nonlocal now
        now += 3
        raise LookupError

    budget = LegBudget(10, person_seconds=0.5)
    with pytest.raises(LookupError):
        await budget.charge(burst())
    assert budget.seconds_left == 7


@requirement("validation:wait-resumes")
async def test_a_yield_suspends_the_program_and_resume_continues_it(sandbox: Sandbox) -> None:
    cell = sandbox.cell(
        "let n = 1; text('one'); await yield_control('look'); n++; text('two'); return n"
    )
    first = await cell.run()
    assert isinstance(first, Waiting)
    assert (first.reason, first.pending, first.output) == (
        "yield",
        (),
        (TextOutput(text="one"),),
    )
    assert first.cell_id == cell.cell_id
    assert cell.snapshot is not None
    assert 0 < first.usage.snapshot_bytes == len(cell.snapshot) < 64 * 1024
    second = await cell.resume()
    assert isinstance(second, Completed)
    # Each result carries the output since the one before.
    assert (second.value, second.output) == (2, (TextOutput(text="two"),))
    assert cell.snapshot is None


async def test_the_reason_of_a_yield_is_told(sandbox: Sandbox) -> None:
    cell = sandbox.cell("await yield_control({ask: 'which one?'}); return 1")
    result = await cell.run()
    assert isinstance(result, Waiting)
    assert result.yield_reason == '{"ask":"which one?"}'
    await cell.abort()


async def test_two_yields_at_once_are_both_resumed(sandbox: Sandbox) -> None:
    cell = sandbox.cell("await Promise.all([yield_control(), yield_control()]); return 'both'")
    assert isinstance(await cell.run(), Waiting)
    with anyio.fail_after(50):
        result = await cell.resume()
    assert isinstance(result, Completed)
    assert result.value == "both"


async def test_calls_go_on_while_the_cell_waits_and_are_delivered_by_the_next_leg(
    sandbox: Sandbox, held: HeldHandler
) -> None:
    cell = sandbox.cell(
        "const call1 = call('x'); await yield_control(); return await call1",
        functions=("call",),
        handler=held,
    )
    first = await cell.run()
    assert isinstance(first, Waiting)
    assert [(request.id, request.method) for request in first.pending] == [(1, "call")]
    await held.received(1)
    held.answer(1, "late")
    await anyio.wait_all_tasks_blocked()
    second = await cell.resume()
    assert isinstance(second, Completed)
    assert (second.value, len(held.requests)) == ("late", 1)


async def test_the_budget_ending_while_a_call_is_pending_makes_the_cell_wait(
    sandbox: Sandbox, held: HeldHandler
) -> None:
    cell = sandbox.cell(
        "return await call()",
        limits=Limits(timeout_ms=100),
        functions=("call",),
        handler=held,
    )
    first = await cell.run()
    assert isinstance(first, Waiting)
    assert (first.reason, len(first.pending)) == ("pending_tools", 1)
    # A resume with still no answer waits again, as it was.
    again = await cell.resume()
    assert isinstance(again, Waiting)
    held.answer(1, 7)
    last = await cell.resume()
    assert isinstance(last, Completed)
    assert last.value == 7


async def test_a_timer_longer_than_the_budget_makes_the_cell_wait_and_fires_later(
    sandbox: Sandbox,
) -> None:
    cell = sandbox.cell(
        "await new Promise((r) => setTimeout(r, 250)); return 'fired'",
        limits=Limits(timeout_ms=100),
    )
    result = await cell.run()
    assert isinstance(result, Waiting)
    with anyio.fail_after(50):
        while isinstance(result, Waiting):
            result = await cell.resume()
    assert isinstance(result, Completed)
    assert result.value == "fired"


async def test_a_rejection_that_nobody_handles_fails_the_cell_after_a_wait_too(
    sandbox: Sandbox,
) -> None:
    cell = sandbox.cell("Promise.reject(new Error('lost')); await yield_control(); return 1")
    assert isinstance(await cell.run(), Waiting)
    result = await cell.resume()
    assert isinstance(result, Failed)
    assert (result.reason, result.error.splitlines()[0]) == ("unhandled_rejection", "Error: lost")


async def test_a_promise_that_nothing_can_settle_fails_and_says_so(sandbox: Sandbox) -> None:
    result = await failure_of(sandbox, "await new Promise(() => {})")
    assert (result.code, result.reason) == ("internal_error", "never_settles")
    assert "can never settle" in result.error


async def test_an_error_in_a_timer_fails_the_cell(sandbox: Sandbox) -> None:
    code = "setTimeout(() => { throw new Error('in timer') }, 1); await new Promise(() => {})"
    result = await failure_of(sandbox, code)
    assert (result.reason, result.error.splitlines()[0]) == ("guest_error", "Error: in timer")


async def test_a_cell_waits_soon_when_only_a_person_can_move_it(sandbox: Sandbox) -> None:
    answered = anyio.Event()

    async def handler(request: HostRequest) -> JsonValue:
        with request.asking_person():
            await answered.wait()
        return "allowed"

    # A budget that no test waits for: `waiting` comes because a person is asked.
    cell = sandbox.cell(
        "return await ask()",
        functions=("ask",),
        handler=handler,
        limits=Limits(timeout_ms=60_000),
    )
    with anyio.fail_after(50):
        waiting = await cell.run()
        assert isinstance(waiting, Waiting)
        assert (waiting.reason, [each.method for each in waiting.pending]) == (
            "pending_tools",
            ["ask"],
        )
        results: list[object] = []

        async def resume() -> None:
            results.append(await cell.resume())

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(resume)
            await anyio.wait_all_tasks_blocked()
            # Resumed, it holds the line for the person.
            assert results == []
            answered.set()
        assert [each.value for each in results if isinstance(each, Completed)] == ["allowed"]


async def test_the_time_of_a_person_is_not_the_programs(sandbox: Sandbox) -> None:
    answers = [anyio.Event(), anyio.Event()]

    async def handler(request: HostRequest) -> JsonValue:
        with request.asking_person():
            await answers[cast("int", request.payload)].wait()
        return request.payload

    cell = sandbox.cell(
        "return [await ask(0), await ask(1)]",
        functions=("ask",),
        handler=handler,
        limits=Limits(timeout_ms=100),
    )
    result = await cell.run()
    # Each leg waits for the person as long as the whole budget, and the program goes on after it.
    for answer in answers:
        assert isinstance(result, Waiting)
        answer.set()
        result = await cell.resume()
    assert isinstance(result, Completed)
    assert result.value == [0, 1]


async def test_a_call_beside_a_person_uses_the_budget(sandbox: Sandbox, held: HeldHandler) -> None:
    async def handler(request: HostRequest) -> JsonValue:
        if request.method == "ask":
            with request.asking_person():
                return await held(request)
        return await held(request)

    cell = sandbox.cell(
        "const both = [ask(), slow()]; const quick = await both[1]; return [quick, await both[0]]",
        functions=("ask", "slow"),
        handler=handler,
    )
    results: list[object] = []

    async def run() -> None:
        results.append(await cell.run())

    with anyio.fail_after(50):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
            await held.received(2)
            held.answer(2, "quick")
        # The quick one was taken in; then only the person was left.
        assert [type(each) for each in results] == [Waiting]
        held.answer(1, "asked")
        result = await cell.resume()
    assert isinstance(result, Completed)
    assert result.value == ["quick", "asked"]
