"""Replays over HTTP: steps, the first difference, changed code, and limits."""

import sqlite3
from pathlib import Path
from typing import Any

import anyio
import pytest

from nacre.gateway.routes import replay as replay_routes
from nacre.testing import Call, Say
from tests.gateway.worlds import CODE_MODE, World, error_of, open_gateway

PROGRAM = """const found = await tools.list({});
text(`${found.entries.length} files`);
await new Promise((done) => setTimeout(done, 1));
return Math.random() < 2 ? found.entries.length : Date.now()"""


async def finish(world: World) -> tuple[str, str]:
    """A run with one program; returns its id and the id of its cell."""
    run_id = (await world.finished())["runId"]
    events = (await world.get(f"/api/runs/{run_id}/trajectory"))["events"]
    (cell,) = {
        it["event"]["data"]["runId"] for it in events if it["event"]["kind"] == "cell.started"
    }
    return run_id, cell


async def replay(world: World, run_id: str, **body: Any) -> dict[str, Any]:
    answer = await world.client.post(f"/api/runs/{run_id}/replay", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_a_recorded_program_runs_again_step_by_step(tmp_path: Path) -> None:
    script = [Call("exec", {"code": PROGRAM}), Say("done")]
    async with open_gateway(tmp_path, script, CODE_MODE) as world:
        run_id, cell_id = await finish(world)
        # The files have changed since; the replay does not look at them.
        await anyio.Path(tmp_path / "new.txt").write_text("x")
        found = await replay(world, run_id)
        page = await replay(world, run_id, cellId=cell_id, firstStep=2, maxSteps=1)
        until = await replay(world, run_id, until=1)
    assert found["difference"] is None
    (cell,) = found["cells"]
    assert (cell["cellId"], cell["stepCount"], cell["recordedSteps"]) == (cell_id, 3, 3)
    assert [step["cause"] for step in cell["steps"]] == ["start", "answers", "timers"]
    assert cell["steps"][0]["calls"][0]["name"] == "openclaw:core:list"
    assert cell["steps"][1]["answers"][0]["isSuccess"]
    assert cell["steps"][1]["output"][0]["isText"]
    assert cell["end"] == cell["recordedEnd"]
    assert cell["end"]["status"] == "completed"
    assert [step["number"] for step in page["cells"][0]["steps"]] == [2]
    assert page["cells"][0]["stepCount"] == 3
    assert (until["cells"][0]["stepCount"], until["cells"][0]["end"]) == (1, None)


async def test_changed_code_gets_recorded_answers_and_says_where_it_differs(tmp_path: Path) -> None:
    script = [Call("exec", {"code": PROGRAM}), Say("done")]
    async with open_gateway(tmp_path, script, CODE_MODE) as world:
        run_id, cell_id = await finish(world)
        code = "await tools.list({}); return tools.read({ path: 'other.txt' })"
        found = await replay(world, run_id, cellId=cell_id, code=code, language="typescript")
    (cell,) = found["cells"]
    assert cell["isCodeChanged"]
    assert "openclaw:core:read" in cell["difference"]
    recorded = {it["name"]: it["isRecorded"] for step in cell["steps"] for it in step["calls"]}
    assert recorded == {"openclaw:core:list": True, "openclaw:core:read": False}


async def test_a_record_that_was_changed_differs_at_the_step_and_large_values_are_cut(
    tmp_path: Path,
) -> None:
    await anyio.Path(tmp_path / "large.txt").write_text("pearls " * 4_000)
    code = "await tools.read({ path: 'large.txt' }); return 1"
    script = [Call("exec", {"code": code}), Say("done")]
    async with open_gateway(tmp_path, script, CODE_MODE) as world:
        run_id, _ = await finish(world)
        whole = await replay(world, run_id)
        await anyio.to_thread.run_sync(_change_record, tmp_path / "nacre.db")
        changed = await replay(world, run_id)
    (answer,) = whole["cells"][0]["steps"][1]["answers"]
    assert answer["valueCut"]["bytes"] > len(answer["value"]) > 10_000
    assert changed["difference"].endswith("the record says that it completed with the value 2")


def _change_record(path: Path) -> None:
    with sqlite3.connect(path) as database:
        change = "update nacre_events set event = replace(event, '\"value\":1}', '\"value\":2}')"
        assert database.execute(change + " where event like '%replay.bursts%'").rowcount > 0


async def test_what_cannot_be_replayed_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = [Call("exec", {"code": "return 1"}), Say("done"), Say("no program")]
    async with open_gateway(tmp_path, script, CODE_MODE) as world:
        run_id, _ = await finish(world)
        other = (await world.finished())["runId"]
        post = world.client.post
        path = f"/api/runs/{run_id}/replay"
        unknown = await post("/api/runs/run_unknown/replay", json={})
        no_cell = await post(path, json={"cellId": "nothing"})
        no_program = await post(f"/api/runs/{other}/replay", json={})
        wrong = await post(path, json={"until": 0})
        async with world.app.state.gateway.replays:
            busy = await post(path, json={})
        monkeypatch.setattr(replay_routes, "_MAX_SECONDS", 0.0)
        slow = await post(path, json={})
        monkeypatch.undo()
        # The one that took too long has freed its worker.
        assert (await replay(world, run_id))["difference"] is None
    assert error_of(unknown) == (404, "not_found")
    assert error_of(no_cell) == error_of(no_program) == (409, "not_replayable")
    assert "nothing" in no_cell.json()["error"]["message"]
    assert "no programs" in no_program.json()["error"]["message"]
    assert error_of(wrong) == (422, "invalid_request")
    assert (error_of(busy), "retry-after" in busy.headers) == ((429, "too_many"), True)
    assert error_of(slow) == (409, "not_replayable")
    assert "nacre replay" in slow.json()["error"]["message"]
