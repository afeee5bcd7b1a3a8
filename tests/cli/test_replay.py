"""`nacre replay`: recorded programs again, as text, as JSON and as a test."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from nacre.testing.script import Call, Say, Script
from tests.cli.agent_setup import configure_agents, scripted_model
from tests.cli.surroundings import Surroundings

LIST = 'return (await tools.call("openclaw:core:list", {path: "."})).entries.length'
SECRET = "sk-proj-abcdefghijklmnopqrstuvwxyz0123456789"


@pytest.fixture
def here(surroundings: Surroundings) -> Surroundings:
    configure_agents(surroundings)
    (surroundings.project / "a.txt").write_text("one")
    return surroundings


def run_programs(here: Surroundings, *programs: str) -> str:
    """The id of a run in which the model runs these programs."""
    script: Script = [*(Call("exec", {"code": code}) for code in programs), Say("done")]
    with scripted_model(here, script):
        _, out, _ = here.nacre("run", "--json", "go")
    run_id: str = json.loads(out.splitlines()[0])["runId"]
    return run_id


def cells_of(here: Surroundings, run_id: str) -> list[str]:
    _, out, _ = here.nacre("replay", run_id, "--json")
    return [cell["cellId"] for cell in json.loads(out)["cells"]]


def test_a_run_is_replayed_step_by_step(here: Surroundings) -> None:
    run_id = run_programs(here, f"text('hi'); {LIST}")
    (here.project / "a.txt").unlink()
    status, out, err = here.nacre("replay", run_id)
    heading, *lines = out.splitlines()
    assert (status, err) == (0, "")
    assert heading.startswith("run_")
    assert ": 2 steps of 2, call " in heading
    assert lines[0] == "├ 1 start"
    assert lines[1] == '│ ├ » "hi"'
    assert lines[2] == '│ └ calls openclaw:core:list {"path":"."}'
    assert lines[3] == "├ 2 answers"
    assert lines[4].startswith("│ └ ✓ openclaw:core:list → {")
    assert lines[-2:] == ["├ completed: 1", "└ no difference"]


def test_a_replay_as_json(here: Surroundings) -> None:
    run_id = run_programs(here, LIST)
    status, out, _ = here.nacre("replay", run_id, "--json")
    replayed = json.loads(out)
    (cell,) = replayed["cells"]
    assert (status, replayed["difference"], cell["difference"]) == (0, None, None)
    assert cell["end"] == cell["recordedEnd"] == {"status": "completed", "value": 1}
    assert [step["cause"] for step in cell["steps"]] == ["start", "answers"]
    assert cell["steps"][0]["calls"][0]["name"] == "openclaw:core:list"


def test_one_cell_and_some_steps_are_chosen(here: Surroundings) -> None:
    run_id = run_programs(here, "return 1", LIST)
    first, second = cells_of(here, run_id)
    status, out, _ = here.nacre("replay", run_id, "--cell", second, "--until", "1")
    assert (status, out.startswith(second), first in out) == (0, True, False)
    assert "1 step of 2" in out
    assert "the program waits" in out


def test_changed_code_shows_what_it_would_call(here: Surroundings, tmp_path: Path) -> None:
    run_id = run_programs(here, LIST)
    changed = tmp_path / "changed.ts"
    changed.write_text(
        'await tools.call("openclaw:core:list", {path: "."});\n'
        'const path: string = "b.txt"; return tools.call("openclaw:core:read", {path})\n'
    )
    status, out, _ = here.nacre("replay", run_id, "--code", str(changed))
    assert status == 1
    assert 'calls openclaw:core:read {"path":"b.txt"}  (not recorded: it would be called)' in out
    assert "├ would call openclaw:core:read" in out
    assert out.splitlines()[-1].startswith("└ difference: step 2: call 2 is openclaw:core:read")


def test_an_exported_file_is_replayed(here: Surroundings, tmp_path: Path) -> None:
    run_id = run_programs(here, LIST)
    file = tmp_path / "run.jsonl"
    here.nacre("trajectory", "export", run_id, "--out", str(file))
    assert here.nacre("replay", str(file)) == here.nacre("replay", run_id)
    file.write_text("nothing")
    status, _, err = here.nacre("replay", str(file))
    assert (status, "is not an exported trajectory: line 1" in err) == (2, True)


def test_a_run_is_saved_as_a_test_that_needs_only_the_library(
    here: Surroundings, tmp_path: Path
) -> None:
    run_id = run_programs(here, f"text(String(Math.random())); {LIST}")
    status, _, err = here.nacre("replay", run_id, "--as-test", "--out", str(tmp_path))
    test = tmp_path / f"test_replay_{run_id}.py"
    record = tmp_path / f"replay_{run_id}.jsonl"
    assert (status, err) == (0, f"saved {test}; run it with `pytest {test}`\n")
    assert "session_" not in record.read_text()

    def run_test() -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(test)]
        return subprocess.run(
            command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120
        )

    passed = run_test()
    assert (passed.returncode, "1 passed" in passed.stdout) == (0, True), passed.stdout
    record.write_text(record.read_text().replace(':"openclaw:core:list"', ':"openclaw:core:x"'))
    failed = run_test()
    assert (failed.returncode, "call 1 is openclaw:core:list" in failed.stdout) == (1, True)
    status, _, err = here.nacre("replay", run_id, "--as-test", "--out", str(tmp_path))
    assert (status, "exists; delete it, or choose another --out" in err) == (2, True)


def test_a_run_that_differs_is_not_saved(here: Surroundings, tmp_path: Path) -> None:
    (here.project / "k.txt").write_text(f"token: {SECRET}")
    read = 'await tools.call("openclaw:core:read", {path: "k.txt"})'
    code = f"return JSON.stringify({read}).length"
    run_id = run_programs(here, code)
    folder = tmp_path / "saved"
    folder.mkdir()
    status, out, err = here.nacre("replay", run_id, "--as-test", "--out", str(folder))
    assert (status, list(folder.iterdir())) == (1, [])
    assert "difference: " in out
    assert "openclaw:core:read" in out.splitlines()[-1]
    assert "no test was saved" in err


def test_bad_usage_is_explained(here: Surroundings, tmp_path: Path) -> None:
    run_id = run_programs(here, "return 1", "return 2")
    first, second = cells_of(here, run_id)
    program = tmp_path / "program.js"
    program.write_text("return 3")
    _, shown, _ = here.nacre("sessions", "list", "--json")
    session = json.loads(shown)["sessions"][0]["id"]
    for arguments, problem in [
        ((f"{run_id[:-1]}x",), f"did you mean {run_id}?"),
        ((session,), f"{session!r} is a session; name one of its runs"),
        ((run_id, "--cell", "run_x"), f"its cells are {first}, {second}"),
        ((run_id, "--code", str(program)), "the run has 2 cells; name the one"),
        ((run_id, "--code", "none.js"), "cannot read 'none.js'"),
        ((run_id, "--until", "0"), "0 is not in the range"),
        ((run_id, "--as-test", "--until", "1"), "leave out --until and --code"),
        ((run_id, "--out", str(tmp_path)), "use it with --as-test"),
        ((run_id, "--as-test", "--out", str(tmp_path / "none")), "cannot write"),
    ]:
        status, _, err = here.nacre("replay", *arguments)
        assert (status, problem in err) == (2, True), err
