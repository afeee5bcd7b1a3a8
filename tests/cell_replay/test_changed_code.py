"""What a changed program would call, with the answers of a record."""

import pytest

from nacre import Runtime
from nacre.cell_replay import CellReplay
from nacre.errors import ReplayError
from tests.cell_replay.replays import replay_all, replay_one
from tests.code_mode.outcomes import value_of, waiting_of
from tests.code_mode.tools import HeldTool, echo_tool

RECORDED = (
    "const a = await tools.echo({n: 1}); const b = await tools.echo({n: 2});"
    "text('sum'); return a.n + b.n"
)


async def replay_with(runtime: Runtime, code: str, recorded: str = RECORDED) -> CellReplay:
    run = runtime.run(tools=[echo_tool()])
    value_of(await run.exec(recorded))
    return await replay_one(runtime, run.trajectory, code=code)


def calls_of(replayed: CellReplay) -> list[tuple[object, bool]]:
    return [(call.input, call.is_recorded) for call in replayed.calls]


async def test_the_same_code_makes_no_difference(runtime: Runtime) -> None:
    replayed = await replay_with(runtime, RECORDED)
    assert (replayed.difference, replayed.end) == ("", {"status": "completed", "value": 3})


async def test_a_call_gets_the_recorded_answer_of_the_same_call(runtime: Runtime) -> None:
    code = "return await Promise.all([tools.echo({n: 2}), tools.echo({n: 1})])"
    replayed = await replay_with(runtime, code)
    assert replayed.end == {"status": "completed", "value": [{"n": 2}, {"n": 1}]}
    assert calls_of(replayed) == [({"n": 2}, True), ({"n": 1}, True)]
    assert replayed.difference == (
        'step 1: call 1 is openclaw:core:echo {"n": 2}; the record has openclaw:core:echo {"n": 1}'
    )


async def test_a_call_that_the_record_does_not_have_is_named(runtime: Runtime) -> None:
    replayed = await replay_with(runtime, "await tools.echo({n: 1}); return tools.echo({n: 5})")
    assert calls_of(replayed) == [({"n": 1}, True), ({"n": 5}, False)]
    assert replayed.end is None
    assert replayed.difference.startswith('step 2: call 2 is openclaw:core:echo {"n": 5}; ')


async def test_each_recorded_answer_is_used_once(runtime: Runtime) -> None:
    code = "await tools.echo({n: 1}); return tools.echo({n: 1})"
    replayed = await replay_with(runtime, code)
    assert calls_of(replayed) == [({"n": 1}, True), ({"n": 1}, False)]


async def test_a_call_that_is_not_made_any_more_is_named(runtime: Runtime) -> None:
    replayed = await replay_with(runtime, "text('sum'); await tools.echo({n: 1}); return 3")
    assert replayed.difference == ('call 2 is missing; the record has openclaw:core:echo {"n": 2}')


async def test_another_value_is_named(runtime: Runtime) -> None:
    replayed = await replay_with(runtime, RECORDED.replace("a.n + b.n", "a.n * b.n"))
    assert replayed.difference == (
        "the program completed with the value 2; the record says that it completed with the value 3"
    )


async def test_other_output_is_named(runtime: Runtime) -> None:
    replayed = await replay_with(runtime, RECORDED.replace("'sum'", "'product'"))
    assert replayed.difference == (
        'step 3: output 1 is {"text": "product"}; the record has {"text": "sum"}'
    )


async def test_timers_and_yields_need_no_time(runtime: Runtime) -> None:
    code = (
        "const start = Date.now(); await new Promise(done => setTimeout(done, 3_600_000));"
        "await yield_control('look'); return Date.now() - start >= 3_600_000"
    )
    replayed = await replay_with(runtime, code, "return true")
    assert (replayed.difference, replayed.end) == ("", {"status": "completed", "value": True})
    assert [step.cause for step in replayed.steps] == ["start", "timers", "answers"]


async def test_a_program_that_never_ends_is_stopped(runtime: Runtime) -> None:
    code = "let n = 0; setInterval(() => n++, 1000); await new Promise(() => 0)"
    replayed = await replay_with(runtime, code)
    assert (replayed.end, replayed.notes) == (None, ("the replay ended after 1000 steps",))


async def test_random_numbers_and_the_start_time_are_those_of_the_record(runtime: Runtime) -> None:
    run = runtime.run()
    seen = value_of(await run.exec("return [Math.random(), Math.floor(Date.now() / 100000)]"))
    code = "text('more'); return [Math.random(), Math.floor(Date.now() / 100000)]"
    replayed = await replay_one(runtime, run.trajectory, code=code)
    assert replayed.end == {"status": "completed", "value": seen}


async def test_a_call_without_a_recorded_answer_waits(runtime: Runtime) -> None:
    held = HeldTool()
    run = runtime.run(tools=[held.tool])
    waiting_of(await run.exec("tools.held({}); await yield_control()"))
    replayed = await replay_one(runtime, run.trajectory, code="await tools.held({}); return 1")
    assert calls_of(replayed) == [({}, True)]
    assert (replayed.end, replayed.difference) == (None, "")
    await run.abort()


async def test_changed_code_may_be_typescript_and_may_be_wrong(runtime: Runtime) -> None:
    run = runtime.run()
    value_of(await run.exec("return 1"))
    options = {"code": "const n: number = 1; return n"}
    typed = await replay_one(runtime, run.trajectory, **options, language="typescript")
    assert (typed.difference, typed.end) == ("", {"status": "completed", "value": 1})
    wrong = await replay_one(runtime, run.trajectory, **options)
    assert wrong.difference.startswith("the program failed (syntax_error)")


async def test_changed_code_needs_one_cell(runtime: Runtime) -> None:
    run = runtime.run()
    for _ in range(2):
        value_of(await run.exec("return 1"))
    with pytest.raises(ReplayError, match="the run has 2 cells; name the one"):
        await replay_all(runtime, run.trajectory, code="return 1")


async def test_the_first_steps_of_changed_code(runtime: Runtime) -> None:
    run = runtime.run(tools=[echo_tool()])
    value_of(await run.exec(RECORDED))
    replayed = await replay_one(runtime, run.trajectory, code=RECORDED, until=2)
    assert (len(replayed.steps), replayed.difference, replayed.end) == (2, "", None)
