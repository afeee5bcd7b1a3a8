"""The catalog over HTTP: search, descriptions, the surface, manual calls and the playground."""

from pathlib import Path
from typing import Any

import httpx2

from nacre.testing import Say
from tests.gateway.worlds import CODE_MODE, World, error_of, open_gateway

READ, WRITE = "openclaw:core:read", "openclaw:core:write"


async def call(world: World, tool_id: str, given: dict[str, Any], **more: str) -> httpx2.Response:
    body = {"toolId": tool_id, "input": given, **more}
    return await world.client.post("/api/catalog/call", json=body)


async def test_tools_are_found_with_the_parts_of_their_scores(tmp_path: Path) -> None:
    async with open_gateway(tmp_path, [], CODE_MODE) as world:
        found = await world.get("/api/catalog/search", params={"q": "read a file", "limit": 3})
        hostile = ["", '" OR (', "\0", "x" * 2000]
        odd = [await world.client.get("/api/catalog/search", params={"q": it}) for it in hostile]
        unknown = await world.client.get("/api/catalog/search", params={"q": "x", "agentId": "?"})
    assert found["hits"][0]["toolId"] == READ
    scores = [hit["score"] for hit in found["hits"]]
    assert len(scores) == 3 and scores == sorted(scores, reverse=True)
    explanation = found["hits"][0]["explanation"]
    assert {"read", "file"} <= {it["term"] for it in explanation["terms"]}
    total = sum(it["score"] for it in explanation["terms"]) + (explanation["meaning"] or 0)
    assert abs(total - scores[0]) < 1e-6
    assert [answer.status_code for answer in odd] == [200] * 4
    assert error_of(unknown) == (404, "not_found")


async def test_the_model_sees_less_than_what_is_behind_it(tmp_path: Path) -> None:
    async with open_gateway(tmp_path / "a", [], CODE_MODE) as world:
        code_mode = await world.get("/api/catalog/surface")
    async with open_gateway(tmp_path / "b", []) as world:
        direct = await world.get("/api/catalog/surface")
    async with open_gateway(tmp_path / "c", [], {"tools": {"toolSearch": True}}) as world:
        search = await world.get("/api/catalog/surface")
    assert [it["name"] for it in code_mode["visible"]] == ["exec", "wait"]
    assert code_mode["visibleBytes"] == sum(it["bytes"] for it in code_mode["visible"])
    assert code_mode["catalog"] == direct["catalog"]
    assert direct["visibleBytes"] == direct["catalog"]["bytes"]
    assert len(direct["visible"]) == direct["catalog"]["tools"] > 4
    assert (search["surface"], direct["surface"]) == ("tool_search", "direct")
    assert search["visible"] and search["visibleBytes"] > 0


async def test_a_tool_is_described_with_its_declaration(tmp_path: Path) -> None:
    async with open_gateway(tmp_path, [], {"tools": {"deny": ["write"]}}) as world:
        tool = await world.get(f"/api/catalog/tools/{READ}")
        denied = await world.client.get(f"/api/catalog/tools/{WRITE}")
        refused = await call(world, WRITE, {"path": "a", "content": "b"})
    assert tool["toolName"] == "read" and "path" in tool["parameters"]["properties"]
    assert "function read(" in tool["declaration"] and "path" in tool["declaration"]
    assert tool["seenAs"]["function"]["name"] == "read"
    assert error_of(denied) == error_of(refused) == (404, "not_found")


async def test_a_call_by_hand_has_a_result_a_record_and_errors(tmp_path: Path) -> None:
    (tmp_path / "pearls.txt").write_text("three\n", encoding="utf-8")
    async with open_gateway(tmp_path, [Say("hi")], CODE_MODE) as world:
        done = (await call(world, READ, {"path": "pearls.txt"})).json()
        failed = (await call(world, READ, {"path": "none"}, sessionId=done["sessionId"])).json()
        invalid = (await call(world, READ, {"wrong": 1})).json()
        session = await world.get(f"/api/sessions/{done['sessionId']}")
        assert world.model.requests == []
        # The model can continue the session.
        assert (await world.finished("go on", sessionId=done["sessionId"]))["state"] == "completed"
    assert (done["state"], done["result"]["text"], done["error"]) == ("completed", "three\n", "")
    assert failed["state"] == invalid["state"] == "failed" and failed["error"]
    assert "path" in invalid["error"]
    first, second = session["turns"]
    assert (first["runId"], first["surface"], first["status"]) == (
        done["runId"],
        "direct",
        "completed",
    )
    assert [(it["toolId"], it["outcome"]) for it in first["calls"]] == [(READ, "completed")]
    assert second["status"] == "failed"
    assert session["session"]["channel"] == "playground"


