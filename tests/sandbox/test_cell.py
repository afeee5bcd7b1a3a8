"""Cells through the public door: legs, requests, timers, waiting, abort."""

import asyncio
from dataclasses import replace
from typing import cast

import anyio
import pytest

from nacre.errors import CellStateError, HostRequestError
from nacre.json_types import JsonValue
from nacre.sandbox import (
    CellState,
    Completed,
    Failed,
    HostRequest,
    JsonOutput,
    Limits,
    Sandbox,
    TextOutput,
    Waiting,
)
from nacre.sandbox.cell_vm import CellVm
from tests.contract.requirements import requirement
from tests.sandbox.conftest import HeldHandler


async def echo(request: HostRequest) -> JsonValue:
    return request.payload


async def value_of(sandbox: Sandbox, code: str) -> JsonValue:
    with anyio.fail_after(50):
        result = await sandbox.cell(code, functions=("echo",), handler=echo).run()
    assert isinstance(result, Completed), result
    return result.value


async def failure_of(sandbox: Sandbox, code: str, limits: Limits | None = None) -> Failed:
    with anyio.fail_after(50):
        result = await sandbox.cell(code, limits=limits, functions=("echo",), handler=echo).run()
    assert isinstance(result, Failed), result
    return result


async def test_the_returned_value_is_the_value_of_the_cell(sandbox: Sandbox) -> None:
    assert await value_of(sandbox, "return {sum: 1 + 1, list: [1, null, 'x']}") == {
        "sum": 2,
        "list": [1, None, "x"],
    }


async def test_a_program_without_return_has_the_value_null(sandbox: Sandbox) -> None:
    assert await value_of(sandbox, "1 + 1") is None


async def test_output_is_kept_in_the_order_of_the_calls(sandbox: Sandbox) -> None:
    code = "text('a'); json({b: [1]}); console.log('c', {d: 2n}); console.error('e')"
    result = await sandbox.cell(code).run()
    assert result.output == (
        TextOutput(text="a"),
        JsonOutput(value={"b": [1]}),
        TextOutput(text='c {"d":"2"}'),
        TextOutput(text="e"),
    )


async def test_output_is_told_as_it_comes_while_the_program_still_runs(sandbox: Sandbox) -> None:
    told: list[object] = []
    first = anyio.Event()

    def on_output(item: object) -> None:
        told.append(item)
        first.set()

    cell = sandbox.cell(
        "text('early'); for (;;);", limits=Limits(timeout_ms=60000), on_output=on_output
    )
    with anyio.fail_after(50):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(cell.run)
            await first.wait()
            await cell.abort()
    assert told == [TextOutput(text="early")]


async def test_output_is_kept_when_the_cell_fails(sandbox: Sandbox) -> None:
    result = await failure_of(sandbox, "text('before');\nthrow new TypeError('bad')")
    assert (result.reason, result.output) == ("guest_error", (TextOutput(text="before"),))
    assert result.error == "TypeError: bad\n    at cell.js:2:11"


async def test_an_error_names_the_lines_of_the_program_through_nested_functions(
    sandbox: Sandbox,
) -> None:
    code = (
        "function inner() {\n  null.x;\n}\nasync function outer() {\n  inner();\n}\nawait outer()"
    )
    result = await failure_of(sandbox, code)
    assert result.position is not None
    assert (result.position.line, result.position.column) == (2, 3)
    assert "at inner cell.js:2:3\n    at outer cell.js:5:3\n    at cell.js:7:7" in result.error


@pytest.mark.parametrize(
    ("code", "position"),
    [("let x = ;", (1, 9)), ("\n\n  if (", (3, 7)), ("return 1 }", (1, 11))],
)
async def test_a_syntax_error_names_the_line_of_the_program(
    sandbox: Sandbox, code: str, position: tuple[int, int]
) -> None:
    result = await failure_of(sandbox, code)
    assert (result.code, result.reason) == ("invalid_input", "syntax_error")
    assert result.position is not None
    assert (result.position.line, result.position.column) == position


async def test_requests_are_answered_in_any_order_and_each_once(
    sandbox: Sandbox, held: HeldHandler
) -> None:
    code = """
    const order = [];
    const calls = ['a', 'b', 'c'].map((name) => call(name).then((v) => order.push([name, v])));
    await Promise.all(calls);
    return order
    """
    cell = sandbox.cell(code, functions=("call",), handler=held)
    results: list[object] = []

    async def run() -> None:
        results.append(await cell.run())

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run)
        await held.received(3)
        for request_id in (3, 1, 2):
            held.answer(request_id, request_id * 10)
            await anyio.wait_all_tasks_blocked()
    result = results[0]
    assert isinstance(result, Completed)
    assert isinstance(result.value, list)
    assert sorted(map(str, result.value)) == ["['a', 10]", "['b', 20]", "['c', 30]"]
    assert [(request.id, request.method, request.payload) for request in held.requests] == [
        (1, "call", "a"),
        (2, "call", "b"),
        (3, "call", "c"),
    ]


