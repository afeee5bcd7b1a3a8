"""Runs: their results, and the registry that forgets the oldest."""

import anyio
import anyio.lowlevel
import pytest

from nacre.agent.run import AgentRun, RunRegistry, RunResult


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


def _run(number: int, session_id: str = "s") -> AgentRun:
    return AgentRun(id=f"run_{number}", session_id=session_id, agent_id="main")


def _ended(runs: RunRegistry, run: AgentRun, text: str = "") -> None:
    runs.add(run)
    run.begin({})
    run.end("completed", RunResult(text=text))
    runs.note_ended(run)


def test_a_run_is_found_while_it_is_live_and_after_its_end() -> None:
    runs = RunRegistry()
    one = _run(1)
    runs.add(one)
    assert (runs.get("run_1"), runs.live()) == (one, [one])
    one.begin({})
    one.end("completed", RunResult())
    runs.note_ended(one)
    assert (runs.get("run_1"), runs.live()) == (one, [])
    assert runs.get("run_2") is None


def test_those_of_one_session_can_be_asked_for() -> None:
    runs = RunRegistry()
    for number, session_id in enumerate(("a", "b", "a")):
        runs.add(_run(number, session_id))
    assert [run.id for run in runs.all("a")] == ["run_0", "run_2"]
    assert len(runs.all()) == 3


def test_a_watcher_is_told_until_it_stops() -> None:
    runs = RunRegistry()
    told: list[str] = []
    stop = runs.watch(lambda run: told.append(run.id))
    runs.add(_run(1))
    stop()
    runs.add(_run(2))
    assert told == ["run_1"]


def test_the_oldest_of_many_ended_runs_are_forgotten() -> None:
    runs = RunRegistry()
    live = _run(-1)
    runs.add(live)
    for number in range(300):
        _ended(runs, _run(number))
    ids = [run.id for run in runs.all()]
    assert ids == [*(f"run_{number}" for number in range(44, 300)), "run_-1"]


def test_runs_that_hold_much_are_forgotten_sooner_but_never_the_last() -> None:
    runs = RunRegistry()
    # Held twice: by the result, and by the event that tells of it.
    large = "x" * 20_000_000
    _ended(runs, _run(1), large)
    _ended(runs, _run(2))
    _ended(runs, _run(3), large)
    assert [run.id for run in runs.all()] == ["run_2", "run_3"]
    _ended(runs, _run(4), large + large)
    assert [run.id for run in runs.all()] == ["run_4"]
