"""What a replay says if a program does not do what its record says."""

from typing import Any, cast

import pytest

from nacre import Runtime, Tool, ToolCall
from nacre.cell_replay import replay
from nacre.json_types import JsonObject
from tests.cell_replay.replays import changed_bursts, record_of, replay_one
from tests.code_mode.outcomes import failure_of, value_of
from tests.code_mode.tools import echo_tool

SECRET = "sk-proj-abcdefghijklmnopqrstuvwxyz0123456789"


def returning(name: str, result: object) -> Tool:
    async def execute(input: dict[str, Any], call: ToolCall) -> object:
        return result

    return Tool(name=name, parameters={"type": "object"}, execute=execute)


def first_burst(data: JsonObject, number: int = 0) -> JsonObject:
    bursts = cast("list[JsonObject]", data["bursts"])
    return bursts[number]


# Each takes the data of `replay.bursts` and returns nothing.


def change_call(data: JsonObject) -> None:
    requests = cast("list[list[Any]]", first_burst(data)["requests"])
    requests[0][2]["input"] = {"n": 2}


def drop_call(data: JsonObject) -> None:
    del first_burst(data)["requests"]


def change_answer(data: JsonObject) -> None:
    first_burst(data, 1)["answers"] = [[1, True, {"n": 7}]]


def change_end(data: JsonObject) -> None:
    cast("JsonObject", data["end"])["value"] = "other"


def drop_last_burst(data: JsonObject) -> None:
    cast("list[Any]", data["bursts"]).pop()


def add_burst(data: JsonObject) -> None:
    cast("list[Any]", data["bursts"]).append({"command": "timers"})


def change_answered_request(data: JsonObject) -> None:
    first_burst(data, 1)["answers"] = [[9, True, {"n": 7}]]


CASES = {
    "another call": (
        change_call,
        'step 1: call 1 is openclaw:core:echo {"n": 1}; the record has openclaw:core:echo {"n": 2}',
    ),
    "one more call": (
        drop_call,
        'step 1: call 1 is openclaw:core:echo {"n": 1}; the record has no such call',
    ),
    "another answer": (
        change_answer,
        'step 2: output 1 is {"text": "7"}; the record has {"text": "1"}',
    ),
    "another end": (
        change_end,
        'the program completed with the value "end"; the record says that it completed with the '
        'value "other"',
    ),
    "a program that goes on": (
        drop_last_burst,
        "the program still waits; the record says that it completed with the value",
    ),
    "a program that ends earlier": (
        add_burst,
        'step 2: the program completed with the value "end"; the record has 1 more steps',
    ),
    "an answer to nothing": (
        change_answered_request,
        "step 2: the record answers the request 9, which the program did not make",
    ),
}


@pytest.mark.parametrize(("change", "expected"), CASES.values(), ids=CASES.keys())
async def test_the_first_difference_is_named(runtime: Runtime, change: Any, expected: str) -> None:
    run = runtime.run(tools=[echo_tool()])
    value_of(await run.exec("text(String((await tools.echo({n: 1})).n)); return 'end'"))
    events = changed_bursts(record_of(run.trajectory), change)
    replayed = await replay(events, sandbox=runtime.sandbox)
    (cell,) = replayed.cells
    assert cell.difference.startswith(expected)
    assert replayed.difference == f"{cell.cell_id}: {cell.difference}"


async def test_the_replay_ends_at_the_first_difference(runtime: Runtime) -> None:
    run = runtime.run(tools=[echo_tool()])
    value_of(await run.exec("for (const n of [1, 2, 3]) await tools.echo({n})"))
    events = changed_bursts(record_of(run.trajectory), change_answered_request)
    (cell,) = (await replay(events, sandbox=runtime.sandbox)).cells
    assert len(cell.steps) == 1


async def test_a_redacted_answer_that_does_not_matter_is_no_difference(runtime: Runtime) -> None:
    run = runtime.run(tools=[returning("login", {"apiKey": SECRET, "user": "ann"})])
    value_of(await run.exec("return (await tools.login({})).user"))
    assert SECRET not in str([event.data for event in run.trajectory.events])
    replayed = await replay_one(runtime, run.trajectory)
    assert (replayed.difference, replayed.end) == ("", {"status": "completed", "value": "ann"})
    (answer,) = replayed.steps[1].answers
    assert (answer.is_exact, SECRET in str(answer.value)) == (False, False)


async def test_a_difference_after_a_redacted_answer_names_the_answer(runtime: Runtime) -> None:
    run = runtime.run(tools=[returning("login", {"apiKey": SECRET})])
    value_of(await run.exec("return (await tools.login({})).apiKey.length"))
    replayed = await replay_one(runtime, run.trajectory)
    assert replayed.difference.endswith(
        "; the record has only a part of earlier answers, which may be the cause: "
        "openclaw:core:login"
    )


async def test_answers_are_recorded_whole_up_to_their_limit(runtime: Runtime) -> None:
    run = runtime.run(tools=[returning("page", "x" * 60_000), returning("book", "y" * 90_000)])
    value_of(await run.exec("return (await tools.page({})).length"))
    value_of(await run.exec("return (await tools.book({})).length"))
    page, book = (await replay(record_of(run.trajectory), sandbox=runtime.sandbox)).cells
    assert (page.difference, page.end) == ("", {"status": "completed", "value": 60_000})
    assert "openclaw:core:book" in book.difference
    assert "the record has only a part of earlier answers" in book.difference


async def test_a_secret_of_the_program_makes_its_record_incomplete(runtime: Runtime) -> None:
    from nacre.errors import ReplayError

    run = runtime.run()
    code = f"const apiKey = '{SECRET}'; return apiKey.length"
    value_of(await run.exec(code))
    with pytest.raises(ReplayError, match="has only a part of its program"):
        await replay_one(runtime, run.trajectory)
    replayed = await replay_one(runtime, run.trajectory, code=code)
    assert (replayed.difference, replayed.is_code_changed) == ("", True)


async def test_an_error_with_random_text_is_the_same(runtime: Runtime) -> None:
    run = runtime.run()
    failed = failure_of(await run.exec("throw new Error(crypto.randomUUID())"))
    replayed = await replay_one(runtime, run.trajectory)
    assert replayed.end is not None
    assert replayed.end["error"] == failed.error
