"""Operating a gateway over HTTP: status, cells, MCP servers, logs, diagnostics, heartbeats."""

import logging
import os
import sys
from pathlib import Path
from typing import Any

import anyio

from nacre.storage import ThreadRecord
from nacre.testing import Call, RecordedRequest, Say, Stall
from nacre.testing.script import PlainTurn
from tests.gateway.worlds import CODE_MODE, TOKEN, error_of, open_gateway

SMALL_SERVER = Path(__file__).parents[1] / "cli" / "small_mcp_server.py"
READER = {"authorization": "Bearer reader-0123456789abcdef"}
NAMED_TOKENS = {
    "auth": {
        "token": TOKEN,
        "tokens": {"reader": {"token": "reader-0123456789abcdef", "scopes": ["read", "run"]}},
    }
}
HEARTBEAT_ALERT: dict[str, Any] = {
    "outcome": "needs_attention",
    "notify": True,
    "summary": "full",
    "priority": "high",
}
HEARTBEATS: dict[str, Any] = {
    "agents": {
        "list": [
            {"id": "main", "heartbeat": {"every": "1h", "target": "last"}},
            {"id": "other"},
        ]
    }
}


async def test_the_status_has_workers_runs_database_and_disk(tmp_path: Path) -> None:
    async with open_gateway(tmp_path, lambda _request: Stall(), CODE_MODE) as world:
        await world.system.runtime.sandbox.ensure_available()
        await world.start("wait")
        status = await world.get("/api/status")
        # One gateway serves a file.
        assert await world.get("/api/gateways") == {"gateways": []}
    assert (status["pid"], status["auth"]) == (os.getpid(), {"mode": "token"})
    assert status["memoryBytes"] > 1_000_000
    assert [worker["state"] for worker in status["workers"]] == ["idle"]
    assert status["workers"][0]["memoryBytes"] > 100_000
    assert sum(status["runs"].values()) == 1
    assert status["database"]["kind"] == "sqlite" and status["database"]["isReady"]
    assert status["database"]["location"] == str(tmp_path / "nacre.db")
    assert status["database"]["bytes"] > 0 and status["disk"]["freeBytes"] > 0
    assert status["config"] == {"path": "", "problems": []} and status["codex"] == []


async def test_a_waiting_cell_of_a_model_is_listed_and_aborted(tmp_path: Path) -> None:
    code = "await yield_control('look'); return 1"
    script = [Call("exec", {"code": code}), Stall()]
    async with open_gateway(tmp_path, script, CODE_MODE) as world:
        started = await world.start("go")
        await world.wait_for_event(started["runId"], "call.ended")
        [cell] = (await world.get("/api/cells"))["cells"]
        path = f"/api/cells/{cell['cellId']}"
        of_session = await world.get("/api/cells", params={"sessionId": started["sessionId"]})
        of_other = await world.get("/api/cells", params={"sessionId": "other"})
        aborted = await world.client.post(f"{path}/abort")
        gone = [await world.client.post(f"{path}/{action}") for action in ("abort", "resume")]
        assert (await world.get("/api/cells"))["cells"] == []
    assert cell["runId"] == started["runId"] and cell["sessionId"] == started["sessionId"]
    assert (cell["reason"], cell["code"], cell["language"]) == ("yield", code, "javascript")
    assert cell["snapshotBytes"] > 0 and cell["canBeResumed"]
    assert cell["createdAt"] < cell["expiresAt"]
    assert [it["cellId"] for it in of_session["cells"]] == [cell["cellId"]]
    assert of_other["cells"] == []
    assert aborted.json() == {"cellId": cell["cellId"]}
    assert [error_of(it) for it in gone] == [(404, "not_found")] * 2


