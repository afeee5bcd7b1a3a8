"""Trajectories over HTTP: in pages, and whole as lines."""

from pathlib import Path

from nacre.testing import Call, Say
from nacre.trajectory import import_json_lines
from tests.gateway.worlds import CODE_MODE, open_gateway

LINES = {"accept": "application/jsonl"}


async def test_a_trajectory_comes_in_pages_that_hold_everything_once(tmp_path: Path) -> None:
    script = [Call("exec", {"code": "return tools.list({})"}), Say("done")]
    async with open_gateway(tmp_path, script, CODE_MODE) as world:
        run = await world.finished()
        path = f"/api/runs/{run['runId']}/trajectory"
        whole = await world.get(path)
        paged: list[object] = []
        after: int | None = -1
        while after is not None:
            page = await world.get(path, params={"limit": 3, "after": after})
            paged += page["events"]
            after = page["nextAfter"]
    assert whole["nextAfter"] is None
    assert paged == whole["events"]
    sequences = [it["event"]["sequence"] for it in whole["events"]]
    assert sequences == list(range(len(sequences)))
    assert whole["events"][-1]["event"]["kind"] == "turn.ended"


async def test_a_run_as_lines_can_be_read_again(tmp_path: Path) -> None:
    script = [Call("exec", {"code": "return '\u2028'"}), Say("done")]
    async with open_gateway(tmp_path, script, CODE_MODE) as world:
        run = await world.finished()
        answer = await world.client.get(f"/api/runs/{run['runId']}/trajectory", headers=LINES)
        pages = await world.get(f"/api/runs/{run['runId']}/trajectory")
    assert answer.headers["content-type"].startswith("application/jsonl")
    events = import_json_lines(answer.text)
    assert [event.to_json() for event in events] == [it["event"] for it in pages["events"]]


async def test_a_session_has_the_events_of_all_its_runs(tmp_path: Path) -> None:
    async with open_gateway(tmp_path, lambda _request: Say("hi")) as world:
        runs = [await world.finished(sessionKey="k") for _ in range(2)]
        path = f"/api/sessions/{runs[0]['sessionId']}/trajectory"
        whole = await world.get(path)
        lines = await world.client.get(path, headers=LINES)
        missing = await world.client.get("/api/sessions/nowhere/trajectory")
    told = list(dict.fromkeys(it["runId"] for it in whole["events"]))
    assert told == [run["runId"] for run in runs]
    assert len(lines.text.splitlines()) == len(whole["events"])
    assert missing.status_code == 404
