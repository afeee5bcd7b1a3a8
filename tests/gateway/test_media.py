"""Files of replies: listed with the run and its session, and served to those who may read."""

import json
from pathlib import Path

import httpx2

from nacre.agent import TurnRequest
from nacre.messages import user_message
from nacre.testing import Call, Say
from tests.gateway.worlds import TOKEN, open_gateway

PNG = b"\x89PNG\r\n\x1a\n pearl"
PAGE = b"<html><script>alert(1)</script></html>"
READER = "reader-0123456789abcdef"
RUNNER = "runner-0123456789abcdef"


async def test_files_of_a_message_are_listed_and_served_with_safe_types(tmp_path: Path) -> None:
    (tmp_path / "pärl; x.png").write_bytes(PNG)
    (tmp_path / "page.png").write_bytes(PAGE)
    (tmp_path / "data.html").write_bytes(b"\0\1\2")
    send = {"text": "look", "attachments": ["pärl; x.png", "page.png", "data.html"]}
    script = [Call("message", json.dumps(send)), Say("done")]
    async with open_gateway(tmp_path, script) as world:
        run = await world.finished("draw")
        files = run["result"]["media"]
        session = await world.get(f"/api/sessions/{run['sessionId']}")
        events = world.run(run["runId"]).events.events
        answers = [await world.client.get(file["url"]) for file in files]
        system = world.system
        assert await system.store.delete_session(run["sessionId"])
        gone = await world.client.get(files[0]["url"])

    assert [(file["name"], file["type"], file["size"]) for file in files] == [
        ("pärl; x.png", "image/png", len(PNG)),
        ("page.png", "text/plain", len(PAGE)),
        ("data.html", "application/octet-stream", 3),
    ]
    assert session["turns"][0]["media"] == files
    assert [event.data for event in events if event.kind == "media.added"] == files
    [sent] = [event.data for event in events if event.kind == "message.sent"]
    assert sent == {"text": "look", "media": [file["id"] for file in files]}
    assert events[-1].data["media"] == files
    assert [answer.content for answer in answers] == [PNG, PAGE, b"\0\1\2"]
    assert [answer.headers["content-type"] for answer in answers] == [
        "image/png",
        "text/plain; charset=utf-8",
        "application/octet-stream",
    ]
    assert [answer.headers["content-disposition"] for answer in answers] == [
        "inline; filename*=UTF-8''p%C3%A4rl%3B%20x.png",
        "attachment; filename*=UTF-8''page.png",
        "attachment; filename*=UTF-8''data.html",
    ]
    for answer in answers:
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["content-security-policy"] == "default-src 'none'; sandbox"
    assert gone.status_code == 404


async def test_a_run_that_is_no_longer_in_memory_still_has_its_files(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(PNG)
    script = [Call("message", {"attachments": ["a.png"]}), Say("done")]
    async with open_gateway(tmp_path, script) as world:
        run = await world.finished("draw")
    async with open_gateway(tmp_path) as world:
        again = await world.get(f"/api/runs/{run['runId']}")
        answer = await world.client.get(again["result"]["media"][0]["url"])
    assert again["result"]["media"] == run["result"]["media"]
    assert answer.content == PNG


async def test_files_need_a_token_that_may_read_and_ids_are_no_paths(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(PNG)
    script = [Call("message", {"attachments": ["a.png"]}), Say("done")]
    tokens = {
        "reader": {"token": READER, "scopes": ["read"]},
        "runner": {"token": RUNNER, "scopes": ["run"]},
    }
    document = {"gateway": {"auth": {"token": TOKEN, "tokens": tokens}}}
    async with open_gateway(tmp_path, script, document) as world:
        run = await world.finished("draw")
        url = run["result"]["media"][0]["url"]
        async with httpx2.AsyncClient(base_url=world.url) as client:
            nobody = await client.get(url)
            reader = await client.get(url, headers={"authorization": f"Bearer {READER}"})
            runner = await client.get(url, headers={"authorization": f"Bearer {RUNNER}"})
        others = [
            await world.client.get(f"/api/media/{name}")
            for name in ("nothing", "..%2F..%2Fetc%2Fhostname", "%00", "a.png", "x" * 3_000)
        ]
    assert (nobody.status_code, reader.status_code, runner.status_code) == (401, 200, 403)
    assert [answer.status_code for answer in others] == [404] * len(others)


async def test_files_of_a_session_that_is_not_stored_are_served_from_memory(
    tmp_path: Path,
) -> None:
    (tmp_path / "a.png").write_bytes(PNG)
    script = [Call("message", {"attachments": ["a.png"]}), Say("done")]
    async with open_gateway(tmp_path, script) as world:
        run = await world.system.agents.start(TurnRequest(history=[user_message("draw")]))
        result = await run.wait()
        answer = await world.client.get(f"/api/media/{result.media[0].id}")
        assert await world.system.store.media.find(result.media[0].id) is None
    assert answer.content == PNG


async def test_an_agent_that_may_not_read_files_cannot_send_them(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(PNG)
    script = [Call("message", {"text": "look", "attachments": ["a.png"]}), Say("done")]
    async with open_gateway(tmp_path, script, {"tools": {"deny": ["read"]}}) as world:
        run = await world.finished("draw")
        first, second = world.model.requests
    assert "attachments" not in json.dumps(first.body["tools"])
    assert "attachments" in second.tool_results[0]
    assert run["result"]["media"] == []