async def test_a_race_is_over_when_the_fast_call_is_in(sandbox: Sandbox, held: HeldHandler) -> None:
    held.answer(2, "fast")
    code = "return await Promise.race([call('slow'), call('fast')])"
    with anyio.fail_after(50):
        result = await sandbox.cell(code, functions=("call",), handler=held).run()
    assert isinstance(result, Completed)
    assert result.value == "fast"
    assert result.usage.unfinished_requests == 1


@requirement("security:plain-errors")
async def test_a_rejected_request_is_a_plain_error_that_the_program_can_catch(
    sandbox: Sandbox,
) -> None:
    async def refuse(request: HostRequest) -> JsonValue:
        raise HostRequestError("no", name="Denied", code="denied", data={"toolId": "t"})

    code = """
    try { await call() } catch (error) {
      return [error instanceof Error, error.name, error.message, error.code, error.toolId]
    }"""
    result = await sandbox.cell(code, functions=("call",), handler=refuse).run()
    assert isinstance(result, Completed)
    assert result.value == [True, "Denied", "no", "denied", "t"]


async def test_a_fault_of_the_handler_rejects_with_its_message_alone(
    sandbox: Sandbox, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(request: HostRequest) -> JsonValue:
        raise KeyError("secret place")

    code = "try { await call() } catch (error) { return Object.keys(error).concat(error.message) }"
    result = await sandbox.cell(code, functions=("call",), handler=broken).run()
    assert isinstance(result, Completed)
    assert result.value == ["'secret place'"]
    assert "handler of the host request call failed" in caplog.text


@requirement("security:json-bridge")
async def test_an_answer_that_is_not_json_rejects_and_says_where(sandbox: Sandbox) -> None:
    async def wrong(request: HostRequest) -> JsonValue:
        return {"when": object()}  # pyright: ignore[reportReturnType]

    code = "try { await call() } catch (error) { return error.message }"
    result = await sandbox.cell(code, functions=("call",), handler=wrong).run()
    assert isinstance(result, Completed)
    assert "$.when" in str(result.value)


async def test_an_uncaught_rejection_points_at_the_call(sandbox: Sandbox) -> None:
    async def refuse(request: HostRequest) -> JsonValue:
        raise HostRequestError("no such file", name="ToolError")

    result = await sandbox.cell(
        "\nconst file = await call('x')", functions=("call",), handler=refuse
    ).run()
    assert isinstance(result, Failed)
    assert result.error == "ToolError: no such file\n    at cell.js:2:20"


async def test_more_requests_than_may_run_at_once_wait_their_turn(
    sandbox: Sandbox,
) -> None:
    at_once = 0
    most = 0

    async def count(request: HostRequest) -> JsonValue:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        await anyio.wait_all_tasks_blocked()
        at_once -= 1
        return request.payload

    code = "return (await Promise.all(Array.from({length: 40}, (_, i) => call(i)))).length"
    limits = Limits(max_pending_tool_calls=4)
    result = await sandbox.cell(code, limits=limits, functions=("call",), handler=count).run()
    assert isinstance(result, Completed)
    assert (result.value, most) == (40, 4)


async def test_calls_that_nobody_awaits_are_made_and_the_value_stands(
    sandbox: Sandbox, held: HeldHandler
) -> None:
    result = await sandbox.cell(
        "call('unawaited'); return 'done'", functions=("call",), handler=held
    ).run()
    assert isinstance(result, Completed)
    assert (result.value, result.usage.unfinished_requests) == ("done", 1)
    await held.received(1)
    held.answer(1, None)


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
    assert first.run_id == cell.cell_id
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


async def test_an_abort_in_the_moment_of_suspension_ends_the_cell(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    cell = sandbox.cell("await yield_control(); return 1")
    suspend = CellVm.suspend

    async def suspend_and_abort(vm: CellVm, open_requests: tuple[int, ...]) -> None:
        await suspend(vm, open_requests)
        # The leg is about to return; nothing in it can be cancelled any more.
        tasks.start_soon(cell.abort)

    monkeypatch.setattr(CellVm, "suspend", suspend_and_abort)
    async with anyio.create_task_group() as tasks:
        await cell.run()
    assert (cell.state, cell.snapshot) == (CellState.ABORTED, None)


async def test_a_fault_in_on_output_is_logged_and_nothing_is_lost(
    sandbox: Sandbox, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(item: object) -> None:
        raise ValueError("mine")

    result = await sandbox.cell("text('a'); return 1", on_output=broken).run()
    assert isinstance(result, Completed)
    assert result.output == (TextOutput(text="a"),)
    assert "on_output failed" in caplog.text


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


async def test_state_of_every_kind_survives_suspension(sandbox: Sandbox) -> None:
    code = """
    class Box { #secret = 5; get() { return this.#secret } }
    const box = new Box(), map = new Map([[box, 'm']]), gen = (function* () { yield 1; yield 2 })();
    gen.next();
    const weak = new WeakMap([[box, 'w']]), bytes = new Uint8Array([1, 2, 3]);
    let caught;
    const rejected = Promise.reject(new Error('later'));
    await yield_control();
    try { await rejected } catch (error) { caught = error.message }
    return [box.get(), map.get(box), gen.next().value, weak.get(box), [...bytes], caught]
    """
    cell = sandbox.cell(code)
    assert isinstance(await cell.run(), Waiting)
    result = await cell.resume()
    assert isinstance(result, Completed)
    assert result.value == [5, "m", 2, "w", [1, 2, 3], "later"]


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
    assert "nothing can settle" in result.error


async def test_an_error_in_a_timer_fails_the_cell(sandbox: Sandbox) -> None:
    code = "setTimeout(() => { throw new Error('in timer') }, 1); await new Promise(() => {})"
    result = await failure_of(sandbox, code)
    assert (result.reason, result.error.splitlines()[0]) == ("guest_error", "Error: in timer")


@requirement("validation:snapshot-cap", "security:caps")
async def test_a_snapshot_over_its_limit_fails_with_its_own_code(sandbox: Sandbox) -> None:
    code = """
    const noise = crypto.getRandomValues(new Uint8Array(60000));
    await yield_control(); return noise.length"""
    result = await failure_of(sandbox, code, Limits(max_snapshot_bytes=16384))
    assert (result.code, result.reason) == (
        "snapshot_limit_exceeded",
        "snapshot_limit_exceeded",
    )
    assert "maxSnapshotBytes (16384)" in result.error


async def test_abort_ends_an_endless_loop_and_its_worker_serves_on(sandbox: Sandbox) -> None:
    started = anyio.Event()
    cell = sandbox.cell(
        "text('in'); for (;;);",
        limits=Limits(timeout_ms=60000),
        on_output=lambda _: started.set(),
    )
    results: list[object] = []

    async def run() -> None:
        results.append(await cell.run())

    with anyio.fail_after(50):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
            await started.wait()
            await cell.abort("enough")
    result = results[0]
    assert isinstance(result, Failed)
    assert (result.reason, result.error, cell.state) == ("aborted", "enough", CellState.ABORTED)
    assert await value_of(sandbox, "return 'next'") == "next"


@requirement("validation:abort-cleans-up")
async def test_abort_of_a_waiting_cell_cancels_its_calls(
    sandbox: Sandbox, held: HeldHandler
) -> None:
    cell = sandbox.cell(
        "call(); await yield_control(); return 1", functions=("call",), handler=held
    )
    assert isinstance(await cell.run(), Waiting)
    await held.received(1)
    await cell.abort()
    await anyio.wait_all_tasks_blocked()
    assert (held.cancelled, cell.state, cell.snapshot) == ([1], CellState.ABORTED, None)
    with pytest.raises(CellStateError, match="aborted, not waiting"):
        await cell.resume()


async def test_cancelling_the_caller_ends_the_cell_and_its_calls(
    sandbox: Sandbox, held: HeldHandler
) -> None:
    cell = sandbox.cell("return await call()", functions=("call",), handler=held)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(cell.run)
        await held.received(1)
        tasks.cancel_scope.cancel()
    await anyio.wait_all_tasks_blocked()
    assert (held.cancelled, cell.state) == ([1], CellState.ABORTED)
    assert await value_of(sandbox, "return 'next'") == "next"


async def test_a_cell_cannot_be_run_twice_nor_resumed_before_it_waits(sandbox: Sandbox) -> None:
    cell = sandbox.cell("return 1")
    with pytest.raises(CellStateError, match="new, not waiting"):
        await cell.resume()
    await cell.run()
    with pytest.raises(CellStateError, match="completed, not new"):
        await cell.run()


async def test_a_second_resume_at_the_same_time_is_refused_and_the_first_goes_on(
    sandbox: Sandbox, held: HeldHandler
) -> None:
    cell = sandbox.cell(
        "const c = call(); await yield_control(); return await c",
        functions=("call",),
        handler=held,
    )
    assert isinstance(await cell.run(), Waiting)
    results: list[object] = []

    async def resume() -> None:
        results.append(await cell.resume())

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(resume)
        await anyio.wait_all_tasks_blocked()
        with pytest.raises(CellStateError, match="running, not waiting"):
            await cell.resume()
        held.answer(1, "ok")
    assert isinstance(results[0], Completed)


async def test_every_cell_has_its_own_random_seed(sandbox: Sandbox) -> None:
    seen = {str(await value_of(sandbox, "return Math.random()")) for _ in range(8)}
    assert len(seen) == 8


async def test_a_suspended_program_keeps_its_random_sequence(sandbox: Sandbox) -> None:
    cell = sandbox.cell(
        "const a = Math.random(); await yield_control(); return a !== Math.random()"
    )
    assert isinstance(await cell.run(), Waiting)
    result = await cell.resume()
    assert isinstance(result, Completed)
    assert result.value is True


async def test_typescript_keeps_its_lines_also_where_it_has_to_be_printed_anew(
    sandbox: Sandbox,
) -> None:
    code = (
        "enum Level {\n  Low = 1,\n  High,\n}\ninterface A { b: string }\nthrow new Error(Level[2])"
    )
    result = await sandbox.cell(code, language="typescript").run()
    assert isinstance(result, Failed)
    assert result.error == "Error: High\n    at cell.ts:6:17"


async def test_a_typescript_diagnostic_has_line_and_column(sandbox: Sandbox) -> None:
    result = await sandbox.cell("const a: number = 1;\nlet b: = 2", language="typescript").run()
    assert isinstance(result, Failed)
    assert (result.code, result.reason) == ("invalid_input", "typescript_transform_failed")
    assert result.position is not None
    assert (result.position.line, result.position.column) == (2, 8)


async def test_a_cancellation_that_is_not_ours_rejects_the_call_and_harms_nobody(
    sandbox: Sandbox,
) -> None:
    async def await_something_cancelled(request: HostRequest) -> JsonValue:
        future = asyncio.get_running_loop().create_future()
        future.cancel()
        await future
        return "never"

    code = "try { await call() } catch (error) { return error.message }"
    result = await sandbox.cell(code, functions=("call",), handler=await_something_cancelled).run()
    assert isinstance(result, Completed)
    assert result.value == "it was cancelled"
    assert await value_of(sandbox, "return 'sound'") == "sound"


async def test_restoring_a_large_program_is_not_charged_to_its_budget(sandbox: Sandbox) -> None:
    code = """
    const kept = new Uint32Array(10 << 20).map((_, i) => i & 255);
    await yield_control(); return kept.length"""
    limits = Limits(timeout_ms=60000, memory_limit_bytes=256 << 20)
    cell = sandbox.cell(code, limits=limits)
    assert isinstance(await cell.run(), Waiting)
    cell._limits = replace(limits, timeout_ms=100)  # pyright: ignore[reportPrivateUsage]
    result = await cell.resume()
    assert isinstance(result, Completed), result
    assert result.value == 10 << 20


async def test_a_heap_of_hundreds_of_megabytes_is_suspended_or_refused_never_lost(
    sandbox: Sandbox,
) -> None:
    code = (
        "const kept = new Uint8Array(600 << 20).fill(7); await yield_control(); return kept.at(-1)"
    )
    cell = sandbox.cell(code, limits=Limits(timeout_ms=60000, memory_limit_bytes=1 << 30))
    result = await cell.run()
    assert isinstance(result, Waiting), result
    result = await cell.resume()
    assert isinstance(result, Completed), result
    assert result.value == 7


async def test_suspending_again_and_again_does_not_grow_the_snapshot(sandbox: Sandbox) -> None:
    cell = sandbox.cell("for (;;) await yield_control()")
    result = await cell.run()
    sizes: list[int] = []
    for _ in range(100):
        assert isinstance(result, Waiting)
        sizes.append(len(cell.snapshot or b""))
        result = await cell.resume()
    await cell.abort()
    assert max(sizes[50:]) <= max(sizes[:50]) + 256


@pytest.mark.parametrize("functions", ["lookup", [1], [None]])
async def test_functions_that_are_not_names_are_refused(
    sandbox: Sandbox, functions: list[str]
) -> None:
    with pytest.raises(TypeError, match="it has to be a list of names"):
        sandbox.cell("return 1", functions=functions)


async def test_code_that_is_not_text_is_refused(sandbox: Sandbox) -> None:
    with pytest.raises(TypeError, match="code is a bytes; it has to be text"):
        sandbox.cell(b"return 1")  # pyright: ignore[reportArgumentType]


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
