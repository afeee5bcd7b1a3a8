"""A run's states, and the moves between them."""

import anyio
import anyio.lowlevel
import pytest

from nacre.agent.run import AgentRun, RunResult


def new_run() -> AgentRun:
    return AgentRun(id="run_1", session_id="s", agent_id="main")


async def test_the_states_of_a_run_that_waits_and_completes() -> None:
    run = new_run()
    assert run.state == "queued"
    run.begin({})
    run.set_waiting(True)
    run.set_waiting(True)
    assert run.state == "waiting"
    run.set_waiting(False)
    run.end("completed", RunResult(text="done"))
    assert [event.kind for event in run.events.events] == [
        "run.started",
        "run.waiting",
        "run.resumed",
        "run.completed",
    ]
    with anyio.fail_after(5):
        assert (await run.wait()).text == "done"


async def test_a_run_ends_once() -> None:
    run = new_run()
    run.end("aborted", RunResult(error="not wanted"))
    with pytest.raises(RuntimeError, match="from aborted to completed"):
        run.end("completed", RunResult())
    assert run.state == "aborted"
    assert run.result is not None
    assert run.result.error == "not wanted"


async def test_whoever_waits_for_a_change_is_told() -> None:
    run = new_run()
    run.begin({})
    states: list[str] = []

    async def wait() -> None:
        states.append(await run.waiting_or_ended())

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait)
            await anyio.lowlevel.checkpoint()
            run.set_waiting(True)
    assert states == ["waiting"]


async def test_an_abort_returns_when_the_run_has_ended() -> None:
    run = new_run()
    run.begin({})
    run.abort_signal.on_abort(lambda: run.end("aborted", RunResult(error=run.abort_signal.reason)))
    with anyio.fail_after(5):
        assert await run.abort("enough")
        assert not await run.abort("again")
    assert run.result is not None
    assert run.result.to_json()["error"] == "enough"
