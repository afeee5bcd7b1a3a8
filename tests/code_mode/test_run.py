"""A run's `exec` and `wait`: legs, calls that go on meanwhile, output, and every kind of end."""

from typing import Any

import anyio
import anyio.lowlevel

from nacre import Completed, Failed, RunContext, Runtime, Tool, ToolCall
from nacre.json_types import encode_json
from tests.code_mode.outcomes import Recorded, events_of, failure_of, value_of, waiting_of
from tests.code_mode.tools import ANY_OBJECT, HeldTool, echo_tool
from tests.contract.requirements import requirement

# Long enough for the program itself on a busy machine, short enough to wait for.
SHORT_TIMEOUT = {"timeoutMs": 1000}


# Legs.


@requirement("validation:wait-resumes")
async def test_a_program_that_yields_waits_and_wait_returns_its_value(runtime: Runtime) -> None:
    run = runtime.run(tools=[echo_tool()])
    waiting = waiting_of(
        await run.exec("const kept = {n: 1}; await yield_control('a pause'); return kept.n + 1")
    )
    assert (waiting.reason, waiting.yield_reason, waiting.pending) == ("yield", "a pause", ())
    assert value_of(await run.wait(waiting.cell_id)) == 2


async def test_a_program_may_yield_many_times(runtime: Runtime) -> None:
    run = runtime.run(tools=[echo_tool()])
    result = await run.exec("let n = 0; while (n < 3) { n++; await yield_control() } return n")
    for _ in range(3):
        result = await run.wait(waiting_of(result).cell_id)
    assert value_of(result) == 3
    assert result.telemetry.snapshots == {"taken": 3, "restored": 3}
    assert (result.telemetry.exec_count, result.telemetry.wait_count) == (1, 3)


async def test_a_result_costs_the_model_only_what_the_program_returned(runtime: Runtime) -> None:
    run = runtime.run(tools=[echo_tool()])
    result = await run.exec("return 1", call_id="call_1")
    assert encode_json(result.for_model()) == b'{"status":"completed","value":1}'
    whole = result.to_json()
    assert whole.pop("telemetry") == result.telemetry.to_json(result.usage)
    assert whole == result.for_model()
    (ended,) = events_of(run, "call.ended")
    assert ended.data["result"] == result.to_json()


async def test_a_call_that_fails_and_that_nobody_awaited_fails_the_program(
    runtime: Runtime,
) -> None:
    run = runtime.run(tools=[echo_tool()])
    failed = failure_of(await run.exec("const mine = 1;\ntools.call('nosuch'); return mine"))
    assert failed.reason == "nested_tool_failed"
    assert "no tool has the id 'nosuch'" in failed.error
    assert failed.position is not None
    assert failed.position.line == 2
    caught = "tools.call('nosuch').catch((error) => text(error.message)); return 1"
    assert value_of(await run.exec(caught)) == 1


async def test_each_result_has_the_output_of_its_own_leg(runtime: Runtime) -> None:
    run = runtime.run(tools=[echo_tool()])
    first = waiting_of(await run.exec("text('one'); await yield_control(); json({two: 2})"))
    second = await run.wait(first.cell_id)
    assert first.to_json()["output"] == [{"type": "text", "text": "one"}]
    assert second.to_json()["output"] == [{"type": "json", "value": {"two": 2}}]


async def test_a_result_that_does_not_fit_names_the_calls_that_succeeded(runtime: Runtime) -> None:
    run = runtime.run(tools=[echo_tool()])
    used = (
        "await tools.echo({n: 1}); await tools.echo({n: 2}); await tools.call('no').catch(() => 0);"
    )
    failed = failure_of(await run.exec(f"{used} return 'x'.repeat(100000)"))
    assert failed.reason == "output_limit_exceeded"
    assert failed.error.endswith("; completed calls: openclaw:core:echo (2)")
    unused = failure_of(await run.exec("return 'x'.repeat(100000)"))
    assert "calls" not in unused.error


@requirement("validation:wait-resumes")
async def test_exec_waits_when_its_time_ends_before_a_call_does() -> None:
    held = HeldTool()
    async with Runtime(SHORT_TIMEOUT, workers=1) as runtime:
        run = runtime.run(tools=[held.tool])
        waiting = waiting_of(await run.exec("return await tools.held({n: 1})", call_id="call_1"))
        assert waiting.reason == "pending_tools"
        (pending,) = waiting.pending
        assert pending.to_json() == {"id": held.calls[0][1].id, "toolId": "openclaw:core:held"}
        # Nothing has moved, so the next leg ends the same way.
        waiting = waiting_of(await run.wait(waiting.cell_id))
        held.answer("done")
        assert value_of(await run.wait(waiting.cell_id)) == "done"
    assert [given for given, _ in held.calls] == [{"n": 1}]


