"""Heartbeats over HTTP: listed, and started by a client."""

from pathlib import Path
from typing import Any

from nacre.testing import Call, Say
from tests.gateway.worlds import open_gateway

ALERT: dict[str, Any] = {
    "outcome": "needs_attention",
    "notify": True,
    "summary": "full",
    "priority": "high",
}
DOCUMENT: dict[str, Any] = {
    "agents": {
        "list": [
            {"id": "main", "heartbeat": {"every": "1h", "target": "last"}},
            {"id": "other"},
        ]
    }
}


async def test_a_client_wakes_an_agent_and_reads_what_became_of_it(tmp_path: Path) -> None:
    script = [Call("heartbeat_respond", ALERT), Say("told"), Say("HEARTBEAT_OK")]
    async with open_gateway(tmp_path, script, DOCUMENT) as world:
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
