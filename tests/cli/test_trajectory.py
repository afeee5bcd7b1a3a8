"""`nacre trajectory`: what runs did, as a tree and as JSON Lines."""

import json
from pathlib import Path

import anyio
import pytest

from nacre.run_context import RunContext
from nacre.storage import open_store
from nacre.testing.script import Call, Say
from nacre.trajectory import TrajectoryRecorder, import_json_lines, project
from tests.cli.agent_setup import configure_agents, scripted_model
from tests.cli.surroundings import Surroundings


@pytest.fixture
def here(surroundings: Surroundings) -> Surroundings:
    configure_agents(surroundings)
    return surroundings


def run_in(here: Surroundings, session: str, prompt: str) -> str:
    """The id of a run in the session."""
    _, out, _ = here.nacre("run", "--json", "--session", session, prompt)
    run_id: str = json.loads(out.splitlines()[0])["runId"]
    return run_id


def test_a_run_is_shown_as_a_tree_with_durations_and_sizes(here: Surroundings) -> None:
    run_id = run_in(here, "work", "list the files")
    status, out, _ = here.nacre("trajectory", "show", run_id)
    lines = out.splitlines()
    assert status == 0
    assert lines[0].startswith(f"{run_id}: ")
    assert "agent main, session session_" in lines[0]
    assert lines[1].startswith("├ asked demo/demo  2 tools in ")
    assert lines[2].startswith("├ answered: tool_calls  calls exec  ")
    assert lines[3].startswith("├ ✓ exec return await tools.call(")
    assert " bytes in, " in lines[3]
    assert lines[4].startswith('│ ├ ✓ openclaw:core:list {"path":"."}  ')
    assert lines[5] == "│ └ program completed"
    assert lines[-1].startswith("└ completed  ")


def test_a_program_that_waits_is_shown_with_its_snapshot(here: Surroundings) -> None:
    run_id = run_in(here, "work", "wait a little")
    _, out, _ = here.nacre("trajectory", "show", run_id)
    assert "├ … exec " in out
    assert '│ ├ » "The first half is done."' in out
    assert "│ ├ suspended: yield, snapshot of " in out
    assert "│ ├ resumed" in out


def test_a_session_is_shown_run_by_run(here: Surroundings) -> None:
    runs = [run_in(here, "work", "hello") for _ in range(2)]
    _, out, _ = here.nacre("trajectory", "show", "work")
    assert [line.split(":")[0] for line in out.splitlines() if line.startswith("run_")] == runs


def test_runs_are_shown_as_json_with_their_events_and_calls(here: Surroundings) -> None:
    runs = [run_in(here, "work", "list the files") for _ in range(2)]
    status, out, _ = here.nacre("trajectory", "show", "work", "--json")
    shown = json.loads(out)["runs"]
    assert (status, [run["runId"] for run in shown]) == (0, runs)
    assert shown[0]["events"][-1]["kind"] == "turn.ended"
    (call,) = shown[0]["calls"]
    assert [child["toolId"] for child in call["children"]] == ["openclaw:core:list"]


def test_a_run_whose_process_was_killed_is_shown_as_interrupted(here: Surroundings) -> None:
    context = RunContext(run_id="run_cut", session_id="session_cut", agent_id="main")
    recorder = TrajectoryRecorder(context)
    recorder.record("run.started", data={"runId": "run_cut", "agentId": "main"})
    recorder.record("call.started", call_id="c", data={"toolName": "exec", "input": {"code": "1"}})

    async def killed() -> None:
        url = f"sqlite:///{here.home / 'nacre.db'}"
        async with open_store(url) as store:
            await store.add_session(id="session_cut", agent_id="main", key="cut")
            await store.begin_turn(
                run_id="run_cut", session_id="session_cut", prompt=None, model="m", surface="direct"
            )
            events = [event.to_json() for event in recorder.events]
            await store.add_events("run_cut", "session_cut", events)
        async with open_store(url) as store:
            assert await store.interrupt_open_turns() == 1

    anyio.run(killed)
    status, out, _ = here.nacre("trajectory", "show", "run_cut")
    assert (status, "has not ended" in out) == (0, False)
    assert "├ … exec 1  interrupted  " in out
    assert out.endswith("└ interrupted  the process ended in the middle of the turn\n")
    _, as_json, _ = here.nacre("trajectory", "show", "cut", "--json")
    assert [run["status"] for run in json.loads(as_json)["runs"]] == ["interrupted"]
    _, session, _ = here.nacre("sessions", "show", "cut")
    assert "the process ended in the middle of the turn" in session