async def test_an_answer_that_came_while_it_waited_is_delivered_once(runtime: Runtime) -> None:
    held = HeldTool()
    run = runtime.run(tools=[held.tool])
    waiting = waiting_of(
        await run.exec(
            "let times = 0; const call = tools.held({}).then(value => { times++; return value });"
            "await yield_control(); const value = await call; await yield_control();"
            "return {value, times, again: await call}"
        )
    )
    ended = Recorded(run, "call.ended", outcome="completed", result="x")
    held.answer("x")
    await ended.wait()
    waiting = waiting_of(await run.wait(waiting.cell_id))
    assert waiting.pending == ()
    assert value_of(await run.wait(waiting.cell_id)) == {"value": "x", "times": 1, "again": "x"}
    assert len(held.calls) == 1


# Calls beside each other.


async def test_calls_run_beside_each_other(runtime: Runtime) -> None:
    held = HeldTool()
    run = runtime.run(tools=[held.tool])
    results: list[Any] = []

    async def program() -> None:
        calls = "[1, 2, 3].map(n => tools.held({n}))"
        results.append(await run.exec(f"return Promise.all({calls})"))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(program)
        await held.wait_for_calls(3)
        held.answer("all")
    assert value_of(results[0]) == ["all", "all", "all"]


async def test_no_more_calls_run_at_once_than_allowed_and_the_rest_take_their_turn() -> None:
    at_once: list[int] = [0]
    most = 0

    async def execute(input: dict[str, Any], call: ToolCall) -> object:
        nonlocal most
        at_once[0] += 1
        most = max(most, at_once[0])
        await anyio.lowlevel.checkpoint()
        at_once[0] -= 1
        return input["n"]

    async with Runtime({"maxPendingToolCalls": 2}, workers=1) as runtime:
        run = runtime.run(tools=[Tool(name="count", parameters=ANY_OBJECT, execute=execute)])
        result = await run.exec(
            "return Promise.all(Array.from({length: 7}, (_, n) => tools.count({n})))"
        )
    assert value_of(result) == [0, 1, 2, 3, 4, 5, 6]
    assert most == 2


async def test_a_program_that_returned_waits_for_its_calls_and_shows_its_value() -> None:
    held = HeldTool()
    async with Runtime({"timeoutMs": 1000}, workers=1) as runtime:
        run = runtime.run(tools=[held.tool, echo_tool()])
        waiting = waiting_of(
            await run.exec("return Promise.race([tools.held({}), tools.echo({fast: true})])")
        )
        assert waiting.to_json()["value"] == {"fast": True}
        assert [call.tool_id for call in waiting.pending] == ["openclaw:core:held"]
        held.answer("late")
        assert value_of(await run.wait(waiting.cell_id)) == {"fast": True}
        assert (held.cancelled, run.cells()) == ([], [])


async def test_calls_that_are_aborted_with_their_run_are_named_in_the_trajectory() -> None:
    held = HeldTool()
    async with Runtime({"timeoutMs": 1000}, workers=1) as runtime:
        run = runtime.run(tools=[held.tool, echo_tool()])
        waiting_of(await run.exec("tools.held({}); await tools.echo({}); return 1"))
        given_up = Recorded(run, "call.ended", outcome="failed", errorCode="aborted")
        await run.abort("that is all")
        await given_up.wait()
        (ended,) = events_of(run, "cell.ended")
        assert (ended.data["status"], ended.data["abortedCalls"]) == (
            "aborted",
            ["openclaw:core:held"],
        )
        assert held.cancelled == [held.calls[0][1].id]
        assert held.calls[0][1].abort.reason == "that is all"
        assert run.cells() == []


async def test_calls_of_a_program_that_failed_are_given_up(runtime: Runtime) -> None:
    held = HeldTool()
    run = runtime.run(tools=[held.tool, echo_tool()])
    given_up = Recorded(run, "call.ended", outcome="failed", errorCode="aborted")
    failed = failure_of(await run.exec("tools.held({}); await tools.echo({}); throw Error('no')"))
    assert failed.reason == "guest_error"
    (aborted,) = failed.cancelled
    assert failed.to_json()["abortedToolCalls"] == [aborted.to_json()]
    assert aborted.to_json()["toolId"] == "openclaw:core:held"
    await given_up.wait()
    assert held.calls[0][1].abort.reason == "the cell failed: guest_error"
    assert run.cells() == []


