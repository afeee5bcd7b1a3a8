"""Runs over HTTP: started, looked at, aborted, fed with what client tools returned."""

from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from nacre.errors import StorageError
from nacre.testing import Call, Fail, Say, Stall
from nacre.testing.scripted_provider import ScriptedProvider
from tests.gateway.worlds import CODE_MODE, PATIENCE_SECONDS, World, open_gateway, open_world

LOOK_UP = {"name": "look_up", "description": "Looks it up.", "parameters": {"type": "object"}}
CELL = (
    "const [a, b] = await Promise.all([tools.look_up({q: 1}), tools.look_up({q: 2})]); return a + b"
)


async def waiting(world: World, run_id: str) -> dict[str, Any]:
    with anyio.fail_after(PATIENCE_SECONDS):
        assert await world.run(run_id).waiting_or_ended() == "waiting"
    return await world.get(f"/api/runs/{run_id}")


async def test_a_message_begins_a_run_that_can_be_looked_at(tmp_path: Path) -> None:
    async with open_gateway(tmp_path, [Say("good day")]) as world:
        answer = await world.client.post("/api/runs", json={"text": "hello", "title": "Greetings"})
        started = answer.json()
        await world.end_of(started["runId"])
        run = await world.get(answer.headers["location"])
        session = await world.get(f"/api/sessions/{started['sessionId']}")
    assert (answer.status_code, started["agentId"]) == (202, "main")
    assert (run["state"], run["result"]["text"], run["result"]["finishReason"]) == (
        "completed",
        "good day",
        "stop",
    )
    assert run["result"]["usage"]["outputTokens"] > 0
    assert session["session"]["title"] == "Greetings"


async def test_a_session_goes_on_by_its_id_and_by_its_key(tmp_path: Path) -> None:
    async with open_gateway(tmp_path, [Say("one"), Say("two"), Say("three")]) as world:
        first = await world.finished("a", sessionKey="mine")
        second = await world.finished("b", sessionKey="mine")
        third = await world.finished("c", sessionId=first["sessionId"])
        assert {first["sessionId"], second["sessionId"]} == {third["sessionId"]}
        assert [message.text for message in world.model.requests[-1].messages][-5:] == [
            "a",
            "one",
            "b",
            "two",
            "c",
        ]


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({}, 400, "invalid"),
        ({"text": "a", "sessionId": "nowhere"}, 404, "not_found"),
        ({"text": "a", "sessionId": "\u0000"}, 404, "not_found"),
        ({"text": "a", "agentId": "nobody"}, 404, "not_found"),
        ({"text": "a", "sessionId": "x", "sessionKey": "y"}, 400, "invalid"),
        ({"text": "a", "model": "nobody/nothing"}, 404, "unknown_model"),
        (
            {"text": "a", "clientTools": [{"name": "a", "parameters": {"type": "null"}}]},
            400,
            "invalid_tool",
        ),
    ],
)
async def test_what_cannot_be_started_is_refused(
    tmp_path: Path, body: Any, status: int, code: str
) -> None:
    async with open_gateway(tmp_path) as world:
        answer = await world.client.post("/api/runs", json=body)
        assert (await world.get("/api/runs"))["runs"] == []
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)


async def test_a_picture_and_settings_reach_the_model(tmp_path: Path) -> None:
    picture = "data:image/png;base64,iVBORw0KGgo="
    async with open_gateway(tmp_path, [Say("a dot")]) as world:
        await world.finished("what is it?", images=[picture], settings={"temperature": 0.5})
        body: Any = world.model.requests[0].body
    assert picture in str(body["messages"])
    assert body["temperature"] == 0.5


async def test_a_run_that_fails_says_why(tmp_path: Path) -> None:
    async with open_gateway(tmp_path, [Fail(400, "no such thing as a free lunch")]) as world:
        run = await world.finished()
    assert run["state"] == "failed"
    assert "free lunch" in run["result"]["error"]


async def test_an_abort_is_answered_when_the_run_has_really_ended(tmp_path: Path) -> None:
    async with open_gateway(tmp_path, [[Say("well "), Stall()]]) as world:
        started = await world.start()
        path = f"/api/runs/{started['runId']}"
        async for event in world.follow(f"{path}/events"):
            if event.kind == "text.delta":
                break
        aborted = await world.client.post(f"{path}/abort", json={"reason": "enough"})
        assert world.run(started["runId"]).has_ended
        again = await world.client.post(f"{path}/abort")
        run = await world.get(path)
        assert run["result"]["finishReason"] == "aborted"
    assert aborted.json() == {"runId": started["runId"], "state": "aborted", "wasAborted": True}
    assert again.json()["wasAborted"] is False
    assert (run["state"], run["result"]["error"]) == ("aborted", "enough")


async def test_results_of_client_tools_resume_the_very_cell(tmp_path: Path) -> None:
    script = [Call("exec", {"code": CELL}), Say("both")]
    async with open_gateway(tmp_path, script, CODE_MODE) as world:
        started = await world.start(clientTools=[LOOK_UP])
        path = f"/api/runs/{started['runId']}"
        pending = (await waiting(world, started["runId"]))["pendingClientCalls"]
        assert [(it["name"], it["arguments"]) for it in pending] == [
            ("look_up", {"q": 1}),
            ("look_up", {"q": 2}),
        ]
        assert all(it["parentToolCallId"] for it in pending)
        results = [{"callId": it["callId"], "content": 20 + n} for n, it in enumerate(pending)]
        unknown = {"results": [results[0], {"callId": "nobody's"}]}
        refused = await world.client.post(f"{path}/client-results", json=unknown)
        twice = {"results": [results[0], results[0]]}
        refused_twice = await world.client.post(f"{path}/client-results", json=twice)
        assert len(world.run(started["runId"]).pending_client_calls) == 2
        taken = await world.client.post(f"{path}/client-results", json={"results": results})
        await world.end_of(started["runId"])
        late = await world.client.post(f"{path}/client-results", json={"results": results})
        said = [message.text for message in world.model.requests[-1].messages]
    assert (refused.status_code, refused.json()["error"]["path"]) == (404, "body.results[1].callId")
    assert refused_twice.status_code == 400
    assert (taken.status_code, taken.json()["pendingClientCalls"]) == (200, [])
    assert late.status_code == 409
    assert '"value":41' in said[-1]


