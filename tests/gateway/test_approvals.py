"""Approvals over HTTP: listed, answered once, and remembered."""

import json
from pathlib import Path
from typing import Any

import anyio
import pytest

from nacre.testing import Call, Say
from tests.gateway.worlds import CODE_MODE, PATIENCE_SECONDS, World, open_gateway

WRITE = "return await tools.write({path: 'note.txt', content: 'password=hunter2hunter2'})"
ANYWAY = f"try {{ {WRITE} }} catch (error) {{ return error.message }}"


def script(code: str) -> list[Any]:
    return [Call("exec", {"code": code}), Say("done")]


async def asked(world: World) -> tuple[str, dict[str, Any]]:
    """A run that waits for an answer, and the question."""
    started = await world.start()
    with anyio.fail_after(PATIENCE_SECONDS):
        assert await world.run(started["runId"]).waiting_or_ended() == "waiting"
    [question] = (await world.get("/api/approvals"))["pending"]
    return started["runId"], question


async def test_a_question_is_shown_and_its_answer_lets_the_program_go_on(tmp_path: Path) -> None:
    async with open_gateway(tmp_path, script(WRITE), CODE_MODE) as world:
        run_id, question = await asked(world)
        shown = (await world.get(f"/api/runs/{run_id}"))["pendingApprovals"]
        path = f"/api/approvals/{question['approvalId']}"
        answered = await world.client.post(path, json={"answer": "allow-once"})
        again = await world.client.post(path, json={"answer": "deny"})
        await world.end_of(run_id)
        after = await world.get("/api/approvals", params={"all": True})
        events = [event.kind for event in await world.events(f"/api/runs/{run_id}/events")]
        text = await anyio.Path(tmp_path / "note.txt").read_text(encoding="utf-8")
    assert shown == [question]
    assert (question["toolName"], question["runId"]) == ("write", run_id)
    assert question["parentToolCallId"]
    assert (answered.status_code, again.status_code) == (200, 409)
    assert text == "password=hunter2hunter2"
    assert after["pending"] == []
    assert [it["state"] for it in after["past"]] == ["allowed"]
    assert events.index("approval.requested") < events.index("approval.answered")


async def test_a_denial_reaches_the_program_with_its_reason(tmp_path: Path) -> None:
    async with open_gateway(tmp_path, script(ANYWAY), CODE_MODE) as world:
        run_id, question = await asked(world)
        denied = {"answer": "deny", "reason": "not on a Friday"}
        await world.client.post(f"/api/approvals/{question['approvalId']}", json=denied)
        await world.end_of(run_id)
        assert "not on a Friday" in world.model.requests[-1].messages[-1].text
    assert not (tmp_path / "note.txt").exists()


async def test_an_edited_input_is_what_is_called(tmp_path: Path) -> None:
    async with open_gateway(tmp_path, script(WRITE), CODE_MODE) as world:
        run_id, question = await asked(world)
        edited = {"answer": "edit", "input": {"path": "other.txt", "content": "better"}}
        await world.client.post(f"/api/approvals/{question['approvalId']}", json=edited)
        await world.end_of(run_id)
    assert (tmp_path / "other.txt").read_text(encoding="utf-8") == "better"
    assert not (tmp_path / "note.txt").exists()


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"answer": "maybe"}, 422),
        ({}, 422),
        ({"answer": "edit"}, 400),
        ({"answer": "allow-once", "input": {}}, 400),
        ({"answer": "edit", "input": []}, 422),
        ({"answer": "edit", "input": {"path": 5, "content": "x"}}, 422),
    ],
)
async def test_what_is_no_answer_leaves_the_question_open(
    tmp_path: Path, body: Any, status: int
) -> None:
    async with open_gateway(tmp_path, script(WRITE), CODE_MODE) as world:
        run_id, question = await asked(world)
        path = f"/api/approvals/{question['approvalId']}"
        answer = await world.client.post(path, json=body)
        assert (await world.get("/api/approvals"))["pending"] == [question]
        await world.client.post(path, json={"answer": "allow-once"})
        await world.end_of(run_id)
    assert answer.status_code == status


async def test_what_is_wrong_with_an_edited_input_is_named(tmp_path: Path) -> None:
    async with open_gateway(tmp_path, script(WRITE), CODE_MODE) as world:
        _, question = await asked(world)
        edited = {"answer": "edit", "input": {"path": 5, "content": "x"}}
        answer = await world.client.post(f"/api/approvals/{question['approvalId']}", json=edited)
    error = answer.json()["error"]
    assert error["path"] == "body.input"
    assert "path" in error["message"]


async def test_what_was_asked_before_does_not_hold_what_is_asked_now(tmp_path: Path) -> None:
    steps = [Call("exec", {"code": ANYWAY}), Say("a"), Call("exec", {"code": ANYWAY}), Say("b")]
    async with open_gateway(tmp_path, steps, CODE_MODE) as world:
        run_id, first = await asked(world)
        unasked = await world.get("/api/approvals")
        await world.client.post(f"/api/approvals/{first['approvalId']}", json={"answer": "deny"})
        await world.end_of(run_id)
        _, second = await asked(world)
        listed = await world.get("/api/approvals", params={"all": True})
    assert unasked["past"] == []
    assert [it["approvalId"] for it in listed["pending"]] == [second["approvalId"]]
    assert [(it["approvalId"], it["agentId"]) for it in listed["past"]] == [
        (first["approvalId"], "main")
    ]


async def test_a_question_that_was_never_asked_is_not_found(tmp_path: Path) -> None:
    async with open_gateway(tmp_path) as world:
        answer = await world.client.post("/api/approvals/none", json={"answer": "deny"})
    assert answer.status_code == 404


async def test_an_abort_withdraws_the_question(tmp_path: Path) -> None:
    async with open_gateway(tmp_path, script(WRITE), CODE_MODE) as world:
        run_id, question = await asked(world)
        await world.client.post(f"/api/runs/{run_id}/abort")
        late = await world.client.post(
            f"/api/approvals/{question['approvalId']}", json={"answer": "allow-once"}
        )
        listed = await world.get("/api/approvals", params={"sessionId": question["sessionId"]})
    assert late.status_code == 409
    assert listed["pending"] == []
    assert not (tmp_path / "note.txt").exists()


async def test_nothing_of_an_input_can_be_hidden_from_the_person_who_allows_it(
    tmp_path: Path,
) -> None:
    # The first looks like a secret to its end, and the second is longer than records are.
    texts = ["x # -----BEGIN A PRIVATE KEY-----\nrm -rf ~", f"{'x' * 5_000}; rm -rf ~"]
    given = {"path": "note.txt", "content": "\n".join(texts)}
    code = f"return await tools.write({json.dumps(given)})"
    async with open_gateway(tmp_path, script(code), CODE_MODE) as world:
        run_id, question = await asked(world)
        path = f"/api/approvals/{question['approvalId']}"
        response = await world.client.get(f"{path}/input")
        await world.client.post(path, json={"answer": "allow-once"})
        await world.end_of(run_id)
        gone = await world.client.get(f"{path}/input")
        unknown = await world.client.get("/api/approvals/none/input")
    assert "rm -rf" not in json.dumps(question)
    assert response.json() == {"approvalId": question["approvalId"], "input": given}
    assert response.headers["cache-control"] == "no-store"
    assert (gone.status_code, unknown.status_code) == (409, 404)