def test_an_export_of_a_run_can_be_read_back(here: Surroundings, tmp_path: Path) -> None:
    run_id = run_in(here, "work", "list the files")
    file = tmp_path / "run.jsonl"
    status, out, err = here.nacre("trajectory", "export", run_id, "--out", str(file))
    events = import_json_lines(file.read_text(encoding="utf-8"))
    (call,) = project(events)
    assert (status, out, err) == (0, "", f"{len(events)} events written to {file}\n")
    assert [nested.tool_id for nested in call.children] == ["openclaw:core:list"]
    assert file.stat().st_mode & 0o777 == 0o600
    _, out, _ = here.nacre("trajectory", "export", run_id)
    assert out == file.read_text(encoding="utf-8")


def test_an_export_of_a_session_can_be_read_back(here: Surroundings) -> None:
    runs = [run_in(here, "work", "list the files") for _ in range(2)]
    _, out, _ = here.nacre("trajectory", "export", "work")
    events = import_json_lines(out)
    begun = [event.data["runId"] for event in events if event.kind == "run.started"]
    assert begun == runs
    assert [event.sequence for event in events] == list(range(len(events)))
    assert len(project(events)) == 2


def test_an_export_of_many_events_is_whole(here: Surroundings) -> None:
    code = "for (let i = 0; i < 1500; i++) text(String(i));"
    with scripted_model(here, [Call("exec", {"code": code}), Say("done")]):
        run_id = run_in(here, "work", "go")
        _, out, _ = here.nacre("trajectory", "export", run_id)
    said = [event.data["text"] for event in import_json_lines(out) if event.kind == "cell.output"]
    assert said == [str(number) for number in range(1500)]


def test_secrets_are_not_exported(here: Surroundings) -> None:
    code = 'return tools.call("openclaw:core:list", {path: ".", password: "hunter2"})'
    with scripted_model(here, [Call("exec", {"code": code}), Say("done")]):
        run_id = run_in(here, "work", "go")
        _, out, _ = here.nacre("trajectory", "export", run_id)
    nested = [event for event in import_json_lines(out) if event.parent_id]
    assert nested
    assert "hunter2" not in "".join(json.dumps(event.data) for event in nested)


@pytest.mark.parametrize("command", ["show", "export"])
def test_an_unknown_id_is_answered_with_the_nearest(here: Surroundings, command: str) -> None:
    run_id = run_in(here, "work", "hello")
    wrong = f"{run_id[:-1]}{'0' if run_id[-1] != '0' else '1'}"
    status, out, err = here.nacre("trajectory", command, wrong)
    assert (status, out) == (2, "")
    assert f"there is no run or session '{wrong}'; did you mean {run_id}?" in err


def test_a_file_that_cannot_be_written_is_named_and_nothing_is_left(
    here: Surroundings, tmp_path: Path
) -> None:
    run_id = run_in(here, "work", "hello")
    folder = tmp_path / "folder"
    folder.mkdir()
    for place, problem in ((folder, "it is a directory"), (tmp_path / "no" / "x", "No such file")):
        status, _, err = here.nacre("trajectory", "export", run_id, "--out", str(place))
        assert status == 2
        assert f"cannot write '{place}': {problem}" in err
    assert list(folder.iterdir()) == []


def test_a_database_that_cannot_be_opened_is_named(here: Surroundings) -> None:
    configure_agents(here, storage={"url": f"sqlite:///{here.config}"})
    for command in ("show", "export"):
        status, _, err = here.nacre("trajectory", command, "x")
        assert status == 1
        assert "nacre.json5" in err