async def test_a_failure_of_a_client_tool_reaches_the_program(tmp_path: Path) -> None:
    code = "try { await tools.look_up({}) } catch (error) { return error.message }"
    script = [Call("exec", {"code": code}), Say("oh")]
    async with open_gateway(tmp_path, script, CODE_MODE) as world:
        started = await world.start(clientTools=[LOOK_UP])
        pending = (await waiting(world, started["runId"]))["pendingClientCalls"]
        result = {"callId": pending[0]["callId"], "content": "no network", "isError": True}
        path = f"/api/runs/{started['runId']}/client-results"
        await world.client.post(path, json={"results": [result]})
        await world.end_of(started["runId"])
        assert "no network" in world.model.requests[-1].messages[-1].text


async def test_after_a_restart_a_run_is_told_from_the_database(tmp_path: Path) -> None:
    async with ScriptedProvider([Say("kept")]) as model:
        async with open_world(tmp_path, model) as world:
            before = await world.finished()
        async with open_world(tmp_path, model) as world:
            path = f"/api/runs/{before['runId']}"
            run = await world.get(path)
            aborted = await world.client.post(f"{path}/abort")
            result = {"results": [{"callId": "x"}]}
            delivered = await world.client.post(f"{path}/client-results", json=result)
    assert (run["state"], run["isLive"], run["result"]["text"]) == ("completed", False, "kept")
    assert (run["agentId"], run["result"]["finishReason"]) == ("main", "stop")
    assert before["isLive"] is False
    assert aborted.json()["wasAborted"] is False
    assert delivered.status_code == 409


async def test_a_run_that_never_was_is_not_found(tmp_path: Path) -> None:
    async with open_gateway(tmp_path) as world:
        for path in ("run_x", "run_x/events", "run_x/trajectory", "%00", "a" * 5000):
            assert (await world.client.get(f"/api/runs/{path}")).status_code == 404, path
        assert (await world.client.post("/api/runs/run_x/abort")).status_code == 404


async def test_a_message_during_a_run_goes_by_the_queue_mode(tmp_path: Path) -> None:
    release = anyio.Event()
    script = [[Stall(release), Say("one")], Say("two")]
    async with open_gateway(tmp_path, script) as world:
        first = await world.start("a", sessionKey="k")
        second = await world.start("b", sessionKey="k", queueMode="followup")
        runs = (await world.get("/api/runs", params={"sessionId": first["sessionId"]}))["runs"]
        release.set()
        await world.end_of(second["runId"])
    assert [run["runId"] for run in runs] == [first["runId"], second["runId"]]
    assert (runs[1]["state"], runs[1]["isLive"]) == ("queued", True)


async def test_a_gateway_that_ends_takes_no_more_runs(tmp_path: Path) -> None:
    async with open_gateway(tmp_path) as world:
        world.app.state.gateway.is_closing = True
        refused = await world.client.post("/api/runs", json={"text": "late"})
        ready = await world.client.get("/readyz")
        world.app.state.gateway.is_closing = False
        await world.system.agents.aclose()
        refused_too = await world.client.post("/api/runs", json={"text": "late"})
        alive = await world.client.get("/healthz")
    assert [refused.status_code, refused_too.status_code] == [503, 503]
    assert refused.json()["error"]["code"] == "shutting_down"
    assert (ready.status_code, ready.json(), alive.status_code) == (503, {"status": "closing"}, 200)


async def test_a_turn_that_is_not_kept_has_a_code_in_memory_and_from_the_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def full(*_args: object, **_options: object) -> None:
        raise StorageError("the disk is full")

    def forgotten(_run_id: str) -> None:
        return None

    async with open_gateway(tmp_path, [Say("one")]) as world:
        with monkeypatch.context() as patch:
            patch.setattr(world.system.store, "end_turn", full)
            started = await world.start()
            await world.end_of(started["runId"])
        place = f"/api/runs/{started['runId']}"
        live = await world.get(place)
        store = world.system.store
        with anyio.fail_after(PATIENCE_SECONDS):
            while (turn := await store.turn(started["runId"])) and turn.status == "running":
                await anyio.lowlevel.checkpoint()
        monkeypatch.setattr(world.system.agents, "run", forgotten)
        stored = await world.get(place)
    for run in (live, stored):
        assert (run["state"], run["result"]["errorCode"]) == ("failed", "storage_failed")
        assert run["result"]["error"] == "the turn is not kept: the disk is full"


async def test_two_client_tools_of_one_name_and_odd_model_names_are_refused(tmp_path: Path) -> None:
    async with open_gateway(tmp_path) as world:
        twice = {"text": "hi", "clientTools": [{"name": "f"}, {"name": "g"}, {"name": "f"}]}
        tools = await world.client.post("/api/runs", json=twice)
        odd = {"text": "hi", "model": "scripted/a\x1bb"}
        model = await world.client.post("/api/runs", json=odd)
        runs = await world.get("/api/runs")
    assert (tools.status_code, tools.json()["error"]["code"]) == (400, "invalid_tool")
    assert "'f'" in tools.json()["error"]["message"]
    assert (model.status_code, model.json()["error"]["code"]) == (404, "unknown_model")
    assert runs["runs"] == []