async def test_a_call_in_a_session_uses_the_tools_of_its_agent(tmp_path: Path) -> None:
    (tmp_path / "pearls.txt").write_text("three\n", encoding="utf-8")
    agents = [{"id": "main", "tools": {"deny": ["read"]}}, {"id": "diver"}]
    async with open_gateway(tmp_path, [], {"agents": {"list": agents}}) as world:
        first = (await call(world, READ, {"path": "pearls.txt"}, agentId="diver")).json()
        given = {"sessionId": first["sessionId"]}
        second = (await call(world, READ, {"path": "pearls.txt"}, **given)).json()
        denied = await call(world, READ, {"path": "pearls.txt"})
    assert second["result"]["text"] == first["result"]["text"] == "three\n"
    assert denied.status_code == 404


async def test_a_call_by_hand_waits_for_its_approval(tmp_path: Path) -> None:
    document = {"tools": {"fs": {"ask": "always"}}}
    async with open_gateway(tmp_path, [], document) as world:
        asked = (await call(world, WRITE, {"path": "a.txt", "content": "pearls"})).json()
        assert asked["state"] == "waiting" and not (tmp_path / "a.txt").exists()
        [approval] = (await world.get("/api/approvals"))["pending"]
        assert approval["runId"] == asked["runId"]
        path = f"/api/approvals/{approval['approvalId']}"
        await world.client.post(path, json={"answer": "allow-once"})
        await world.end_of(asked["runId"])
        run = await world.get(f"/api/runs/{asked['runId']}")
    assert run["state"] == "completed"
    assert (tmp_path / "a.txt").read_text(encoding="utf-8") == "pearls"


async def test_a_program_runs_yields_and_is_resumed_by_a_person(tmp_path: Path) -> None:
    code = (
        "const before: number = (await tools.list({})).entries.length; await yield_control('ok?');"
    )
    body = {"code": f"{code} text('on'); return before", "language": "typescript"}
    async with open_gateway(tmp_path, []) as world:
        answer = await world.client.post("/api/playground", json=body)
        assert answer.status_code == 202, answer.text
        run_id = answer.json()["runId"]
        await world.wait_for_event(run_id, "run.waiting")
        [cell] = (await world.get("/api/cells"))["cells"]
        resumed = await world.client.post(f"/api/cells/{cell['cellId']}/resume")
        assert resumed.status_code == 200
        await world.end_of(run_id)
        events = await world.events(f"/api/runs/{run_id}/events")
        run = await world.get(f"/api/runs/{run_id}")
    assert (cell["state"], cell["reason"], cell["runId"]) == ("waiting", "yield", run_id)
    assert cell["canBeResumed"]
    kinds = [event.kind for event in events]
    for kind in ("call.started", "cell.started", "cell.suspended", "cell.resumed", "cell.ended"):
        assert kind in kinds
    assert run["state"] == "completed" and '"status":"completed"' in run["result"]["text"]


async def test_a_program_that_fails_or_is_discarded_ends_its_run(tmp_path: Path) -> None:
    async with open_gateway(tmp_path, [], CODE_MODE) as world:
        failing = (await world.client.post("/api/playground", json={"code": "/nope("})).json()
        await world.end_of(failing["runId"])
        body = {"code": "await yield_control(); return 1", "sessionId": failing["sessionId"]}
        waiting = (await world.client.post("/api/playground", json=body)).json()
        await world.wait_for_event(waiting["runId"], "run.waiting")
        [cell] = (await world.get("/api/cells"))["cells"]
        await world.client.post(f"/api/cells/{cell['cellId']}/abort")
        await world.end_of(waiting["runId"])
        states = [world.run(it["runId"]).state for it in (failing, waiting)]
        missing = await world.client.post("/api/playground", json={**body, "sessionId": "none"})
    assert states[0] == "failed" and states[1] in ("completed", "failed")
    assert failing["sessionId"] == waiting["sessionId"]
    assert error_of(missing) == (404, "not_found")