# Aborts.


@requirement("validation:abort-cleans-up")
async def test_an_abort_ends_an_endless_loop(runtime: Runtime) -> None:
    started = anyio.Event()

    async def execute(input: dict[str, Any], call: ToolCall) -> object:
        started.set()
        return None

    run = runtime.run(tools=[Tool(name="start", execute=execute)])
    results: list[Any] = []

    async def program() -> None:
        results.append(await run.exec("await tools.start({}); while (true) {}"))

    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(program)
            await started.wait()
            await run.abort("enough")
    failed = failure_of(results[0])
    assert (failed.error, failed.reason, failed.code) == ("enough", "aborted", "internal_error")
    assert run.cells() == []


@requirement("validation:abort-cleans-up")
async def test_an_abort_reaches_a_tool_in_its_cleanup(runtime: Runtime) -> None:
    entered = anyio.Event()
    seen: list[tuple[bool, str]] = []

    async def execute(input: dict[str, Any], call: ToolCall) -> object:
        try:
            entered.set()
            await anyio.sleep_forever()
        finally:
            seen.append((call.abort.is_aborted, call.abort.reason))

    run = runtime.run(tools=[Tool(name="slow", execute=execute)])
    results: list[Any] = []

    async def program() -> None:
        results.append(await run.exec("return tools.slow({})"))

    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(program)
            await entered.wait()
            await run.abort("stop")
    assert failure_of(results[0]).reason == "aborted"
    assert seen == [(True, "stop")]


async def test_a_run_that_was_aborted_takes_no_more_calls(runtime: Runtime) -> None:
    run = runtime.run(tools=[echo_tool()])
    waiting = waiting_of(await run.exec("await yield_control(); return 1"))
    await run.abort("over")
    for result in (await run.exec("return 1"), await run.wait(waiting.cell_id)):
        failed = failure_of(result)
        assert (failed.error, failed.reason) == ("over", "aborted")
    # The workers are there for others.
    assert value_of(await runtime.run(tools=[echo_tool()]).exec("return 1")) == 1


async def test_the_end_of_a_session_ends_its_runs_and_no_others(runtime: Runtime) -> None:
    first = runtime.run(tools=[echo_tool()], context=RunContext(session_id="s1"))
    second = runtime.run(tools=[echo_tool()], context=RunContext(session_id="s2"))
    code = "await yield_control(); return 1"
    waiting = [waiting_of(await run.exec(code)) for run in (first, second)]
    await runtime.abort(session_id="s1", reason="the session ended")
    assert [cell.context.session_id for cell in runtime.cells()] == ["s2"]
    assert failure_of(await first.wait(waiting[0].cell_id)).reason == "aborted"
    assert value_of(await second.wait(waiting[1].cell_id)) == 1


@requirement("validation:abort-cleans-up", "security:snapshots-dropped")
async def test_closing_the_runtime_drops_whatever_runs_or_waits() -> None:
    held = HeldTool()
    async with Runtime(workers=1) as runtime:
        run = runtime.run(tools=[held.tool])
        waiting_of(await run.exec("tools.held({}); await yield_control(); return 1"))
        await held.wait_for_calls()
        assert len(runtime.cells()) == 1
    assert held.calls[0][1].abort.reason == "the runtime is closed"
    assert held.cancelled == [held.calls[0][1].id]
    assert runtime.cells() == []
    (ended,) = events_of(run, "cell.ended")
    assert ended.data["status"] == "aborted"


async def test_whoever_cancels_exec_ends_the_program_and_its_calls(runtime: Runtime) -> None:
    held = HeldTool()
    run = runtime.run(tools=[held.tool])
    given_up = Recorded(run, "call.ended", outcome="failed")
    with anyio.CancelScope() as scope:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run.exec, "return tools.held({})")
            await held.wait_for_calls()
            scope.cancel()
    await given_up.wait()
    assert held.calls[0][1].abort.is_aborted
    assert run.cells() == []


async def test_runs_may_have_many_programs_at_once(runtime: Runtime) -> None:
    run = runtime.run(tools=[echo_tool()])
    results: list[Completed | Failed | Any] = []

    async def program(n: int) -> None:
        results.append(await run.exec(f"return (await tools.echo({{n: {n}}})).n"))

    async with anyio.create_task_group() as tasks:
        for n in range(8):
            tasks.start_soon(program, n)
    assert sorted(map(value_of, results)) == list(range(8))
