"""Sessions over HTTP: the list in pages, and one with what was called in it."""

from pathlib import Path
from urllib.parse import quote

from nacre.testing import Call, Say
from tests.gateway.worlds import CODE_MODE, open_gateway

CELL = "await tools.list({}); try { await tools.read({path: 'missing'}) } catch {} return 'ok'"


async def test_sessions_come_in_pages_the_last_used_first(tmp_path: Path) -> None:
    async with open_gateway(tmp_path, lambda _request: Say("hi")) as world:
        ids = [(await world.finished(f"number {n}"))["sessionId"] for n in range(5)]
        first = await world.get("/api/sessions", params={"limit": 2})
        before = first["nextCursor"]
        second = await world.get("/api/sessions", params={"limit": 2, "before": before})
        last = await world.get("/api/sessions", params={"limit": 2, "before": second["nextCursor"]})
        of_nobody = await world.get("/api/sessions", params={"agentId": "nobody"})
    pages = [[session["id"] for session in page["sessions"]] for page in (first, second, last)]
    assert pages == [[ids[4], ids[3]], [ids[2], ids[1]], [ids[0]]]
    assert last["nextCursor"] is None
    assert of_nobody["sessions"] == []
    assert first["sessions"][0]["turnCount"] == 1
    # It goes into an address as it is.
    assert quote(before, safe="") == before


async def test_a_session_shows_nested_calls_beneath_their_parent(tmp_path: Path) -> None:
    script = [Call("exec", {"code": CELL}), Say("done")]
    async with open_gateway(tmp_path, script, CODE_MODE) as world:
        run = await world.finished("look around")
        session = await world.get(f"/api/sessions/{run['sessionId']}")
    [turn] = session["turns"]
    assert (turn["status"], turn["prompt"], turn["surface"]) == (
        "completed",
        "look around",
        "code_mode",
    )
    [exec_call] = turn["calls"]
    assert exec_call["toolName"] == "exec"
    children = [(it["toolId"], it["outcome"]) for it in exec_call["children"]]
    assert children == [("openclaw:core:list", "completed"), ("openclaw:core:read", "failed")]
    assert [message["role"] for message in session["messages"]] == [
        "user",
        "assistant",
        "tool",
        "assistant",
    ]
    assert session["messages"][1]["toolCalls"][0]["name"] == "exec"
    assert session["messages"][3]["text"] == "done"


async def test_turns_come_in_pages_the_last_ones_first(tmp_path: Path) -> None:
    async with open_gateway(tmp_path, lambda _request: Say("hi")) as world:
        runs = [await world.finished(f"number {n}", sessionKey="k") for n in range(3)]
        other = await world.finished("another session")
        path = f"/api/sessions/{runs[0]['sessionId']}"
        session = await world.get(path, params={"turns": 2})
        earlier = await world.get(path, params={"turns": 2, "before": session["nextCursor"]})
        foreign = await world.client.get(path, params={"before": other["runId"]})
    assert [turn["prompt"] for turn in earlier["turns"]] == ["number 0"]
    assert [it["text"] for it in earlier["messages"]] == ["number 0", "hi"]
    assert earlier["nextCursor"] is None
    assert (foreign.status_code, foreign.json()["error"]["path"]) == (404, "query.before")
    assert [turn["prompt"] for turn in session["turns"]] == ["number 1", "number 2"]
    assert [it["text"] for it in session["messages"]] == ["number 1", "hi", "number 2", "hi"]
    assert session["session"]["turnCount"] == 3


async def test_what_is_no_session_or_no_page_is_refused(tmp_path: Path) -> None:
    async with open_gateway(tmp_path) as world:
        missing = await world.client.get("/api/sessions/nowhere")
        bad_cursor = await world.client.get("/api/sessions", params={"before": "x"})
        bad_limit = await world.client.get("/api/sessions", params={"limit": 0})
    assert (missing.status_code, bad_cursor.status_code, bad_limit.status_code) == (404, 422, 422)
    assert bad_limit.json()["error"]["path"] == "query.limit"


async def test_a_session_is_found_by_its_key(tmp_path: Path) -> None:
    async with open_gateway(tmp_path, lambda _request: Say("hi")) as world:
        await world.finished("a", sessionKey="other")
        mine = await world.finished("b", sessionKey="my chat")
        found = await world.get("/api/sessions", params={"sessionKey": "my chat"})
        of_agent = {"sessionKey": "my chat", "agentId": "nobody"}
        nothing = await world.get("/api/sessions", params=of_agent)
    assert [it["id"] for it in found["sessions"]] == [mine["sessionId"]]
    assert nothing["sessions"] == []