async def test_a_person_resumes_a_waiting_cell_and_the_model_gets_its_result(
    tmp_path: Path,
) -> None:
    code = "await yield_control('look'); return 'after the yield'"
    has_resumed = anyio.Event()

    def wait(request: RecordedRequest) -> PlainTurn:
        return [Stall(has_resumed), Call("wait", {"runId": request.last_object["runId"]})]

    script = [Call("exec", {"code": code}), wait, Say("done")]
    async with open_gateway(tmp_path, script, CODE_MODE) as world:
        run_id = (await world.start("go"))["runId"]
        await world.wait_for_event(run_id, "cell.suspended")
        [cell] = (await world.get("/api/cells"))["cells"]
        resumed = await world.client.post(f"/api/cells/{cell['cellId']}/resume")
        await world.wait_for_event(run_id, "cell.ended")
        has_resumed.set()
        await world.end_of(run_id)
        results = world.model.requests[-1].tool_results
    assert (resumed.status_code, resumed.json()) == (200, {"cellId": cell["cellId"]})
    assert "after the yield" in results[1] and '"status":"completed"' in results[1]


async def test_a_cell_that_waits_for_an_answer_is_not_resumed_but_continues_with_it(
    tmp_path: Path,
) -> None:
    code = "return tools.write({ path: 'a.txt', content: 'pearls' })"
    document = {"tools": {"codeMode": {"enabled": True}, "fs": {"ask": "always"}}}
    script = [Call("exec", {"code": code}), Say("done")]
    async with open_gateway(tmp_path, script, document) as world:
        run_id = (await world.start("go"))["runId"]
        await world.wait_for_event(run_id, "cell.suspended")
        [cell] = (await world.get("/api/cells"))["cells"]
        refused = await world.client.post(f"/api/cells/{cell['cellId']}/resume")
        [approval] = (await world.get("/api/approvals"))["pending"]
        answer = {"answer": "allow-once"}
        await world.client.post(f"/api/approvals/{approval['approvalId']}", json=answer)
        await world.end_of(run_id)
        results = world.model.requests[-1].tool_results
    assert not cell["canBeResumed"] and error_of(refused) == (409, "conflict")
    assert "openclaw:core:write" in refused.json()["error"]["message"]
    assert '"status":"completed"' in results[0]


async def test_an_mcp_server_is_listed_and_restarted(tmp_path: Path) -> None:
    servers = {
        "small": {"command": sys.executable, "args": [str(SMALL_SERVER), "a"]},
        "broken": {"command": sys.executable, "args": ["-c", "raise SystemExit('no')"]},
        "off": {"command": "x", "disabled": True},
    }
    document = {"mcp": {"servers": servers}, "gateway": NAMED_TOKENS}
    async with open_gateway(tmp_path, [], document) as world:
        before = await world.get("/api/servers")
        await world.client.post("/api/servers/small/restart")
        answer = await world.client.post("/api/servers/small/restart")
        [small] = answer.json()["servers"]
        [broken] = (await world.client.post("/api/servers/broken/restart")).json()["servers"]
        disabled = await world.client.post("/api/servers/off/restart")
        unknown = await world.client.post("/api/servers/none/restart")
        refused = await world.client.post("/api/servers/small/restart", headers=READER)
        status = await world.get("/api/status")
    states = [(it["name"], it["state"]) for it in before["servers"]]
    assert states == [("small", "idle"), ("broken", "idle"), ("off", "closed")]
    assert (small["state"], small["tools"], small["restarts"]) == ("ready", 1, 1)
    assert small["listedAt"] > 0 and small["transport"] == "stdio"
    assert broken["state"] == "failed" and broken["problem"]
    assert error_of(disabled) == error_of(unknown) == (404, "not_found")
    assert error_of(refused) == (403, "missing_scope")
    assert any("MCP server broken" in it for it in status["config"]["problems"])


