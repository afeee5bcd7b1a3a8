"""Requests of programs to the host: order, errors, limits and cancellation."""

import asyncio
from typing import cast

import anyio
import pytest

from nacre.errors import HostRequestError
from nacre.json_types import MAX_PARTS, JsonValue
from nacre.large_json import MAX_VALUES
from nacre.sandbox import (
    Completed,
    Failed,
    HostRequest,
    Limits,
    Sandbox,
    TextOutput,
    Waiting,
)
from tests.contract.requirements import requirement
from tests.sandbox.cell_results import value_of
from tests.sandbox.conftest import HeldHandler


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


async def test_a_race_waits_for_the_slow_call_and_shows_the_value_of_the_fast_one(
    sandbox: Sandbox, held: HeldHandler
) -> None:
    held.answer(2, "fast")
    code = "return await Promise.race([call('slow'), call('fast')])"
    cell = sandbox.cell(code, limits=Limits(timeout_ms=1000), functions=("call",), handler=held)
    waiting = await cell.run()
    assert isinstance(waiting, Waiting)
    assert (waiting.has_returned, waiting.value) == (True, "fast")
    assert waiting.to_json()["value"] == "fast"
    assert [request.id for request in waiting.pending] == [1]
    held.answer(1, "slow")
    result = await cell.resume()
    assert isinstance(result, Completed)
    assert (result.value, result.usage.unfinished_requests) == ("fast", 0)


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


async def test_calls_and_timers_that_nobody_awaits_finish_before_the_program_completes(
    sandbox: Sandbox, held: HeldHandler
) -> None:
    held.answer(1, "answer")
    code = "call('unawaited').then(text); setTimeout(() => text('late'), 50); return 'early'"
    result = await sandbox.cell(code, functions=("call",), handler=held).run()
    assert isinstance(result, Completed)
    assert result.value == "early"
    assert result.output == (TextOutput(text="answer"), TextOutput(text="late"))


async def test_a_call_that_nobody_awaits_and_that_fails_fails_the_program(
    sandbox: Sandbox,
) -> None:
    async def refuse(request: HostRequest) -> JsonValue:
        raise HostRequestError("no")

    result = await sandbox.cell("call(); return 1", functions=("call",), handler=refuse).run()
    assert isinstance(result, Failed)
    assert (result.reason, result.error[:9]) == ("nested_tool_failed", "Error: no")


async def test_a_program_that_returned_does_not_wait_for_a_timer_after_its_budget(
    sandbox: Sandbox,
) -> None:
    limits = Limits(timeout_ms=60_000)
    cell = sandbox.cell("setTimeout(() => {}, 3600000); return 1", limits=limits)
    # Less than the budget of the leg.
    with anyio.fail_after(50):
        waiting = await cell.run()
    assert isinstance(waiting, Waiting)
    assert (waiting.reason, waiting.has_returned, waiting.value) == ("yield", True, 1)
    assert waiting.next_timer_ms is not None
    assert waiting.to_json()["nextTimerMs"] == waiting.next_timer_ms
    await cell.abort()


async def test_calls_that_a_failed_program_left_running_are_named(
    sandbox: Sandbox, held: HeldHandler
) -> None:
    held.answer(2, None)
    code = "call('slow'); await call('fast'); throw new Error('no')"
    result = await sandbox.cell(code, functions=("call",), handler=held).run()
    assert isinstance(result, Failed)
    assert [request.payload for request in result.cancelled] == ["slow"]
    assert result.to_json()["abortedToolCalls"] == [{"id": 1, "method": "call"}]


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


async def test_an_answer_with_too_many_values_rejects_the_call(sandbox: Sandbox) -> None:
    async def answer(request: HostRequest) -> JsonValue:
        return cast("JsonValue", [0] * (MAX_VALUES + 1))

    code = "try { await call() } catch (error) { return [error.name, error.code, error.message] }"
    result = await sandbox.cell(code, functions=("call",), handler=answer).run()
    assert isinstance(result, Completed)
    name, code, message = cast("list[str]", result.value)
    assert (name, code) == ("RangeError", "result_too_large")
    assert f"the answer of call has more than {MAX_VALUES} values" in message


async def test_a_call_with_too_many_values_is_rejected_and_the_others_are_made(
    sandbox: Sandbox, held: HeldHandler
) -> None:
    held.answer(2, "small")
    code = f"""
    const large = call(Array.from({{ length: {MAX_PARTS + 2} }}, () => 0));
    const small = call("small");
    return [await large.catch((error) => [error.name, error.code, error.message]), await small];
    """
    result = await sandbox.cell(code, functions=("call",), handler=held).run()
    assert isinstance(result, Completed)
    assert result.value == [
        [
            "RangeError",
            "input_too_large",
            "the data of this call has more than 200,000 parts; pass less data at a time",
        ],
        "small",
    ]
    assert [request.payload for request in held.requests] == ["small"]


@pytest.mark.parametrize("code", ["return ZEROS", "json(ZEROS)"])
async def test_a_value_or_output_with_too_many_values_is_over_the_limit(
    sandbox: Sandbox, code: str
) -> None:
    program = code.replace("ZEROS", f"Array.from({{ length: {MAX_PARTS + 2} }}, () => 0)")
    result = await sandbox.cell(program, limits=Limits(max_output_bytes=1 << 20)).run()
    assert isinstance(result, Failed)
    assert result.reason == "output_limit_exceeded"
    assert "has more than 200,000 parts" in result.error