async def test_the_log_has_no_secrets_and_no_commands_for_terminals(tmp_path: Path) -> None:
    async with open_gateway(tmp_path, [], {"gateway": NAMED_TOKENS}) as world:
        logger = logging.getLogger("nacre.reef")
        start = (await world.get("/api/logs"))["lastN"]
        logger.warning("\x1b[31mred\x1b[0m \x1b]0;title\x07and Bearer %s", TOKEN)
        logger.error("second")
        found = await world.get("/api/logs", params={"after": start})
        errors = await world.get("/api/logs", params={"after": start, "level": "error"})
        nothing = await world.get("/api/logs", params={"after": found["lastN"]})
        last = await world.get("/api/logs", params={"after": start, "limit": 1})
        refused = await world.client.get("/api/logs", headers=READER)
    [red, second] = [it for it in found["lines"] if it["logger"] == "nacre.reef"]
    assert red["message"].startswith("red and Bearer") and TOKEN not in red["message"]
    assert (second["level"], second["n"]) == ("error", red["n"] + 1)
    assert [it["message"] for it in errors["lines"]] == ["second"]
    assert [it["message"] for it in last["lines"]] == ["second"]
    assert nothing["lines"] == []
    assert error_of(refused) == (403, "missing_scope")


async def test_a_support_bundle_is_written_after_an_approval(tmp_path: Path) -> None:
    async with open_gateway(tmp_path, [Say("Hello.")], {"gateway": NAMED_TOKENS}) as world:
        world.system.diagnostics.folder = tmp_path / "bundles"
        asked = (await world.client.post("/api/diagnostics", json={"note": "slow"})).json()
        assert asked["state"] == "waiting" and "when you allow it" in asked["message"]
        assert not (tmp_path / "bundles").exists()
        path = f"/api/approvals/{asked['approvalId']}"
        assert (await world.client.post(path, json={"answer": "allow-once"})).status_code == 200
        await world.end_of(asked["runId"])
        [bundle] = (tmp_path / "bundles").iterdir()
        run = await world.get(f"/api/runs/{asked['runId']}")
        refused = await world.client.post("/api/diagnostics", headers=READER)
    assert str(bundle) in run["result"]["text"]
    assert error_of(refused) == (403, "missing_scope")


async def test_threads_of_codex_are_listed_with_their_sessions(tmp_path: Path) -> None:
    async with open_gateway(tmp_path, []) as world:
        await world.system.store.add_session(id="s", agent_id="main")
        data: dict[str, Any] = {"model": "openai/gpt-5", "usedTokens": 7, "windowTokens": "?"}
        await world.system.store.put_thread(
            ThreadRecord(session_id="s", thread_id="t", data=data, created=1.0, updated=2.0)
        )
        [thread] = (await world.get("/api/codex/threads"))["threads"]
    assert (thread["sessionId"], thread["threadId"], thread["model"]) == ("s", "t", "openai/gpt-5")
    assert (thread["usedTokens"], thread["windowTokens"], thread["provider"]) == (7, 0, None)


async def test_a_client_wakes_an_agent_and_reads_what_became_of_it(tmp_path: Path) -> None:
    script = [Call("heartbeat_respond", HEARTBEAT_ALERT), Say("told"), Say("HEARTBEAT_OK")]
    async with open_gateway(tmp_path, script, HEARTBEATS) as world:
        before = await world.get("/api/heartbeats")
        answer = await world.client.post("/api/heartbeats/main")
        await world.end_of(answer.json()["runId"])
        session = await world.get(f"/api/sessions/{answer.json()['sessionId']}")
        after = await world.get("/api/heartbeats")
        # An agent without settings can be woken, too.
        other = await world.client.post("/api/heartbeats/other")
        await world.end_of(other.json()["runId"])
        nobody = await world.client.post("/api/heartbeats/nobody")

    [status] = before["heartbeats"]
    assert (status["agentId"], status["everySeconds"], status["last"]) == ("main", 3600, None)
    assert (answer.status_code, answer.json()["status"]) == (202, "running")
    last = after["heartbeats"][0]["last"]
    assert (last["status"], last["text"], last["priority"]) == ("notified", "full", "high")
    [turn] = session["turns"]
    assert (turn["trigger"], turn["sent"]) == ("heartbeat", ["full"])
    assert [message["text"] for message in session["messages"]] == ["[heartbeat]", "full"]
    assert (other.status_code, nobody.status_code) == (202, 404)
